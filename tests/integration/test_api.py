"""HTTP: what callers see. Bad input gets a clear problem, and leaves nothing behind."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from service.api import batch as batch_module, incoming, room
from service.breaker import Breaker
from service.records import ClaimRequest, Entry, Share
from service.services import Health
from storage_backends.base import StorageUnavailable
from storage_backends.reference import Reference, new_uuid
from tests.kit.desk import LARGE, MAX_PAYLOAD_BYTES, QUEUE, SMALL, Desk, a_desk
from tests.kit.servers import no_traces
from tests.kit.waiting import eventually
from tests.kit.web import Probes, app_of, calling, served, talk

JOBS = f"/v1/queues/{QUEUE}/jobs"
UUID = "0193f2a4-7c1e-7b3a-9d57-6f0a1c2b3d4e"


@pytest.fixture
async def port(desk: Desk) -> AsyncIterator[int]:
    """A real server, for what only sockets can show."""
    async with served(app_of(desk)) as listening:
        yield listening


def problem(answer: httpx.Response, status: int, type_: str) -> dict[str, Any]:
    """Fails unless `answer` is this problem, in the form that RFC 9457 gives it."""
    assert answer.headers["content-type"] == "application/problem+json"
    told: dict[str, Any] = answer.json()
    assert (answer.status_code, told["status"], told["type"]) == (status, status, type_), told
    assert told["title"]
    assert ("retry-after" in answer.headers) == (status == 503)
    return told


async def accepted(api: httpx.AsyncClient, content: bytes = SMALL, query: str = "delay=1h", **options: Any) -> str:
    answer = await api.post(f"{JOBS}?{query}", content=content, **options)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["reference"])


async def a_dead_job(desk: Desk) -> Reference:
    job = await desk.enqueue(LARGE, due="2020-01-01T00:00:00Z")
    [leased] = (await desk.ledger.claim(QUEUE, ClaimRequest(1, 10, None, 60_000, {"*": Share(1)}))).leased
    assert await desk.ledger.bury(QUEUE, [(leased, "payload_missing")]) == [True]
    return job.reference


# ---- one job ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("payload", [b"", SMALL, bytes(range(256)) * 100], ids=["empty", "inline", "offloaded"])
async def test_a_job_lives_from_its_acceptance_to_its_cancellation(desk, api, payload):
    answer = await api.post(f"{JOBS}?due=2030-01-01T00:00:00.250Z", content=payload)
    told = answer.json()
    reference, where = told["reference"], f"/v1/jobs/{told['reference']}"
    assert (answer.status_code, answer.headers["location"]) == (201, where)
    assert told == {**told, "queue": QUEUE, "due": "2030-01-01T00:00:00.250Z"}
    assert told["backend"] == reference.split("::")[0]

    job = (await api.get(where)).json()
    assert job == {**job, "reference": reference, "state": "delayed", "due": told["due"], "attempts": 0}
    assert (await api.get(f"{where}/payload")).content == payload

    for _ in range(2):
        gone = await api.delete(where)
        assert (gone.status_code, gone.json()) == (200, {"reference": reference, "state": "cancelled"})
    problem(await api.get(where), 404, "urn:coatcheck:not-here")
    problem(await api.get(f"{where}/payload"), 404, "urn:coatcheck:not-here")
    problem(await api.patch(where, json={"delay": "1s"}), 404, "urn:coatcheck:not-here")


@pytest.mark.parametrize("kind", ["application/json", "application/x-www-form-urlencoded", "multipart/form-data", "x"])
async def test_the_payloads_content_type_is_no_concern_of_ours(api, kind):
    reference = await accepted(api, b"{not json", headers={"Content-Type": kind})
    assert (await api.get(f"/v1/jobs/{reference}/payload")).content == b"{not json"


async def test_a_due_job_says_so_and_a_delivered_one_is_not_here(desk, api):
    reference = await accepted(api, query="due=2020-01-01T00:00:00Z")
    assert (await api.get(f"/v1/queues/{QUEUE}")).json()["overdue"] == 1
    assert await desk.deliver_inline() == 1
    problem(await api.delete(f"/v1/jobs/{reference}"), 404, "urn:coatcheck:not-here")


@pytest.mark.parametrize("text", ["2030-01-01T01:00:00+01:00", "2030-01-01T01:00:00%2B01:00", "1893456000000"])
async def test_a_plus_in_the_query_is_a_plus(api, text):
    """HTML forms take it for a space; who types an offset into curl does not think of that."""
    reference = await accepted(api, query=f"due={text}")
    assert (await api.get(f"/v1/jobs/{reference}")).json()["due"] == "2030-01-01T00:00:00.000Z"


async def test_a_job_gets_another_due_time_and_shows_it(api):
    where = f"/v1/jobs/{await accepted(api)}"
    moved = await api.patch(where, json={"due": "2031-01-01T00:00:00Z"})
    assert (moved.status_code, moved.json()["due"]) == (200, "2031-01-01T00:00:00.000Z")
    assert (await api.get(where)).json()["due"] == "2031-01-01T00:00:00.000Z"
    assert (await api.patch(where, json={"delay": "0s"})).json()["state"] == "delayed"


async def test_a_dead_job_is_shown_and_neither_cancelled_nor_rescheduled(desk, api):
    where = f"/v1/jobs/{await a_dead_job(desk)}"
    told = (await api.get(where)).json()
    assert (told["state"], told["reason"], told["next_attempt"]) == ("dead", "payload_missing", None)
    assert told["died_at"].endswith("Z")
    problem(await api.delete(where), 409, "urn:coatcheck:job-dead")
    problem(await api.patch(where, json={"delay": "1s"}), 409, "urn:coatcheck:job-dead")
    assert (await api.get(f"{where}/payload")).content == LARGE


async def test_a_queue_counts_its_jobs_and_an_unused_one_has_none(api):
    await accepted(api)
    told = (await api.get(f"/v1/queues/{QUEUE}")).json()
    assert (told["queue"], told["future"], told["ready"], told["paused"]) == (QUEUE, 1, 0, False)
    assert told["next_due"].endswith("Z")
    assert (await api.get("/v1/queues/unused")).json()["next_due"] is None


async def test_a_backend_that_is_not_configured_is_named_and_its_job_is_shown(desk, api):
    """In a rolling deploy another process may know it."""
    strange = Reference("s3_acme", QUEUE, 1_893_456_000_000, new_uuid())
    now_ms = await desk.ledger.now_ms()
    await desk.ledger.schedule(QUEUE, [Entry(strange, "large", put_at_ms=now_ms)])
    assert (await api.get(f"/v1/jobs/{strange}")).json()["state"] == "delayed"
    told = problem(await api.get(f"/v1/jobs/{strange}/payload"), 503, "urn:coatcheck:backend-unavailable")
    assert "s3_acme" in told["detail"]
    assert (await api.delete(f"/v1/jobs/{strange}")).json()["state"] == "cancelled"


async def test_a_lost_payload_is_not_here_though_its_job_is(desk, api):
    reference = Reference.parse(await accepted(api, LARGE))
    await desk.store.delete([reference])
    assert (await api.get(f"/v1/jobs/{reference}")).status_code == 200
    problem(await api.get(f"/v1/jobs/{reference}/payload"), 404, "urn:coatcheck:not-here")


async def test_who_looks_at_a_payload_takes_no_jobs_turn_as_the_probe(desk, api):
    """Half-open, one call at a time finds out whether the backend is well again: a dispatcher's, who can judge it."""
    reference = await accepted(api, LARGE)
    clock, guarded = desk.guarded._clock, desk.guarded
    guarded._breaker = Breaker(state="half_open", since_s=clock.monotonic_s())
    assert (await api.get(f"/v1/jobs/{reference}/payload")).content == LARGE
    assert guarded.permit().kind == "probe"
    guarded._breaker = Breaker(state="open", since_s=clock.monotonic_s())
    problem(await api.get(f"/v1/jobs/{reference}/payload"), 503, "urn:coatcheck:backend-unavailable")


