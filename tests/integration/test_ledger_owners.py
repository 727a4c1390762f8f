"""What owners and operators do to a job: cancel, reschedule, look up, revive, purge, pause."""

import pytest

from service.records import Delivery, Failure, Job
from storage_backends.reference import Reference, new_uuid
from tests.kit.ledgers import LEASE_MS, QUEUE, T0

NEVER = Reference("s3", QUEUE, T0, new_uuid())


# ---- cancel ----------------------------------------------------------------------------------------------------------


async def test_a_cancelled_inline_job_is_gone_without_a_trace(rig):
    job = await rig.inline()
    assert await rig.ledger.cancel(job) == "cancelled"
    assert (await rig.claim()).took == 0
    await rig.nothing_left()


@pytest.mark.parametrize("leased", [False, True])
async def test_a_cancelled_offloaded_job_is_never_delivered_and_its_object_is_trash(rig, leased):
    """Also when it was in a dispatcher's hands: the dispatcher finds its lease gone."""
    job = await rig.offloaded()
    held = (await rig.claim()).leased if leased else []
    assert await rig.ledger.cancel(job) == "cancelled"
    assert await rig.where(job) == {"trash"}
    assert (await rig.deliver(*held)).outcomes == [Delivery.GONE] * len(held)
    assert await rig.ready() == []


async def test_cancelling_again_gives_the_same_answer(rig):
    """A DELETE whose answer was lost is repeated."""
    job = await rig.offloaded()
    assert [await rig.ledger.cancel(job) for _ in range(3)] == ["cancelled"] * 3
    assert await rig.ledger.cancel(NEVER) == await rig.ledger.cancel(NEVER) == "gone"


async def test_a_delivered_job_is_gone_however_often_one_asks(rig):
    """The marker that the first DELETE left must not make the second one say `cancelled`."""
    job = await rig.inline()
    await rig.claim()
    assert [await rig.ledger.cancel(job) for _ in range(2)] == ["gone", "gone"]


async def test_a_dead_job_is_not_cancelled_but_purged(rig):
    job = await rig.dead()
    assert await rig.ledger.cancel(job) == "dead"
    assert await rig.where(job) == {"dead"}
    assert await rig.ledger.purge(QUEUE, [str(job)]) == 1
    assert await rig.ledger.cancel(job) == "gone"


async def test_cancelling_clears_records_and_moves(rig):
    job = await rig.leased()
    await rig.ledger.retry(QUEUE, [Failure(job, "timeout", charged=True)], max_attempts=8)
    await rig.ledger.reschedule(job.reference, T0 + 10**6)
    await rig.ledger.cancel(job.reference)
    await rig.ledger.empty_trash(QUEUE, [str(job.reference)])
    await rig.nothing_left()


# ---- reschedule ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("due_ms", [T0 - 5, T0, T0 + 10**9])
async def test_a_rescheduled_job_is_due_when_the_owner_says(rig, due_ms):
    """The reference, which is the job's public id, stays as it is."""
    job = await rig.inline(due_ms=T0 + 1_000)
    assert await rig.ledger.reschedule(job, due_ms) == "delayed"
    assert await rig.score("delayed", job) == due_ms
    rig.now_ms = max(T0, due_ms - 1)
    assert (await rig.claim()).moved == (due_ms <= T0)
    rig.now_ms = max(T0, due_ms)
    claimed = await rig.claim()
    assert claimed.moved == (due_ms > T0)
    await rig.nothing_left()


async def test_rescheduling_takes_a_job_out_of_a_dispatchers_hands(rig):
    """`Run now` on a job that hangs in a fetch starts it afresh, and what it was charged with stays."""
    job = await rig.leased()
    await rig.ledger.retry(QUEUE, [Failure(job, "timeout", charged=True)], max_attempts=8)
    rig.now_ms += 10_000
    [job] = (await rig.claim()).leased
    assert await rig.ledger.reschedule(job.reference, T0 + 5_000) == "delayed"
    assert (await rig.deliver(job)).outcomes == [Delivery.GONE]
    found = await rig.ledger.lookup(job.reference)
    assert found is not None
    assert (found.state, found.due_ms, found.attempts) == ("delayed", T0 + 5_000, 1)


