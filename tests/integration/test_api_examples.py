"""The OpenAPI document, held to the application: every example is sent, and every kind of problem is named."""

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from service import errors
from service.api import examples, openapi
from service.api.problems import status_of
from service.records import ClaimRequest, Share
from tests.kit.desk import LARGE, Desk
from tests.kit.web import app_of

QUEUE = "emails"
KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.CoatcheckError) and "code" in vars(kind)
]


@pytest.fixture
async def document(api: httpx.AsyncClient) -> dict[str, Any]:
    described: dict[str, Any] = (await api.get("/openapi.json")).json()
    return described


def calls(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, call in methods.items():
            yield method, path, call


def shape(value: Any) -> Any:
    """Names and kinds, not values: an example's time is not the real one. Null may stand for a text, and vice versa."""
    if isinstance(value, dict):
        return {name: shape(each) for name, each in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return "text" if value is None else {bool: "yes or no", int: "number"}.get(type(value), "text")


def content(value: object) -> bytes:
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()


async def a_job(desk: Desk, call: str) -> str:
    """One that this call can be about."""
    if call not in ("revive", "purge", "list_jobs"):
        return str((await desk.enqueue(LARGE)).reference)
    job = await desk.enqueue(LARGE, due="2020-01-01T00:00:00Z")
    [leased] = (await desk.ledger.claim(QUEUE, ClaimRequest(1, 10, None, 60_000, {"*": Share(1)}))).leased
    await desk.ledger.bury(QUEUE, [(leased, "payload_missing")])
    return str(job.reference)


@pytest.mark.parametrize("name", sorted(openapi._CALLS))
async def test_every_documented_example_works(desk, api, document, name):
    """What people copy from the reference is the first thing that they see of us."""
    [(method, path, call)] = [each for each in calls(document) if each[2]["operationId"] == name]
    reference = await a_job(desk, name)
    parameters = [each for each in call.get("parameters", ()) if each["name"] not in ("due", "cursor")]
    url = path.format(**{each["name"]: each["example"] for each in parameters if each["in"] == "path"})
    sent = {place: {each["name"]: each["example"] for each in parameters if each["in"] == place} for place in
            ("query", "header")}  # fmt: skip
    for body, expected in exchanges(call):
        answer = await api.request(
            method,
            url.replace(examples.REFERENCE, reference),
            params=sent["query"],
            headers=sent["header"],
            content=None if body is None else content(body).replace(examples.REFERENCE.encode(), reference.encode()),
        )
        assert str(answer.status_code) in call["responses"], answer.text
        media_type = answer.headers["content-type"].partition(";")[0]
        documented = call["responses"][str(answer.status_code)]["content"]
        assert list(documented) == [media_type]
        if media_type == "application/json":
            assert shape(answer.json()) in [shape(each) for each in expected], answer.text
        elif media_type == "application/x-ndjson":
            lines, wanted = answer.text.splitlines(), expected[0].splitlines()
            assert [shape(json.loads(line)) for line in lines] == [shape(json.loads(line)) for line in wanted]


def exchanges(call: dict[str, Any]) -> Iterator[tuple[Any, list[Any]]]:
    """Each example of a request, None for a call without a body, and what may be answered."""
    good = next(each for status, each in sorted(call["responses"].items()) if status[0] == "2")
    [answered] = good["content"].values()
    expected = [each["value"] for each in answered.get("examples", {}).values()] or [answered.get("example")]
    if "requestBody" not in call:
        yield None, expected
        return
    [asked] = call["requestBody"]["content"].values()
    for body in [each["value"] for each in asked.get("examples", {}).values()] or [asked["example"]]:
        yield body, expected


async def test_the_other_way_to_say_when_works_as_documented(api, document):
    [call] = [call for _, _, call in calls(document) if call["operationId"] == "enqueue"]
    [due] = [each["example"] for each in call["parameters"] if each["name"] == "due"]
    assert (await api.post(f"/v1/queues/{QUEUE}/jobs", params={"due": due})).status_code == 201


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not errors.CannotStart], ids=lambda it: it.code)
async def test_every_kind_of_problem_is_documented_with_its_status(document, kind):
    """Clients match on `type`; one that the reference does not name is one that they do not handle."""
    row = re.search(rf"`urn:coatcheck:{kind.code}` \| (\d+) \| (.+) \|", document["info"]["description"])
    assert row is not None
    assert int(row[1]) == status_of(kind)
    if kind is errors.InvalidLine:  # in the line's own answer, whose status is 200
        return
    statuses = {
        (status, example["value"]["status"])
        for _, _, call in calls(document)
        for status, answer in call["responses"].items()
        for example in answer["content"].get("application/problem+json", {}).get("examples", {}).values()
        if example["value"]["type"] == f"urn:coatcheck:{kind.code}"
    }
    assert statuses == {(str(status_of(kind)), status_of(kind))}


async def test_every_call_says_what_it_does(document):
    for method, path, call in calls(document):
        assert call["summary"], (method, path)
        assert call["description"], (method, path)


async def test_every_route_of_the_application_is_documented(desk, document):
    """And no other."""
    app = app_of(desk)
    routes = {(method.lower(), route.path) for route in app.routes if route.path[1:].partition("/")[0] in
              ("v1", "healthz", "readyz", "metrics") for method in route.methods}  # fmt: skip
    assert routes == {(method, path) for method, path, _ in calls(document)}