# ---- idempotency keys and other headers ------------------------------------------------------------------------------


async def test_a_repeated_request_is_answered_as_the_first_time_and_says_so(api):
    options = {"content": SMALL, "headers": {"Idempotency-Key": "order 4711"}}
    first = await api.post(f"{JOBS}?delay=1h", **options)
    again = await api.post(f"{JOBS}?delay=1h", **options)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == first.json()
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    other = await api.post(f"{JOBS}?delay=2h", **options)
    problem(other, 422, "urn:coatcheck:idempotency-key-reused")


@pytest.mark.parametrize(
    ("headers", "type_"),
    [
        ([("Idempotency-Key", "")], "invalid-header"),
        ([("Idempotency-Key", "k" * 256)], "invalid-header"),
        ([("Idempotency-Key", b"caf\xc3\xa9")], "invalid-header"),
        ([("Idempotency-Key", "a\tb")], "invalid-header"),
        ([("Idempotency-Key", "a"), ("Idempotency-Key", "b")], "invalid-header"),
        ([("Coatcheck-Tenant", "acme"), ("Coatcheck-Tenant", "acme")], "invalid-header"),
        ([("Coatcheck-Tenant", "")], "unknown-tenant"),
        ([("Coatcheck-Tenant", "Nobody Here")], "unknown-tenant"),
        ([("Coatcheck-Tenant", "nobody")], "unknown-tenant"),
    ],
)
async def test_a_header_that_cannot_be_is_refused_and_leaves_nothing_behind(desk, api, headers, type_):
    problem(await api.post(f"{JOBS}?delay=1s", content=LARGE, headers=headers), 422, f"urn:coatcheck:{type_}")
    await no_traces(desk.redis)