async def test_a_moved_job_is_reclaimed_and_released_to_where_it_was_moved(rig):
    job = await rig.offloaded()
    await rig.ledger.reschedule(job, T0 - 100)
    [leased] = (await rig.claim()).leased
    assert leased.due_ms == T0 - 100
    await rig.ledger.release(QUEUE, [leased])
    assert await rig.score("delayed", job) == T0 - 100
    await rig.claim()
    rig.now_ms += 2 * LEASE_MS
    await rig.ledger.reclaim(QUEUE)
    assert await rig.score("delayed", job) == T0 - 100


async def test_jobs_that_are_not_there_are_not_rescheduled(rig):
    dead, delivered = await rig.dead(), await rig.inline()
    await rig.claim()
    assert await rig.ledger.reschedule(dead, T0) == "dead"
    assert await rig.ledger.reschedule(delivered, T0) == "gone"
    assert await rig.ledger.reschedule(NEVER, T0) == "gone"
    assert (await rig.dump()).delayed == {}


@pytest.mark.parametrize(("to_ms", "heard"), [(T0 + 5, True), (T0 + 50, False)])
async def test_an_earlier_head_wakes_the_loop(rig, to_ms, heard):
    await rig.inline(due_ms=T0 + 10)
    job = await rig.inline(due_ms=T0 + 100)
    async with rig.redis.pubsub() as listener:
        await listener.subscribe(rig.keys.wake)
        await listener.get_message(timeout=5)
        await rig.ledger.reschedule(job, to_ms)
        message = await listener.get_message(timeout=5 if heard else 0.01)
        assert (message and message["data"]) == (f"{to_ms} {QUEUE}".encode() if heard else None)


# ---- lookup ----------------------------------------------------------------------------------------------------------


async def test_a_job_is_found_wherever_it_is(rig):
    delayed = await rig.offloaded(due_ms=T0 + 7)
    leased, dead = (await rig.leased()).reference, await rig.dead("payload_corrupt")
    states = {name: await rig.ledger.lookup(job) for name, job in (("d", delayed), ("l", leased), ("x", dead))}
    assert states == {
        "d": Job(delayed, "delayed", T0 + 7, T0 + 7, 0, 0, None, None, None),
        "l": Job(leased, "leased", T0, None, 0, 0, None, None, None),
        "x": Job(dead, "dead", T0, None, 0, 0, "payload_corrupt", "payload_corrupt", T0),
    }
    assert await rig.ledger.lookup(NEVER) is None


async def test_the_due_time_that_owners_see_is_never_a_retrys(rig):
    job = await rig.leased()
    [retried] = await rig.ledger.retry(QUEUE, [Failure(job, "timeout", charged=True)], max_attempts=8)
    found = await rig.ledger.lookup(job.reference)
    assert found is not None
    assert (found.due_ms, found.next_attempt_ms) == (T0, retried.next_attempt_ms)


@pytest.mark.parametrize("record", ["{", "[]", "7", '{"attempts": null}', '{"attempts": "many"}'])
async def test_a_record_that_somebody_spoilt_does_not_hide_the_job(rig, record):
    job = await rig.offloaded()
    await rig.redis.hset(rig.keys.queue(QUEUE).trouble, job.uuid, record)
    found = await rig.ledger.lookup(job)
    assert found is not None
    assert found.attempts == 0


# ---- the dead --------------------------------------------------------------------------------------------------------


async def test_a_revived_job_is_due_now_with_a_clean_record(rig):
    """Its lateness counts from now, too: it was not late all the time that it was dead."""
    job = await rig.dead()
    rig.now_ms += 10**6
    assert await rig.ledger.revive(QUEUE, [str(job), str(NEVER), "junk"]) == 1
    assert await rig.record(job) == {}
    [leased] = (await rig.claim()).leased
    assert (leased.reference, leased.due_ms) == (job, rig.now_ms)


async def test_reviving_twice_is_reviving_once(rig):
    job = await rig.dead()
    assert [await rig.ledger.revive(QUEUE, [str(job)]) for _ in range(2)] == [1, 0]
    assert await rig.where(job) == {"delayed"}


