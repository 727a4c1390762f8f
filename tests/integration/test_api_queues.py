"""HTTP about queues: figures and pages that stay true while everything moves, pause and resume."""

import asyncio
import base64
import json
from typing import Any

import httpx
import pytest

from service.clock import rfc3339
from service.records import ClaimRequest, Entry, Share
from storage_backends.reference import Reference, new_uuid
from tests.kit.desk import QUEUE, Desk

AT = "/v1/queues"
DUE_MS = 4_000_000_000_000  #: in 2096


async def told(answer: httpx.Response, status: int = 200) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    fields: dict[str, Any] = answer.json()
    return fields


async def get(api: httpx.AsyncClient, path: str, **query: Any) -> dict[str, Any]:
    return await told(await api.get(path, params=query))


async def scheduled(desk: Desk, due_ms: list[int], queue: str = QUEUE) -> list[str]:
    """Jobs with these due times; returns their references in the order of the delayed set."""
    entries = [Entry(Reference("redis", queue, due, new_uuid()), "tiny", b"x") for due in due_ms]
    await desk.ledger.schedule(queue, entries)
    return [str(it.reference) for it in sorted(entries, key=lambda e: (e.reference.ts_ms, str(e.reference)))]


async def pages(api: httpx.AsyncClient, path: str, what: str, **query: Any) -> list[list[dict[str, Any]]]:
    found, cursor = [], {}
    while True:
        page = await get(api, path, **query, **cursor)
        found.append(page[what])
        if page["next"] is None:
            return found
        cursor = {"cursor": page["next"]}


def names(page: list[dict[str, Any]]) -> list[str]:
    return [job["reference"] for job in page]


# ---- jobs in pages ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 3, 7, 8, 100])
async def test_pages_show_every_job_once_in_order(desk, api, limit):
    """Also where many are due in the same millisecond, as after a batch: only the member tells them apart."""
    references = await scheduled(desk, [DUE_MS, DUE_MS + 1, DUE_MS + 1, DUE_MS + 1, DUE_MS + 1, DUE_MS + 1, DUE_MS + 2])
    found = await pages(api, f"{AT}/{QUEUE}/jobs", "jobs", state="delayed", limit=limit)
    assert [name for page in found for name in names(page)] == references
    assert all(len(page) <= limit for page in found)


async def test_a_cursor_survives_that_its_job_and_others_go(desk, api):
    """Counted by number, two jobs that leave at the front would hide two others."""
    references = await scheduled(desk, [DUE_MS] * 20)
    first = await get(api, f"{AT}/{QUEUE}/jobs", state="delayed", limit=5)
    assert names(first["jobs"]) == references[:5]
    for gone in (*references[1:5], references[7]):
        await told(await api.delete(f"/v1/jobs/{gone}"))
    await scheduled(desk, [DUE_MS - 1] * 3)
    rest = await get(api, f"{AT}/{QUEUE}/jobs", state="delayed", limit=100, cursor=first["next"])
    assert names(rest["jobs"]) == [*references[5:7], *references[8:]]
    assert rest["next"] is None


async def test_the_place_among_thousands_of_one_millisecond_is_found_by_halving(desk, api):
    """A campaign is due at nine sharp, all of it: with a million jobs that is some 20 looks, and not a walk."""
    references = await scheduled(desk, [DUE_MS] * 5000)
    await desk.redis.config_resetstat()
    cursor = (await get(api, f"{AT}/{QUEUE}/jobs", state="delayed", limit=1000))["next"]
    await told(await api.delete(f"/v1/jobs/{references[999]}"))
    page = await get(api, f"{AT}/{QUEUE}/jobs", state="delayed", limit=10, cursor=cursor)
    assert names(page["jobs"]) == references[1000:1010]
    stats = await desk.redis.info("commandstats")
    assert stats["cmdstat_zrange"]["calls"] < 30


async def test_a_job_in_a_page_is_what_the_call_about_it_shows(desk, api):
    """Two answers about one job that differ would leave people guessing which of them is true."""
    rescheduled = (await desk.enqueue()).reference
    await api.patch(f"/v1/jobs/{rescheduled}", json={"delay": "2h"})
    await desk.enqueue(delay="3h")
    page = await get(api, f"{AT}/{QUEUE}/jobs", state="delayed")
    assert len(page["jobs"]) == 2
    for job in page["jobs"]:
        assert job == await get(api, f"/v1/jobs/{job['reference']}")


async def test_leased_and_dead_jobs_have_pages_too(desk, api):
    jobs = [(await desk.enqueue(b"x" * 20_000, due="2020-01-01T00:00:00Z")).reference for _ in range(2)]
    claimed = await desk.ledger.claim(QUEUE, ClaimRequest(2, 10, None, 60_000, {"*": Share(2)}))
    [buried, kept] = claimed.leased
    assert await desk.ledger.bury(QUEUE, [(buried, "payload_missing")]) == [True]
    leased = await get(api, f"{AT}/{QUEUE}/jobs", state="leased")
    dead = await get(api, f"{AT}/{QUEUE}/jobs", state="dead")
    assert names(leased["jobs"]) == [str(kept.reference)]
    assert names(dead["jobs"]) == [str(buried.reference)]
    assert dead["jobs"][0]["reason"] == "payload_missing"
    assert {str(each) for each in jobs} == {str(kept.reference), str(buried.reference)}