# ---- bad input -------------------------------------------------------------------------------------------------------

BAD_QUEUES = [
    "a::b",
    "a:",
    ":a",
    "{a}",
    "a}{b",
    "a b",
    "a/b",
    "..",
    ".",
    "a\0b",
    "a" * 129,
    "ä",
    "a\nb",
    "%2F",
    "-a",
    "a?b",
]


@pytest.mark.parametrize("queue", BAD_QUEUES)
async def test_a_queue_name_that_cannot_be_is_refused_on_every_path_and_leaves_nothing_behind(desk, port, queue):
    """Over a real socket: clients and frameworks tidy some of these away."""
    path, body = f"/v1/queues/{quote(queue, safe='')}", b"content-length: 2\r\n\r\n{}"
    for request in (f"POST {path}/jobs?delay=1s", f"POST {path}/jobs/batch", f"GET {path}"):
        said = await talk(port, f"{request} HTTP/1.1\r\nhost: x\r\n".encode() + body)
        assert (said.status, "urn:coatcheck:invalid-queue" in said.text) == (422, True), said
    await no_traces(desk.redis)


@pytest.mark.parametrize(
    "query",
    [
        *("", "delay", "delay=", "delay=30", "delay=-1s", "delay=1s&delay=1s", "delay=3654d", "delay=1+s", "Delay=1s"),
        *("due=", "due=2030-01-01T00:00:00", "due=1893456000", "due=-1", "due=2099-01-01T00:00:00Z", "due=soon"),
        *("delay=1s&due=2030-01-01T00:00:00Z", "dealy=1s", "delay=1s&queue=other", "delay=1s&=", "due=%FF", "due=%00"),
    ],
)
async def test_a_time_that_cannot_be_is_refused_and_leaves_nothing_behind(desk, api, query):
    told = problem(await api.post(f"{JOBS}?{query}", content=LARGE), 422, "urn:coatcheck:invalid-time")
    assert len(told["detail"]) < 300
    await no_traces(desk.redis)


@pytest.mark.parametrize(
    "reference",
    [
        "x",
        f"s3::{QUEUE}::01893456000000::{UUID}",
        f"s3::{QUEUE}::1893456000000::{UUID.upper()}",
        f"S3::{QUEUE}::1893456000000::{UUID}",
        f"s3::a::b::1893456000000::{UUID}",
        f"s3::{QUEUE}::1893456000000::{UUID} ",
        f"s3::{QUEUE}::{2**53}::{UUID}",
        f"s3::a/b::1893456000000::{UUID}",
        "x" * 5_000,
    ],
)
async def test_a_reference_that_does_not_parse_is_refused_by_every_call(desk, api, reference):
    path = f"/v1/jobs/{quote(reference, safe='')}"
    for method, where in (("GET", path), ("GET", f"{path}/payload"), ("DELETE", path), ("PATCH", path)):
        problem(await api.request(method, where), 422, "urn:coatcheck:invalid-reference")
    await no_traces(desk.redis)


