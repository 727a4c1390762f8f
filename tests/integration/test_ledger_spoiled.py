"""Somebody's hand in our keys: a key of another type, a record or a time that is none. No transition loses a job.

A script is not rolled back. An error after its first write would leave a job in no set, or pushed and still leased; so
each transition is done with each key spoilt in turn. It may be refused, and may have happened; nothing between.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from redis.exceptions import ResponseError

from service.records import Failure, Leased
from storage_backends.reference import Reference
from tests.kit.ledgers import LEASE_MS, QUEUE, T0, Rig

#: Of the queue, in addition to the index; `cancelled` and `idempotency` are markers of one job each.
KEYS = ("delayed", "bodies", "leases", "ready", "dead", "trash", "trouble", "moved", "paused")
KEY = "order-1"

#: A setting puts a job where a transition finds it. It returns the job's member, and the transition.
Do = Callable[[], Awaitable[object]]
Setting = Callable[[Rig], Awaitable[tuple[str, Do]]]


class Spoilt:
    """While it lasts, `key` is of a type that it should not be."""

    def __init__(self, rig: Rig, key: str) -> None:
        self._redis, self._key, self._aside = rig.redis, key, f"aside:{key}"

    async def __aenter__(self) -> None:
        if await self._redis.exists(self._key):
            await self._redis.rename(self._key, self._aside)
        await self._redis.xadd(self._key, {"a": "hand"})  # no type of ours

    async def __aexit__(self, *_: object) -> None:
        await self._redis.delete(self._key)
        if await self._redis.exists(self._aside):
            await self._redis.rename(self._aside, self._key)


# ---- where transitions start -----------------------------------------------------------------------------------------


async def troubled(rig: Rig, *, attempts: int = 1, moved: bool = True) -> Leased:
    """A leased job that failed before and was rescheduled: it has something in every hash."""
    job = await rig.leased()
    for _ in range(attempts):
        await rig.ledger.retry(QUEUE, [Failure(job, "timeout", charged=True)], max_attempts=99)
        if moved:
            await rig.ledger.reschedule(job.reference, rig.now_ms)
        rig.now_ms += 10**6
        [job] = (await rig.claim()).leased
    return job


async def claim_inline(rig: Rig) -> tuple[str, Do]:
    return str(await rig.inline()), rig.claim


async def claim_offloaded(rig: Rig) -> tuple[str, Do]:
    job = await troubled(rig)
    await rig.ledger.release(QUEUE, [job])
    return str(job.reference), rig.claim


async def claim_without_body(rig: Rig) -> tuple[str, Do]:
    job = await rig.inline()
    await rig.redis.delete(rig.keys.queue(QUEUE).bodies)
    return str(job), rig.claim


async def claim_junk(rig: Rig) -> tuple[str, Do]:
    await rig.inline(due_ms=T0 + 10**9)
    await rig.redis.zadd(rig.keys.queue(QUEUE).delayed, {"junk": T0})
    await rig.ledger.repair([QUEUE])
    return "junk", rig.claim


async def put_back(rig: Rig) -> tuple[str, Do]:
    return str(await rig.offloaded()), lambda: rig.claim(shares={})


async def deliver(rig: Rig) -> tuple[str, Do]:
    job = await troubled(rig)
    return str(job.reference), lambda: rig.deliver(job)


async def extend(rig: Rig) -> tuple[str, Do]:
    job = await troubled(rig)
    return str(job.reference), lambda: rig.ledger.extend(QUEUE, [job], LEASE_MS)


async def retry(rig: Rig) -> tuple[str, Do]:
    job = await troubled(rig)
    return str(job.reference), lambda: rig.ledger.retry(QUEUE, [Failure(job, "x", charged=True)], max_attempts=8)


async def retry_the_last_time(rig: Rig) -> tuple[str, Do]:
    job = await troubled(rig)
    return str(job.reference), lambda: rig.ledger.retry(QUEUE, [Failure(job, "x", charged=True)], max_attempts=1)


async def release(rig: Rig) -> tuple[str, Do]:
    job = await troubled(rig)
    return str(job.reference), lambda: rig.ledger.release(QUEUE, [job])


async def bury(rig: Rig) -> tuple[str, Do]:
    job = await troubled(rig)
    return str(job.reference), lambda: rig.ledger.bury(QUEUE, [(job, "payload_missing")])


async def reclaim(rig: Rig) -> tuple[str, Do]:
    job = await troubled(rig)
    rig.now_ms += 10**6
    return str(job.reference), lambda: rig.ledger.reclaim(QUEUE)


async def reclaim_the_last_time(rig: Rig) -> tuple[str, Do]:
    rig.ledger._max_expiries = 1
    return await reclaim(rig)


async def cancel_inline(rig: Rig) -> tuple[str, Do]:
    job = await rig.inline()
    return str(job), lambda: rig.ledger.cancel(job)


async def cancel_leased(rig: Rig) -> tuple[str, Do]:
    job = (await troubled(rig)).reference
    return str(job), lambda: rig.ledger.cancel(job)


async def reschedule(rig: Rig) -> tuple[str, Do]:
    job = await rig.inline()
    return str(job), lambda: rig.ledger.reschedule(job, T0 + 5)


async def reschedule_leased(rig: Rig) -> tuple[str, Do]:
    job = (await troubled(rig)).reference
    return str(job), lambda: rig.ledger.reschedule(job, T0 + 5)


async def revive(rig: Rig) -> tuple[str, Do]:
    job = str(await rig.dead())
    return job, lambda: rig.ledger.revive(QUEUE, [job])


async def purge(rig: Rig) -> tuple[str, Do]:
    job = str(await rig.dead())
    return job, lambda: rig.ledger.purge(QUEUE, [job])


async def purge_inline(rig: Rig) -> tuple[str, Do]:
    job = str(await rig.inline())
    of = rig.keys.queue(QUEUE)
    await rig.redis.zrem(of.delayed, job)
    await rig.redis.zadd(of.dead, {job: T0})
    await rig.ledger.repair([QUEUE])
    return job, lambda: rig.ledger.purge(QUEUE, [job])


SETTINGS: tuple[Setting, ...] = (
    claim_inline, claim_offloaded, claim_without_body, claim_junk, put_back, deliver, extend, retry,
    retry_the_last_time, release, bury, reclaim, reclaim_the_last_time, cancel_inline, cancel_leased, reschedule,
    reschedule_leased, revive, purge, purge_inline,
)  # fmt: skip  # one line each would be a page of names
ENDING = {"cancel_inline", "cancel_leased", "purge", "purge_inline"}


# ---- keys of another type --------------------------------------------------------------------------------------------


async def living(rig: Rig, member: str) -> list[str]:
    """The sets of living jobs that hold it."""
    dump = await rig.dump()
    sets = {"delayed": dump.delayed, "leases": dump.leases, "dead": dump.dead}
    return [name for name, members in sets.items() if member.encode() in members]


@pytest.mark.parametrize("spoilt", ["queues", "cancelled", *KEYS])
@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.__name__)
async def test_a_key_of_another_type_loses_no_job_and_delivers_none_twice(rig, setting, spoilt):
    """Where it is, where it was to go, or ended in its way; and pushed if and only if it left."""
    rig.transport.after = None  # half of what it looks at is spoilt
    member, do = await setting(rig)
    of = rig.keys.queue(QUEUE)
    shared = {"queues": rig.keys.queues, "cancelled": of.cancelled(member[-36:])}
    done = False
    async with Spoilt(rig, shared.get(spoilt) or getattr(of, spoilt)):
        with suppress(ResponseError):
            await do()
            done = True
    pushed = len(await rig.ready())
    ended = pushed == 1 or (done and setting.__name__ in ENDING)
    assert len(await living(rig, member)) == (0 if ended else 1)
    await rig.ledger.repair([QUEUE])  # a spoilt `paused` paused, and nobody resumed
    await rig.check()


@pytest.mark.parametrize("spoilt", ["queues", "idempotency", *KEYS])
@pytest.mark.parametrize("body", [b"payload", None], ids=["inline", "offloaded"])
async def test_a_key_of_another_type_accepts_no_job_by_half(rig, body, spoilt):
    """An idempotency key that names a job which was never written would answer its repetition with a false success."""
    rig.transport.after = None
    first, second = (rig.entry(body, due_ms=T0 + 10**6, key=key) for key in ("order-0", KEY))
    of = rig.keys.queue(QUEUE)
    shared = {"queues": rig.keys.queues, "idempotency": of.idempotency(None, KEY)}
    async with Spoilt(rig, shared.get(spoilt) or getattr(of, spoilt)):
        with suppress(ResponseError):
            await rig.ledger.schedule(QUEUE, [first, second])
    await rig.ledger.schedule(QUEUE, [first, second])
    assert [await rig.where(entry.reference) for entry in (first, second)] == [{"delayed"}] * 2
    assert len((await rig.dump()).bodies) == (3 if body else 0)
    await rig.ledger.repair([QUEUE])
    await rig.check()


# ---- records and times that are none ---------------------------------------------------------------------------------

RECORDS = (
    '{"attempts":0,"x":1e999}',
    '{"attempts":1e999,"expiries":-1e999,"error":{"x":1e999}}',
    '{"attempts":"nan","expiries":"many"}',
    "[1,2",
    "7",
)


@pytest.mark.parametrize("record", RECORDS)
@pytest.mark.parametrize("setting", [retry, retry_the_last_time, bury, reclaim, reclaim_the_last_time])
async def test_a_record_that_json_cannot_say_loses_no_job(rig, setting, record):
    """Lua reads 1e999 as infinity and refuses to write it: known only when the lease was gone."""
    member, do = await setting(rig)
    await rig.redis.hset(rig.keys.queue(QUEUE).trouble, member[-36:], record)
    await do()
    assert await living(rig, member) in (["delayed"], ["dead"])
    assert set(await rig.record(Reference.parse(member))) <= {"attempts", "expiries", "error", "reason", "at"}


@pytest.mark.parametrize("scribble", ["soon", "nan", "inf", "-inf", "1e300"])
@pytest.mark.parametrize("setting", [claim_offloaded, deliver, release, reclaim, put_back])
async def test_a_due_that_is_no_time_loses_no_job(rig, setting, scribble):
    """The time in its reference counts then."""
    member, do = await setting(rig)
    await rig.redis.hset(rig.keys.queue(QUEUE).moved, member[-36:], scribble)
    await do()
    assert len(await living(rig, member)) + len(await rig.ready()) == 1


@pytest.mark.parametrize("scribble", ["soon", "nan", "inf", "-inf", "1e300"])
async def test_a_due_that_is_no_time_leaves_lateness_a_number(rig, scribble):
    """Else the claim's answer could not be read, and the leases in it would be nobody's."""
    job = await rig.inline(due_ms=T0 - 7)
    await rig.redis.hset(rig.keys.queue(QUEUE).moved, job.uuid, scribble)
    claimed = await rig.claim()
    assert (claimed.moved, claimed.lateness_sum_ms) == (1, 7)


async def test_a_record_that_is_no_text_hides_no_job_from_whoever_looks_it_up(rig):
    job = await rig.dead()
    await rig.redis.hset(rig.keys.queue(QUEUE).trouble, job.uuid, b"\xff")
    found = await rig.ledger.lookup(job)
    assert (found.state, found.attempts, found.error) == ("dead", 0, None)