async def test_what_is_no_reference_is_shown_as_it_is(desk, api):
    """An operator has to see it to purge it; and it must not keep the others from being shown."""
    [reference] = await scheduled(desk, [DUE_MS])
    of = desk.keys.queue(QUEUE)
    await desk.redis.zadd(of.delayed, {b"scribble \xff": DUE_MS - 1, f"redis::other::1::{new_uuid()}": float("inf")})
    jobs = (await get(api, f"{AT}/{QUEUE}/jobs", state="delayed"))["jobs"]
    assert [job["backend"] for job in jobs] == [None, "redis", None]
    assert jobs[0]["reference"] == "scribble \udcff"
    assert jobs[1]["reference"] == reference
    one_by_one = await pages(api, f"{AT}/{QUEUE}/jobs", "jobs", state="delayed", limit=1)
    assert [page[0] for page in one_by_one] == jobs


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ("", "state"),
        ("state=ready", "state"),
        ("state=dead&limit=0", "limit"),
        ("state=dead&limit=-1", "limit"),
        ("state=dead&limit=many", "limit"),
        ("state=dead&state=dead", "twice"),
        ("state=dead&page=2", "page"),
        ("state=dead&cursor=%C3%A4", "cursor"),
        ("state=dead&cursor=MTI", "cursor"),
        ("state=dead&cursor=", "cursor"),
        ("state=dead&cursor=" + "W" * 5000, "cursor"),
    ],
)
async def test_a_bad_query_gets_a_clear_problem(desk, api, query, word):
    problem = await told(await api.get(f"{AT}/{QUEUE}/jobs?{query}"), 422)
    assert problem["type"] == "urn:coatcheck:invalid-query"
    assert word in problem["detail"]


