"""Redis at `maxmemory`: accepting is refused as a whole, and all that moves or frees goes on (guarantee 10)."""

from contextlib import suppress

import pytest
from redis.exceptions import OutOfMemoryError

from service.errors import RedisFull
from service.records import Delivery, Failure
from tests.kit.ledgers import QUEUE, rigged
from tests.kit.waiting import eventually

MAXMEMORY = 32 * 2**20
DELIVERED, NO_ROOM = Delivery.DELIVERED, Delivery.NO_ROOM


@pytest.fixture
async def rig(own_redis):
    server = own_redis(maxmemory=MAXMEMORY)
    async with rigged(server.url) as rig:
        yield rig


async def fill(rig, *, beyond: float = 0.02) -> None:
    """Until Redis takes nothing more, then by a share beyond `maxmemory`: what it frees by itself must not matter."""
    with suppress(OutOfMemoryError):
        while True:
            await rig.redis.rpush("somebody-elses", bytes(200_000))
    used = int((await rig.redis.info("memory"))["used_memory"])
    await rig.redis.config_set("maxmemory", int(used / (1 + beyond)))


async def empty(rig) -> None:
    """Valkey frees what is deleted in the background: there is room when it has."""
    await rig.redis.delete("somebody-elses")
    await rig.redis.config_set("maxmemory", MAXMEMORY)

    async def has_room() -> bool:
        return int((await rig.redis.info("memory"))["used_memory"]) < MAXMEMORY // 2

    await eventually(has_room, described="Redis has room again")


# ---- accepting -------------------------------------------------------------------------------------------------------


async def test_accepting_is_refused_and_leaves_nothing(rig):
    """A script that Redis stopped half-way would leave a body without its reference, or the other way round."""
    await fill(rig)
    entries = [rig.entry(bytes(1_000)), rig.entry(None), rig.entry(key="a")]
    answers = await rig.ledger.schedule(QUEUE, entries)
    assert [type(answer) for answer in answers] == [RedisFull] * 3
    await rig.nothing_left()
    assert await rig.redis.keys("*idempotency*") == []
    await empty(rig)
    assert [answer.outcome for answer in await rig.ledger.schedule(QUEUE, entries)] == ["scheduled"] * 3


async def test_a_batch_is_answered_job_by_job_when_redis_fills_up_on_the_way(rig):
    """What was accepted before stays accepted."""
    rig.transport.after = None
    answers = await rig.ledger.schedule(QUEUE, [rig.entry(bytes(700_000)) for _ in range(60)])
    kinds = [type(answer).__name__ for answer in answers]
    accepted = kinds.count("Scheduled")
    assert 0 < accepted < 60
    assert kinds == ["Scheduled"] * accepted + ["RedisFull"] * (60 - accepted)
    assert len((await rig.dump()).delayed) == accepted
    await rig.check()


# ---- moving and freeing ----------------------------------------------------------------------------------------------


async def test_due_inline_jobs_flow(rig):
    """They only move inside Redis; were they held back, nothing would ever become free."""
    for _ in range(50):
        await rig.inline(bytes(10_000))
    await fill(rig, beyond=0.2)
    assert (await rig.claim()).moved == 50


async def test_jobs_can_be_leased_cancelled_moved_retried_buried_reclaimed_and_purged(rig):
    """None of them brings bytes in."""
    jobs = [await rig.offloaded() for _ in range(8)]
    later = await rig.inline(due_ms=rig.now_ms + 10**9)
    await fill(rig, beyond=0.2)
    leased = (await rig.claim(batch=7)).leased
    assert len(leased) == 7
    ledger = rig.ledger
    assert await ledger.cancel(jobs[7]) == "cancelled"
    assert await ledger.cancel(later) == "cancelled"
    assert await ledger.cancel(leased[0].reference) == "cancelled"
    assert await ledger.reschedule(leased[1].reference, rig.now_ms + 10**8) == "delayed"
    [retried] = await ledger.retry(QUEUE, [Failure(leased[2], "timeout", charged=True)], max_attempts=8)
    assert retried.state == "delayed"
    assert await ledger.bury(QUEUE, [(leased[3], "payload_missing")]) == [True]
    assert await ledger.release(QUEUE, [leased[4]]) == 1
    assert (await ledger.extend(QUEUE, [leased[5]], 60_000))[0] is not None
    assert await ledger.revive(QUEUE, [str(leased[3].reference)]) == 1
    assert await ledger.pause(QUEUE)
    assert await ledger.resume(QUEUE)
    rig.now_ms += 10**6
    assert len(await ledger.reclaim(QUEUE)) == 2
    dead = (await rig.claim()).leased[0]
    assert await ledger.bury(QUEUE, [(dead, "payload_missing")]) == [True]
    assert await ledger.purge(QUEUE, [str(dead.reference)]) == 1
    assert await ledger.empty_trash(QUEUE, await ledger.collect_trash(QUEUE, 100, put_off_ms=1)) == 3