@pytest.mark.parametrize(
    ("body", "type_"),
    [
        (b"", "invalid-body"),
        (b"[]", "invalid-body"),
        (b'{"delay": "1s", "state": "dead"}', "invalid-body"),
        (b'{"delay": "1s", "delay": "2s"}', "invalid-body"),
        (b"{}", "invalid-time"),
        (b'{"delay": 30}', "invalid-time"),
        (b'{"due": 1893456000.5}', "invalid-time"),
        (b'{"due": true}', "invalid-time"),
        (b'{"due": 1e999}', "invalid-time"),
        (b'{"due": NaN}', "invalid-time"),
        (b'{"due": ' + b"9" * 4000 + b"}", "invalid-time"),
        (b'{"delay": "\\ud800"}', "invalid-body"),
        (b'{"delay": ' + b"[" * 900 + b"]" * 900 + b"}", "invalid-body"),
        (b'{"delay": "1s", "due": "2030-01-01T00:00:00Z"}', "invalid-time"),
    ],
)
async def test_a_reschedule_that_cannot_be_is_refused_and_changes_nothing(api, body, type_):
    where = f"/v1/jobs/{await accepted(api, query='due=2030-01-01T00:00:00Z')}"
    problem(await api.patch(where, content=body), 422, f"urn:coatcheck:{type_}")
    assert (await api.get(where)).json()["due"] == "2030-01-01T00:00:00.000Z"


async def test_a_time_in_the_query_of_a_reschedule_is_not_passed_over(api):
    where = f"/v1/jobs/{await accepted(api)}"
    problem(await api.patch(f"{where}?delay=1s", json={"delay": "2s"}), 422, "urn:coatcheck:invalid-time")
    problem(await api.patch(where, content=b" " * 5_000), 413, "urn:coatcheck:payload-too-large")


# ---- the framework's own ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/jobs", "/v1/queues/a/b/jobs", f"{JOBS}/", "/docs/x", "/v1/queues//jobs"]
)
async def test_a_path_that_is_none_is_a_problem_too(api, path):
    problem(await api.post(path), 404, "urn:coatcheck:no-such-route")


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", f"{JOBS}/batch", "POST"),
        ("PUT", f"/v1/jobs/x::q::1::{UUID}", "DELETE, GET, PATCH"),
        ("POST", "/healthz", "GET"),
    ],
)
async def test_a_method_that_is_not_possible_says_which_are(api, method, path, allow):
    answer = await api.request(method, path)
    problem(answer, 405, "about:blank")
    assert answer.headers["allow"] == allow


async def test_an_error_of_ours_tells_nothing_of_our_inside(desk, api, monkeypatch):
    async def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("secret inside")

    monkeypatch.setattr(desk.producer, "enqueue", broken)
    answer = await api.post(f"{JOBS}?delay=1s")
    assert problem(answer, 500, "about:blank") == {
        "type": "about:blank",
        "title": "Internal Server Error",
        "status": 500,
    }
    assert desk.counted("http_responses_total", call="enqueue", status="500") == 1


async def test_answers_are_counted_by_call_and_never_by_path(desk, api):
    await accepted(api)
    await api.get("/nowhere/at/all")
    assert desk.counted("http_responses_total", call="enqueue", status="201") == 1
    assert desk.counted("http_responses_total", status="404") == 1
    assert "nowhere" not in (await api.get("/metrics")).text


async def test_the_reference_documents_every_call_with_an_example(api):
    document = (await api.get("/openapi.json")).json()
    calls = {each["operationId"]: each for path in document["paths"].values() for each in path.values()}
    for name in (
        "enqueue",
        "enqueue_batch",
        "look_up",
        "cancel",
        "reschedule",
        "payload",
        "counts",
        "healthz",
        "readyz",
    ):
        good = next(answer for status, answer in calls[name]["responses"].items() if status.startswith("2"))
        assert all("example" in content for content in good["content"].values()), name
        assert calls[name]["summary"]
    assert [it["name"] for it in calls["enqueue"]["parameters"]] == [
        *("queue", "delay", "due", "Coatcheck-Tenant", "Idempotency-Key")
    ]