async def test_an_inline_job_without_its_body_can_be_revived_and_dies_again(rig):
    job = await rig.inline()
    await rig.redis.delete(rig.keys.queue(QUEUE).bodies)
    assert len((await rig.claim()).buried) == 1
    assert await rig.ledger.revive(QUEUE, [str(job)]) == 1
    [buried] = (await rig.claim()).buried
    assert (buried.member, buried.reason) == (str(job), "payload_missing")


async def test_a_purged_jobs_payload_is_deleted_and_only_then(rig):
    job = await rig.dead()
    assert await rig.where(job) == {"dead"}
    assert [await rig.ledger.purge(QUEUE, [str(job), str(NEVER)]) for _ in range(2)] == [1, 0]
    assert await rig.where(job) == {"trash"}
    assert await rig.ledger.empty_trash(QUEUE, [str(job)]) == 1
    await rig.nothing_left()


async def test_purging_takes_an_inline_body_along(rig):
    """However an inline job came to be dead, nothing of it stays."""
    job = await rig.inline()
    of = rig.keys.queue(QUEUE)
    rig.transport.after = None
    await rig.redis.zrem(of.delayed, str(job))
    await rig.redis.zadd(of.dead, {str(job): T0})
    assert await rig.ledger.purge(QUEUE, [str(job)]) == 1
    await rig.nothing_left()


async def test_only_dead_jobs_are_purged_or_revived(rig):
    delayed, leased = await rig.inline(due_ms=T0 + 10**6), (await rig.leased()).reference
    for operation in (rig.ledger.purge, rig.ledger.revive):
        assert await operation(QUEUE, [str(delayed), str(leased)]) == 0
    assert [await rig.where(job) for job in (delayed, leased)] == [{"delayed"}, {"leases"}]


async def dead_inline(rig, sizes: list[int]) -> list[str]:
    """Inline jobs die of a hand alone, or of what a later version may bring."""
    rig.transport.after = None
    jobs = [str(await rig.inline(bytes(size))) for size in sizes]
    of = rig.keys.queue(QUEUE)
    await rig.redis.rename(of.delayed, of.dead)
    await rig.ledger.repair([QUEUE])
    return jobs


async def scripts_run(rig) -> int:
    return (await rig.redis.info("commandstats"))["cmdstat_evalsha"]["calls"]


@pytest.mark.parametrize(
    ("mebibytes", "calls"),
    [([1] * 70, 3), ([40, 40, 0, 0], 3), ([20, 20, 12], 2), ([0] * 50, 1)],
    ids=["many", "each beyond the limit", "up to the limit", "small"],
)
async def test_a_purge_frees_no_more_bytes_in_a_call_than_redis_can_spare_the_time_for(rig, mebibytes, calls):
    """A thousand bodies of 1 MiB held Redis for 110 ms. It goes on with the rest, and always takes at least one."""
    jobs = await dead_inline(rig, [each * 2**20 for each in mebibytes])
    before = await scripts_run(rig)
    assert await rig.ledger.purge(QUEUE, jobs) == len(jobs)
    assert await scripts_run(rig) - before in (calls, calls + 1)  # the server may not know the script yet
    await rig.nothing_left()


async def test_the_longest_dead_are_listed_first(rig):
    jobs = []
    for _ in range(3):
        jobs.append(str(await rig.dead()))
        rig.now_ms += 1
    assert await rig.members("dead") == jobs


# ---- pause -----------------------------------------------------------------------------------------------------------


async def test_pausing_and_resuming_say_whether_they_changed_anything(rig):
    answers = [await call(QUEUE) for call in (rig.ledger.pause, rig.ledger.pause, rig.ledger.resume, rig.ledger.resume)]
    assert answers == [True, False, True, False]
    await rig.nothing_left()


async def test_a_paused_queue_accepts_and_stays_in_the_index(rig):
    """Forgotten there, it would wait for the slow pass after it is resumed."""
    await rig.ledger.pause(QUEUE)
    await rig.inline()
    assert (await rig.dump()).look == float("inf")
    assert (await rig.ledger.due(10)).queues == []
    async with rig.redis.pubsub() as listener:
        await listener.subscribe(rig.keys.wake)
        await listener.get_message(timeout=5)
        await rig.ledger.resume(QUEUE)
        assert await listener.get_message(timeout=5) is not None
    assert (await rig.ledger.due(10)).queues == [(QUEUE, T0)]