# ---- bringing payloads in --------------------------------------------------------------------------------------------


async def leased(rig, count: int) -> list:
    rig.transport.after = None
    await rig.ledger.schedule(QUEUE, [rig.entry(None) for _ in range(count)])
    return list((await rig.claim(batch=1_000)).leased)


async def outcomes(rig, jobs, payload: bytes) -> list[Delivery]:
    return list((await rig.deliver(*jobs, payload=payload)).outcomes)


async def test_a_ready_queue_of_fewer_than_a_hundred_still_takes_offloaded_payloads(rig):
    """Its consumers must not starve; but what is fetched must not fill Redis without bound either."""
    jobs = await leased(rig, 150)
    await fill(rig)
    assert await outcomes(rig, jobs, b"small") == [DELIVERED] * 100 + [NO_ROOM] * 50
    assert len((await rig.dump()).leases) == 50
    await rig.redis.rpop(rig.keys.queue(QUEUE).ready, 10)
    assert await outcomes(rig, jobs[100:], b"small") == [DELIVERED] * 10 + [NO_ROOM] * 40
    await rig.check()


async def test_a_ready_queue_of_eight_mebibytes_takes_no_more(own_redis):
    """As Redis weighs it: the allocator's rounding counts."""
    server = own_redis(maxmemory=300 * 2**20)
    async with rigged(server.url) as rig:
        jobs = await leased(rig, 12)
        await fill(rig)
        delivered = (await outcomes(rig, jobs, bytes(2**20))).count(DELIVERED)
        assert 6 <= delivered <= 8
        weight = await rig.redis.memory_usage(rig.keys.queue(QUEUE).ready)
        assert 8 * 2**20 <= weight < 8 * 2**20 + 2 * 2**20


async def test_a_redis_a_tenth_beyond_its_limit_takes_nothing(rig):
    """The overdraft ends before the machine's memory does."""
    jobs = await leased(rig, 2)
    await fill(rig, beyond=0.11)
    assert await outcomes(rig, jobs, b"small") == [NO_ROOM] * 2
    assert set(await rig.where(jobs[0].reference)) == {"leases"}
    await empty(rig)
    assert await outcomes(rig, jobs, b"small") == [DELIVERED] * 2


async def test_with_room_there_is_no_limit_to_what_is_delivered(rig):
    jobs = await leased(rig, 300)
    assert await outcomes(rig, jobs, b"small") == [DELIVERED] * 300


async def test_what_is_delivered_although_redis_is_full_is_told_apart(own_redis):
    """Who looks at the metrics must see that the reserve is in use before it is used up."""
    told: list[tuple[str, int]] = []
    server = own_redis(maxmemory=100 * 2**20)
    async with rigged(server.url, overdraft_jobs=2, on_overdraft=lambda *each: told.append(each)) as rig:
        jobs = await leased(rig, 4)
        await outcomes(rig, jobs[:1], b"small")
        assert told == []
        await fill(rig)
        assert await outcomes(rig, jobs[1:], b"small") == [DELIVERED, NO_ROOM, NO_ROOM]
        assert told == [(QUEUE, 1)]


async def test_an_unusable_ready_key_is_told_from_a_full_redis(rig):
    jobs = await leased(rig, 1)
    await rig.redis.set(rig.keys.queue(QUEUE).ready, "not a list")
    await fill(rig)
    assert await outcomes(rig, jobs, b"small") == [Delivery.UNUSABLE]
    assert await rig.where(jobs[0].reference) == {"delayed"}
