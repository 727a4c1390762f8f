"""HTTP about dead jobs: revive and purge, by reference and by reason, in steps that do not grow with the set."""

import json
from typing import Any

import httpx
import pytest

from service import dead
from service.records import ClaimRequest, Share
from storage_backends.base import PayloadMissing
from storage_backends.reference import new_uuid
from tests.kit.desk import LARGE, QUEUE, Desk

AT = f"/v1/queues/{QUEUE}/dead"


async def dead_jobs(desk: Desk, count: int, reason: str = "payload_missing") -> list[str]:
    """The longest dead first. Their payloads were never put: nobody asks for them."""
    members = [f"s3::{QUEUE}::1::{new_uuid()}" for _ in range(count)]
    await _bury(desk, members, reason)
    return members


async def _bury(desk: Desk, members: list[str], reason: str) -> None:
    of = desk.keys.queue(QUEUE)
    seconds, micros = await desk.redis.time()
    await desk.redis.zadd(of.dead, dict.fromkeys(members, seconds * 1000 + micros // 1000))
    await desk.redis.hset(of.trouble, mapping={member[-36:]: f'{{"reason":"{reason}"}}' for member in members})
    await desk.ledger.repair([QUEUE])


async def a_real_dead_job(desk: Desk, payload: bytes) -> str:
    job = await desk.enqueue(payload, due="2020-01-01T00:00:00Z")
    [leased] = (await desk.ledger.claim(QUEUE, ClaimRequest(1, 10, None, 60_000, {"*": Share(1)}))).leased
    assert await desk.ledger.bury(QUEUE, [(leased, "payload_missing")]) == [True]
    return str(job.reference)


async def post(api: httpx.AsyncClient, verb: str, **body: Any) -> dict[str, Any]:
    answer = await api.post(f"{AT}/{verb}", content=json.dumps(body))
    assert answer.status_code == 200, answer.text
    fields: dict[str, Any] = answer.json()
    return fields


async def members(desk: Desk, name: str) -> set[str]:
    key = getattr(desk.keys.queue(QUEUE), name)
    return {member.decode() for member in await desk.redis.zrange(key, 0, -1)}


async def test_a_revived_job_is_due_now_and_delivered(desk, api):
    reference = await a_real_dead_job(desk, LARGE)
    assert await post(api, "revive", references=[reference]) == {"done": 1, "left": 0}
    job = (await api.get(f"/v1/jobs/{reference}")).json()
    assert (job["state"], job["attempts"], job["reason"]) == ("delayed", 0, None)
    [leased] = (await desk.ledger.claim(QUEUE, ClaimRequest(1, 10, None, 60_000, {"*": Share(1)}))).leased
    assert str(leased.reference) == reference


async def test_a_purged_job_takes_its_payload_with_it(desk, api):
    reference = await a_real_dead_job(desk, LARGE)
    assert await post(api, "purge", references=[reference]) == {"done": 1, "left": 0}
    assert (await api.get(f"/v1/jobs/{reference}")).status_code == 404
    assert await members(desk, "trash") == {reference}


async def test_only_the_jobs_that_are_named_are_touched(desk, api):
    named, spared = await dead_jobs(desk, 1), await dead_jobs(desk, 2)
    alive = str((await desk.enqueue()).reference)
    assert await post(api, "purge", references=[*named, alive, "scribble"]) == {"done": 1, "left": 0}
    assert await members(desk, "dead") == set(spared)
    assert await members(desk, "delayed") == {alive}


async def test_what_cannot_be_revived_is_said_to_be_left(desk, api):
    """What is no reference has no payload to deliver; purging is all that can be done with it."""
    await desk.redis.zadd(desk.keys.queue(QUEUE).dead, {b"scribble \xff": 1})
    assert await post(api, "revive", references=["scribble \udcff"]) == {"done": 0, "left": 1}
    assert await post(api, "purge", references=["scribble \udcff"]) == {"done": 1, "left": 0}
    assert await members(desk, "dead") == set()


async def test_only_what_died_of_the_reason_is_touched(desk, api):
    corrupt = await dead_jobs(desk, 3, "payload_corrupt")
    missing = await dead_jobs(desk, 3)
    more = await dead_jobs(desk, 2, "payload_corrupt")
    assert await post(api, "revive", reason="payload_corrupt") == {"done": 5, "left": 0, "next": None}
    assert await members(desk, "delayed") == {*corrupt, *more}
    assert await members(desk, "dead") == set(missing)


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 7])
async def test_repeated_calls_come_to_an_end_and_forget_nobody(desk, api, limit):
    """A cursor, for otherwise what does not match would be read again and again, and hide what comes after it."""
    kept = await dead_jobs(desk, 5, "payload_corrupt")
    await dead_jobs(desk, 5)
    done, body = 0, {"reason": "payload_missing", "limit": limit}
    for _ in range(20):
        ended = await post(api, "purge", **body)
        done += ended["done"]
        assert ended["done"] <= limit
        if ended["next"] is None:
            break
        assert ended["left"] > 0
        body["cursor"] = ended["next"]
    assert (done, ended["left"]) == (5, 0)
    assert await members(desk, "dead") == set(kept)