# ---- when something is away ------------------------------------------------------------------------------------------


async def test_a_full_redis_is_a_503_that_says_when_to_come_back(desk, api):
    desk.memory_ratio = 0.95
    told = problem(await api.post(f"{JOBS}?delay=1s", content=SMALL), 503, "urn:coatcheck:redis-full")
    assert told["retry_after_s"] >= 1


async def test_a_backend_that_is_away_is_a_503_for_what_redis_may_not_keep(desk, api):
    async def away(_: Reference) -> None:
        raise StorageUnavailable("as the test wants it", backend="s3")

    desk.store.before = away
    problem(await api.post(f"{JOBS}?delay=1s", content=b"x" * 70_000), 503, "urn:coatcheck:backend-unavailable")
    await no_traces(desk.redis)


async def test_a_redis_that_is_away_is_a_503_on_every_call(redis_url, s3_server, redis_proxy):
    async with a_desk(redis_url, s3_server, through=redis_proxy.url) as desk, calling(app_of(desk)) as api:
        await redis_proxy.refuse()
        where = f"/v1/jobs/s3::{QUEUE}::1893456000000::{UUID}"
        for method, path in (
            ("POST", f"{JOBS}?delay=1s"),
            ("GET", where),
            ("GET", f"{where}/payload"),
            ("GET", f"/v1/queues/{QUEUE}"),
        ):
            problem(await api.request(method, path), 503, "urn:coatcheck:redis-unavailable")
        told = (await api.post(f"{JOBS}/batch", content=b'{"payload":"a","delay":"1s"}\n')).json()
        assert (told["status"], told["problem"]["type"]) == (503, "urn:coatcheck:redis-unavailable")


async def test_an_unknown_outcome_names_the_job_so_that_a_delete_can_settle_it(redis_url, s3_server, redis_proxy):
    async with a_desk(redis_url, s3_server, through=redis_proxy.url) as desk, calling(app_of(desk)) as api:
        lost = redis_proxy.swallow_request(desk.ledger._runner._scripts["schedule"].sha.encode())
        told = problem(await api.post(f"{JOBS}?delay=1h", content=SMALL), 503, "urn:coatcheck:outcome-unknown")
        await lost
        problem(await api.delete(f"/v1/jobs/{told['reference']}"), 404, "urn:coatcheck:not-here")


# ---- batches ---------------------------------------------------------------------------------------------------------


async def batch(api: httpx.AsyncClient, *lines: object) -> list[dict[str, Any]]:
    body = b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines)
    answer = await api.post(f"{JOBS}/batch", content=body)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/x-ndjson"), answer.text
    told = [json.loads(line) for line in answer.text.splitlines()]
    assert [each["line"] for each in told] == list(range(1, len(told) + 1))
    return told


async def test_a_batch_answers_each_line_in_order_and_a_bad_line_fails_alone(desk, api):
    told = await batch(
        api,
        {"payload": "a", "delay": "1h"},
        b"not json",
        {"payload_base64": "AP8=", "due": 1_893_456_000_000, "tenant": "acme"},
        {"payload": "a", "delay": 30},
        {"payload": "a", "delay": "1h", "tenant": "nobody"},
        {"payload": "x" * (MAX_PAYLOAD_BYTES + 1), "delay": "1h"},
        b"x" * (3 * MAX_PAYLOAD_BYTES),
        b"",
        {"payload": "x" * 20_000, "delay": "1h"},
    )
    assert [each["status"] for each in told] == [201, 422, 201, 422, 422, 413, 422, 422, 201]
    types = [each["problem"]["type"].rpartition(":")[2] for each in told if "problem" in each]
    assert types == [
        "invalid-line",
        "invalid-time",
        "unknown-tenant",
        "payload-too-large",
        "invalid-line",
        "invalid-line",
    ]
    assert {each["reference"] for each in told if "reference" in each} == {str(it) for it in await desk.delayed()}
    assert (await api.get(f"/v1/jobs/{told[2]['reference']}/payload")).content == b"\0\xff"