def a_cursor(*parts: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")


BAD_CURSORS = [
    *(
        a_cursor(score, "m")
        for score in ("nan", "infinity", "Inf", "1_0", " 1 ", "1\n", "+1", "0x1", "1e", "", "\u0661", 1)
    ),
    *(a_cursor("1", member) for member in ("\ud800", "a\udfff", 1, None, ["m"])),
    *(a_cursor(*parts) for parts in ((), ("1",), ("1", "m", 1), ({}, []))),
    base64.urlsafe_b64encode(b'["1","\xed\xa0\x80"]').decode(),
    base64.urlsafe_b64encode('["1","m"]'.encode("utf-16")).decode(),
    base64.urlsafe_b64encode(b"[" * 1500).decode(),
]


@pytest.mark.parametrize("cursor", BAD_CURSORS)
async def test_a_cursor_that_was_never_given_out_gets_a_clear_problem(api, cursor):
    """What Python takes for a number or a text, Redis need not."""
    problem = await told(await api.get(f"{AT}/{QUEUE}/jobs", params={"state": "delayed", "cursor": cursor}), 422)
    assert problem["type"] == "urn:coatcheck:invalid-query"


@pytest.mark.parametrize("score", ["-inf", "-1e300", "-0.5", "5e-324", "0.1", "1e17", "1.5e300", "inf"])
async def test_a_cursor_leads_on_whatever_the_score(desk, api, score):
    of = desk.keys.queue(QUEUE)
    await desk.redis.execute_command("ZADD", of.dead, score, "a", score, "b")
    found = await pages(api, f"{AT}/{QUEUE}/jobs", "jobs", state="dead", limit=1)
    assert [name for page in found for name in names(page)] == ["a", "b"]


@pytest.mark.parametrize("score", ["-inf", "inf", "1e300", "-1e300"])
async def test_a_queue_is_counted_whatever_its_first_score(desk, api, score):
    await desk.redis.execute_command("ZADD", desk.keys.queue(QUEUE).delayed, score, "scribble")
    assert (await get(api, f"{AT}/{QUEUE}"))["next_due"].endswith("Z")


@pytest.mark.parametrize(
    "record",
    [
        *('{"attempts":1e999,"expiries":-1e999}', '{"attempts":NaN}', f'{{"attempts":{"9" * 400}}}', "[" * 100_000),
        *('{"error":NaN,"reason":1e999}', f'{{"error":{"[" * 900}{"]" * 900}}}', '{"error":"\\ud800"}', '"x"', "{"),
    ],
)
async def test_a_scribble_in_a_jobs_record_hides_neither_the_job_nor_its_page(desk, api, record):
    [scribbled, other] = await scheduled(desk, [DUE_MS, DUE_MS + 1])
    of = desk.keys.queue(QUEUE)
    await desk.redis.hset(of.trouble, scribbled[-36:], record)
    await desk.redis.hset(of.moved, scribbled[-36:], "scribble")
    job = await get(api, f"/v1/jobs/{scribbled}")
    assert (job["attempts"], job["expiries"], job["due"]) == (0, 0, rfc3339(DUE_MS))
    assert names((await get(api, f"{AT}/{QUEUE}/jobs", state="delayed"))["jobs"]) == [scribbled, other]


async def test_a_huge_limit_is_a_page_like_any_other(desk, api):
    """It must not be possible to ask Redis for everything."""
    await scheduled(desk, [DUE_MS + n for n in range(1001)])
    page = await get(api, f"{AT}/{QUEUE}/jobs", state="delayed", limit=10**9)
    assert len(page["jobs"]) == 1000
    assert page["next"] is not None


async def test_looking_writes_nothing(desk, api):
    """Guarantee 9."""
    await desk.enqueue()
    before = await written(desk)
    await get(api, AT)
    await get(api, f"{AT}/{QUEUE}")
    await get(api, f"{AT}/{QUEUE}/jobs", state="delayed")
    assert await written(desk) == before


async def written(desk: Desk) -> dict[str, bytes]:
    return {key.decode(): await desk.redis.dump(key) for key in await desk.redis.keys("*")}


# ---- queues ----------------------------------------------------------------------------------------------------------


async def test_queues_are_listed_with_their_figures(desk, api):
    await desk.enqueue(queue="a")
    await desk.enqueue(queue="b")
    await desk.ledger.pause("b")
    page = await get(api, AT)
    assert page["next"] is None
    shown = {queue["queue"]: queue for queue in page["queues"]}
    assert shown == {name: await get(api, f"{AT}/{name}") for name in ("a", "b")}
    assert (shown["a"]["future"], shown["a"]["paused"], shown["b"]["paused"]) == (1, False, True)


async def test_pages_of_queues_pass_nobody_over_while_the_index_moves(desk, api):
    """A queue's place in the index is when it next needs a look, which changes all the time."""
    queues = [f"q{n}" for n in range(700)]
    await asyncio.gather(*(desk.enqueue(queue=queue) for queue in queues))
    seen: set[str] = set()
    cursor = {}
    while True:
        page = await get(api, AT, limit=50, **cursor)
        seen |= {queue["queue"] for queue in page["queues"]}
        await desk.redis.zadd(desk.keys.queues, {queue: n for n, queue in enumerate(reversed(queues[:100]))}, xx=True)
        if page["next"] is None:
            break
        cursor = {"cursor": page["next"]}
    assert seen == set(queues)


async def test_one_queue_with_a_key_of_another_type_hides_no_other(desk, api):
    await desk.enqueue(queue="good")
    await desk.enqueue(queue="bad")
    await desk.redis.set(desk.keys.queue("bad").dead, "text")
    shown = {queue["queue"]: queue for queue in (await get(api, AT))["queues"]}
    assert shown["good"]["future"] == 1
    assert "WRONGTYPE" in shown["bad"]["error"]
    await told(await api.get(f"{AT}/bad"), 500)


@pytest.mark.parametrize("cursor", ["x", "-1", "1.5", str(2**64), "9" * 21])
async def test_a_bad_cursor_of_queues_gets_a_clear_problem(desk, api, cursor):
    problem = await told(await api.get(AT, params={"cursor": cursor}), 422)
    assert problem["type"] == "urn:coatcheck:invalid-query"


# ---- pause and resume ------------------------------------------------------------------------------------------------


async def test_a_paused_queue_keeps_its_due_jobs_until_it_is_resumed(desk, api):
    answer = await told(await api.post(f"{AT}/{QUEUE}/pause"))
    assert answer == {"queue": QUEUE, "paused": True, "changed": True}
    assert (await told(await api.post(f"{AT}/{QUEUE}/pause")))["changed"] is False
    await desk.enqueue(due="2020-01-01T00:00:00Z")
    assert await desk.deliver_inline() == 0
    answer = await told(await api.post(f"{AT}/{QUEUE}/resume"))
    assert answer == {"queue": QUEUE, "paused": False, "changed": True}
    assert (await told(await api.post(f"{AT}/{QUEUE}/resume")))["changed"] is False
    assert await desk.deliver_inline() == 1


@pytest.mark.parametrize("call", ["pause", "resume", "dead/revive", "dead/purge"])
async def test_what_takes_neither_times_nor_parameters_says_so(desk, api, call):
    """`pause?delay=1h` does not mean what who sends it may hope; and to speak of times would lead others astray."""
    problem = await told(await api.post(f"{AT}/{QUEUE}/{call}?delay=1h", json={"all": True}), 422)
    assert problem["type"] == "urn:coatcheck:invalid-query"
    assert await desk.redis.keys("*") == []


@pytest.mark.parametrize("call", ["pause", "resume", "dead/revive", "dead/purge"])
async def test_a_queue_that_cannot_be_is_refused_everywhere(desk, api, call):
    problem = await told(await api.post(f"{AT}/a::b/{call}", json={"all": True}), 422)
    assert problem["type"] == "urn:coatcheck:invalid-queue"