async def test_one_call_looks_at_a_bounded_part_of_the_dead(desk, api, monkeypatch):
    """A reason that nobody died of, over a hundred thousand dead jobs, must not hold up Redis."""
    monkeypatch.setattr(dead, "_PAGE", 10)
    monkeypatch.setattr(dead, "_LOOKED_AT", 20)
    await dead_jobs(desk, 50)
    ended = await post(api, "purge", reason="payload_corrupt")
    assert (ended["done"], ended["left"]) == (0, 30)
    ended = await post(api, "purge", reason="payload_corrupt", cursor=ended["next"])
    assert (ended["done"], ended["left"]) == (0, 10)
    assert await post(api, "purge", reason="payload_corrupt", cursor=ended["next"]) == {
        "done": 0,
        "left": 0,
        "next": None,
    }


async def test_a_job_that_dies_again_is_not_revived_for_ever(desk, api):
    """Its payload is still missing: whoever revives all that died of it would go on for the rest of their life."""
    references = await dead_jobs(desk, 4)
    body: dict[str, Any] = {"all": True, "limit": 2}
    calls = 0
    while True:
        ended = await post(api, "revive", **body)
        calls += 1
        await _die_again(desk, await members(desk, "delayed"))
        if ended["next"] is None:
            break
        assert calls < 5
        body["cursor"] = ended["next"]
    assert await members(desk, "dead") == set(references)


async def _die_again(desk: Desk, members: set[str]) -> None:
    """As if a second had passed."""
    of, (seconds, _) = desk.keys.queue(QUEUE), await desk.redis.time()
    for member in members:
        await desk.redis.zrem(of.delayed, member)
        await desk.redis.zadd(of.dead, {member: (seconds + 1) * 1000})


async def test_both_are_counted_by_backend(desk, api):
    offloaded = await dead_jobs(desk, 2)
    inline = [f"redis::{QUEUE}::1::{new_uuid()}" for _ in range(3)]
    await _bury(desk, inline, "payload_missing")
    await post(api, "revive", references=[offloaded[0], inline[0]])
    await post(api, "purge", all=True)
    for backend, revived, purged in (("s3", 1, 1), ("redis", 1, 2)):
        labels = {"queue": QUEUE, "backend": backend}
        assert desk.counted("jobs_total", **dict(sorted(labels.items())), outcome="revived") == revived
        assert desk.counted("jobs_total", **dict(sorted(labels.items())), outcome="purged") == purged


async def test_an_empty_dead_set_is_no_error(desk, api):
    assert await post(api, "purge", all=True) == {"done": 0, "left": 0, "next": None}
    assert await post(api, "purge", references=[]) == {"done": 0, "left": 0}


@pytest.mark.parametrize(
    ("body", "type_"),
    [
        ("", "invalid-body"),
        ("[]", "invalid-body"),
        ("{}", "invalid-body"),
        ('{"all": false}', "invalid-body"),
        ('{"all": true, "reason": "payload_missing"}', "invalid-body"),
        ('{"reason": 1}', "invalid-body"),
        ('{"references": "x"}', "invalid-body"),
        ('{"references": [1]}', "invalid-body"),
        ('{"references": [], "limit": 1}', "invalid-body"),
        ('{"all": true, "limit": 0}', "invalid-body"),
        ('{"all": true, "limit": true}', "invalid-body"),
        ('{"all": true, "limit": 1.5}', "invalid-body"),
        ('{"all": true, "cursor": 1}', "invalid-body"),
        ('{"all": true, "cursor": "x"}', "invalid-query"),
        ('{"all": true, "cursor": "WyIxIiwiYSJd"}', "invalid-query"),
        ('{"all": true, "queue": "x"}', "invalid-body"),
        ('{"references": ["\\ud800"]}', "invalid-body"),
        ('{"references": [[["x"]]]}', "invalid-body"),
        ('{"reason": "\\udfff"}', "invalid-body"),
        ('{"all": true, "limit": 1e999}', "invalid-body"),
        ('{"all": true, "limit": ' + "[" * 900 + "]" * 900 + "}", "invalid-body"),
        ('{"references": [' + ",".join(['"x"'] * 1001) + "]}", "invalid-body"),
    ],
)
async def test_a_bad_body_gets_a_clear_problem_and_touches_nobody(desk, api, body, type_):
    """`{}` least of all may mean all."""
    references = await dead_jobs(desk, 2)
    for verb in ("revive", "purge"):
        answer = await api.post(f"{AT}/{verb}", content=body)
        assert (answer.status_code, answer.json()["type"]) == (422, f"urn:coatcheck:{type_}")
    assert await members(desk, "dead") == set(references)


async def test_payloads_of_revived_jobs_are_still_there(desk, api):
    """The dead set keeps payloads; only purging lets go of them."""
    reference = await a_real_dead_job(desk, LARGE)
    await post(api, "revive", all=True)
    assert (await api.get(f"/v1/jobs/{reference}/payload")).content == LARGE
    job = (await desk.delayed())[0]
    try:
        assert await desk.stored(job) == LARGE
    except PayloadMissing:
        pytest.fail("the payload went before its job")