async def test_a_batch_of_bad_lines_leaves_nothing_behind(desk, api):
    assert {each["status"] for each in await batch(api, b"1", b"{", {"payload": "a"}, {"delay": "1s"})} == {422}
    await no_traces(desk.redis)


async def test_a_line_with_a_key_is_replayed_and_agrees_with_the_single_call(api):
    reference = await accepted(api, b"a", headers={"Idempotency-Key": "k"})
    line = {"payload": "a", "delay": "1h", "idempotency_key": "k"}
    told = await batch(api, line, line, {**line, "payload": "b"})
    assert [each["status"] for each in told] == [200, 200, 422]
    assert told[0]["reference"] == told[1]["reference"] == reference


async def test_ten_thousand_lines_are_accepted_and_what_follows_is_not_looked_at(desk, port):
    """Sent whole before a byte of the answer is read: neither side may wait for the other."""
    body = b'{"payload":"a","delay":"1h"}\n' * 10_005
    head = f"POST {JOBS}/batch HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    said = await talk(port, head.encode(), body)
    told = [json.loads(line) for line in said.text.partition("\r\n\r\n")[2].splitlines()]
    assert [each["status"] for each in told] == [201] * 10_000 + [422]
    assert told[-1]["problem"]["type"] == "urn:coatcheck:invalid-body"
    assert len(await desk.delayed()) == 10_000


@pytest.mark.parametrize(
    ("path", "type_"), [(f"{JOBS}/batch", "invalid-body"), (f"{JOBS}/batch?delay=1s", "invalid-time")]
)
async def test_a_batch_without_lines_or_with_a_time_in_the_query_is_refused_whole(desk, api, path, type_):
    problem(await api.post(path), 422, f"urn:coatcheck:{type_}")
    await no_traces(desk.redis)


async def test_an_error_of_ours_in_a_later_line_does_not_hide_what_was_accepted(desk, api, monkeypatch):
    """A 500 for the whole would make the client send the accepted ones again."""
    really = desk.producer.enqueue_many

    async def broken_later(jobs: Any) -> Any:
        if jobs[0].payload == b"broken":
            raise RuntimeError("secret inside")
        return await really(jobs)

    monkeypatch.setattr(desk.producer, "enqueue_many", broken_later)
    lines = [{"payload": f"{n}", "delay": "1h"} for n in range(500)]
    told = await batch(api, *lines, {"payload": "broken", "delay": "1h"})
    assert [each["status"] for each in told] == [201] * 500 + [500]
    assert told[-1]["problem"] == {"type": "about:blank", "title": "Internal Server Error", "status": 500}


# ---- sockets ---------------------------------------------------------------------------------------------------------

POST = f"POST {JOBS}?delay=1h HTTP/1.1\r\nhost: x\r\n"
TOO_LARGE = MAX_PAYLOAD_BYTES + 1


async def test_a_post_without_a_body_is_an_empty_payload(desk, port):
    assert (await talk(port, f"{POST}\r\n".encode())).status == 201
    assert (await talk(port, f"{POST}content-length: 0\r\n\r\n".encode())).status == 201
    assert len(await desk.delayed()) == 2


async def test_a_chunked_body_is_a_payload_like_any(desk, port):
    said = await talk(
        port, f"{POST}transfer-encoding: chunked\r\n\r\n".encode(), b"3\r\nabc\r\n", b"2\r\nde\r\n0\r\n\r\n"
    )
    assert said.status == 201
    [reference] = await desk.delayed()
    assert await desk.redis.hget(desk.keys.queue(QUEUE).bodies, reference.uuid) == b"abcde"


@pytest.mark.parametrize("size", [TOO_LARGE, 50 * MAX_PAYLOAD_BYTES])
async def test_a_client_that_sends_too_much_sees_the_answer(desk, port, size):
    """Closed while it is still sending, it would see a broken connection and try again."""
    body = b"x" * size
    announced = await talk(port, f"{POST}content-length: {size}\r\n\r\n".encode(), body)
    chunked = await talk(port, f"{POST}transfer-encoding: chunked\r\n\r\n{size:x}\r\n".encode(), body, b"\r\n0\r\n\r\n")
    for said in (announced, chunked):
        assert said.status == 413
        assert "urn:coatcheck:payload-too-large" in said.text
    await no_traces(desk.redis)


async def test_who_asks_before_sending_too_much_is_told_at_once(desk, port):
    said = await talk(port, f"{POST}expect: 100-continue\r\ncontent-length: {TOO_LARGE}\r\n\r\n".encode())
    assert said.status == 413
    await no_traces(desk.redis)


async def test_who_asks_before_sending_is_told_to_go_on(desk, port):
    said = await talk(port, f"{POST}expect: 100-continue\r\ncontent-length: 2\r\n\r\n".encode(), b"hi")
    assert said.status == 201


async def test_what_is_thrown_away_is_bounded_in_time(desk, port, monkeypatch):
    """A client that announces much and sends nothing does not hold a connection for ever."""
    monkeypatch.setattr(incoming, "_THROWN_AWAY_S", 0.05)
    said = await talk(port, f"{POST}content-length: {TOO_LARGE}\r\n\r\n".encode(), b"x")
    assert said.status == 413
    assert "connection: close" in said.text


async def test_what_is_thrown_away_is_bounded_in_bytes(desk, port, monkeypatch):
    monkeypatch.setattr(incoming, "_THROWN_AWAY_BYTES", 1000)
    said = await talk(port, f"{POST}content-length: {10**12}\r\n\r\n".encode(), b"x" * 2000)
    assert said.status == 413


async def test_a_client_that_leaves_in_the_middle_of_its_body_leaves_nothing_behind(desk, port):
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{POST}content-length: 1000\r\n\r\nhalf".encode())
    await writer.drain()
    writer.transport.abort()
    await eventually(
        lambda: desk.counted("http_responses_total", call="enqueue", status="400"), described="the server has noticed"
    )
    await no_traces(desk.redis)


# ---- room for bodies -------------------------------------------------------------------------------------------------


async def test_bodies_that_do_not_fit_wait_unread_and_small_ones_pass(desk):
    """A slow backend and a hundred clients with large payloads must not fill this process's memory."""
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def pause(_: Reference) -> None:
        reached.set()
        await go_on.wait()

    desk.store.before = pause
    async with calling(app_of(desk, body_budget_bytes=100_000)) as api:
        large = [asyncio.create_task(api.post(f"{JOBS}?delay=1h", content=b"x" * 90_000)) for _ in range(3)]
        await reached.wait()
        assert (await api.post(f"{JOBS}?delay=1h", content=SMALL)).status_code == 201
        assert desk.store.at_once == 1
        go_on.set()
        assert [(await answer).status_code for answer in large] == [201] * 3
        assert desk.store.most_at_once == 1


async def test_a_payload_that_is_shown_needs_room_and_gives_it_back(desk):
    async with calling(app_of(desk, body_budget_bytes=100_000)) as api:
        reference = await accepted(api, b"x" * 90_000)
        shown = await asyncio.gather(*(api.get(f"/v1/jobs/{reference}/payload") for _ in range(3)))
        assert [answer.content for answer in shown] == [b"x" * 90_000] * 3


async def test_who_announces_much_and_stalls_gives_the_room_back(desk, monkeypatch):
    monkeypatch.setattr(room, "IDLE_S", 0.05)
    async with served(app_of(desk, body_budget_bytes=100_000)) as port:
        said = await talk(port, f"{POST}content-length: 90000\r\n\r\n".encode(), b"x" * 1000)
        assert (said.status, "urn:coatcheck:invalid-body" in said.text) == (422, True)
        assert (await talk(port, f"{POST}content-length: 90000\r\n\r\n".encode(), b"x" * 90_000)).status == 201


async def _drops() -> AsyncIterator[bytes]:
    """Never a pause in which nothing comes, and never an end."""
    while True:
        await asyncio.sleep(0)
        yield b" "


@pytest.mark.parametrize("path", [f"{JOBS}?delay=1h", f"{JOBS}/batch"])
async def test_who_sends_drop_by_drop_gives_the_room_back(desk, monkeypatch, path):
    """A few such clients, announcing much, would hold up everybody's large bodies for as long as they like."""
    monkeypatch.setattr(room, "IDLE_S", 0.05)
    monkeypatch.setattr(batch_module, "IDLE_S", 0.05)
    monkeypatch.setattr(incoming, "SLOWEST_BYTES_S", 2**40)
    async with calling(app_of(desk, body_budget_bytes=100_000)) as api:
        async with asyncio.timeout(20):
            answer = await api.post(path, content=_drops())
        assert "too slow" in answer.text
        assert await accepted(api, b"x" * 90_000)


async def test_the_time_that_we_take_ourselves_is_not_the_clients():
    """A batch is accepted while it is read; a slow backend of ours must not end it."""
    arrived = asyncio.get_running_loop().time

    async def three() -> AsyncIterator[bytes]:
        for piece in (b"a", b"b", b"c"):
            yield piece

    seen = []
    async for piece in incoming.unless_slow(three(), 0.05):
        ends_s = arrived() + 0.06
        await eventually(lambda ends_s=ends_s: arrived() > ends_s, described="we were slower than the client may be")
        seen.append(piece)
    assert seen == [b"a", b"b", b"c"]


async def test_who_waits_too_long_for_room_is_told_to_come_back(desk, monkeypatch):
    """Otherwise clients give up by themselves, and know nothing."""
    monkeypatch.setattr(room, "WAIT_S", 0.05)
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def pause(_: Reference) -> None:
        reached.set()
        await go_on.wait()

    async with calling(app_of(desk, body_budget_bytes=100_000)) as api:
        reference = await accepted(api, b"x" * 90_000)
        desk.store.before = pause
        first = asyncio.create_task(api.post(f"{JOBS}?delay=1h", content=b"x" * 90_000))
        await reached.wait()
        for answer in (
            await api.post(f"{JOBS}?delay=1h", content=b"x" * 90_000),
            await api.post(f"{JOBS}/batch", content=b" " * 90_000),
            await api.get(f"/v1/jobs/{reference}/payload"),
        ):
            problem(answer, 503, "urn:coatcheck:busy")
        go_on.set()
        assert (await first).status_code == 201
        assert (await api.get(f"/v1/jobs/{reference}/payload")).content == b"x" * 90_000


async def test_a_batch_that_stalls_is_answered_as_far_as_it_came(desk, monkeypatch):
    """What was accepted is: without its answer the client would send it again."""
    monkeypatch.setattr(batch_module, "IDLE_S", 0.05)
    async with served(app_of(desk)) as port:
        head = f"POST {JOBS}/batch HTTP/1.1\r\nhost: x\r\ncontent-length: 90000\r\n\r\n"
        said = await talk(port, head.encode(), b'{"payload":"a","delay":"1h"}\n' * 2, b'{"payl')
    told = [json.loads(line) for line in said.text.partition("\r\n\r\n")[2].splitlines()]
    assert [each["status"] for each in told] == [201, 201, 422]
    assert len(await desk.delayed()) == 2


# ---- health ----------------------------------------------------------------------------------------------------------


async def test_alive_and_ready_say_why_not_and_show_details_either_way(desk):
    probes = Probes()
    async with calling(app_of(desk, probes)) as api:
        assert (await api.get("/healthz")).json() == {"status": "alive"}
        probes.ready = Health(ok=True, details={"backends": {"s3": "another installation owns it"}})
        assert (await api.get("/readyz")).json()["backends"]["s3"] == "another installation owns it"
        probes.ready = Health(ok=False, reasons=["Redis is away", "starting"])
        assert problem(await api.get("/readyz"), 503, "about:blank")["reasons"] == ["Redis is away", "starting"]
        assert (await api.get("/healthz")).status_code == 200
        probes.alive = Health(ok=False, reasons=["loop dispatch is dead"])
        assert "loop dispatch" in problem(await api.get("/healthz"), 503, "about:blank")["detail"]


async def test_a_dispatcher_serves_health_and_metrics_alone(desk):
    async with calling(app_of(desk, jobs=False)) as api:
        for path in ("/healthz", "/readyz", "/metrics"):
            assert (await api.get(path)).status_code == 200
        problem(await api.post(f"{JOBS}?delay=1s"), 404, "urn:coatcheck:no-such-route")
