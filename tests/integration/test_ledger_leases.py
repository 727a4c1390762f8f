"""What happens to a job in a dispatcher's hands: deliver, extend, retry, release, bury, reclaim; and whose it is."""

import math
from dataclasses import replace

import pytest

from service.records import Delivery, Failure, Leased
from storage_backends.reference import Reference, new_uuid
from tests.kit.ledgers import LEASE_MS, QUEUE, T0, rigged

D, GONE, UNUSABLE = Delivery.DELIVERED, Delivery.GONE, Delivery.UNUSABLE


async def lose(rig, job: Leased) -> Leased:
    """The job as another dispatcher holds it, after the first one's lease ran out."""
    rig.now_ms = math.ceil(job.token)
    assert await rig.ledger.reclaim(QUEUE) == [(str(job.reference), "delayed")]
    rig.now_ms += 1
    [now_its] = (await rig.claim()).leased
    assert now_its.token != job.token
    return now_its


# ---- deliver ---------------------------------------------------------------------------------------------------------


async def test_a_delivered_jobs_payload_is_ready_and_its_object_is_trash(rig):
    """In one step: a crash between the two would deliver twice, or lose the object."""
    job = await rig.leased()
    assert (await rig.deliver(job, payload=b"fetched")).outcomes == [D]
    assert await rig.ready() == [b"fetched"]
    assert await rig.where(job.reference) == {"trash"}
    look = (await rig.dump()).look
    assert look is not None
    assert T0 < look <= T0 + 500  # deletions go twice a second, many in a request


async def test_a_job_is_delivered_once_whoever_holds_it(rig):
    job = await rig.leased()
    assert (await rig.deliver(job, job)).outcomes == [D, GONE]
    assert (await rig.deliver(job)).outcomes == [GONE]
    assert await rig.ready() == [b"payload"]


async def test_a_stale_dispatcher_may_deliver_while_some_lease_stands(rig):
    """The payload is the same and the job is due: refusing it would fetch once more for nothing."""
    first = await rig.leased()
    second = await lose(rig, first)
    assert (await rig.deliver(first)).outcomes == [D]
    assert (await rig.deliver(second)).outcomes == [GONE]
    assert await rig.ready() == [b"payload"]


async def test_a_stale_dispatcher_delivers_nothing_that_is_delayed_again(rig):
    """A job that backs off, or was rescheduled, is not due."""
    job = await rig.leased()
    await rig.ledger.release(QUEUE, [job], wait_ms=5_000)
    assert (await rig.deliver(job)).outcomes == [GONE]
    assert await rig.where(job.reference) == {"delayed"}


async def test_an_overrun_lease_still_delivers_until_somebody_reclaims_it(rig):
    job = await rig.leased()
    rig.now_ms += 10 * LEASE_MS
    assert (await rig.deliver(job)).outcomes == [D]


async def test_delivering_clears_what_is_known_of_the_job(rig):
    job = await rig.leased()
    await rig.ledger.reschedule(job.reference, T0)
    [job] = (await rig.claim()).leased
    await rig.ledger.retry(QUEUE, [Failure(job, "timeout", charged=True)], max_attempts=8)
    rig.now_ms += 10_000
    [job] = (await rig.claim()).leased
    assert (await rig.dump()).trouble
    assert (await rig.dump()).moved
    await rig.deliver(job)
    await rig.ledger.empty_trash(QUEUE, [str(job.reference)])
    await rig.nothing_left()


async def test_an_unusable_ready_key_gives_the_leases_back_uncharged(rig):
    """Before any other write: a script is not rolled back."""
    job, lost = await rig.leased(due_ms=T0 - 5), await rig.leased()
    others = replace(lost, token=lost.token + 1)
    await rig.redis.hset(rig.keys.queue(QUEUE).ready, "not", "a list")
    assert (await rig.deliver(job, others)).outcomes == [UNUSABLE, UNUSABLE]
    assert await rig.score("delayed", job.reference) == T0 - 5
    assert await rig.where(lost.reference) == {"leases"}, "not the caller's to give back"
    assert await rig.record(job.reference) == {}


async def test_a_paused_queue_still_delivers_what_is_leased(rig):
    job = await rig.leased()
    await rig.ledger.pause(QUEUE)
    assert (await rig.deliver(job)).outcomes == [D]


async def test_many_payloads_go_in_bounded_calls_and_all_arrive(redis_url):
    async with rigged(redis_url) as rig:
        rig.transport.after = None
        await rig.ledger.schedule(QUEUE, [rig.entry(None) for _ in range(1_200)])
        jobs = [*(await rig.claim(batch=1_000, shares={"*": rig.request().shares["*"]})).leased]
        rig.now_ms += 1
        jobs += (await rig.claim(batch=1_000)).leased
        assert len(jobs) == 1_200
        assert set((await rig.deliver(*jobs, payload=bytes(2_000))).outcomes) == {D}
        assert len(await rig.ready()) == 1_200
        await rig.check()


# ---- extend ----------------------------------------------------------------------------------------------------------


async def test_an_extended_lease_has_a_new_token_and_the_old_one_is_void(rig):
    job = await rig.leased()
    [extended] = await rig.ledger.extend(QUEUE, [job], LEASE_MS)
    assert extended is not None
    assert extended.token > job.token
    assert await rig.score("leases", job.reference) == extended.token
    assert await rig.ledger.release(QUEUE, [job]) == 0
    assert await rig.ledger.release(QUEUE, [extended]) == 1


async def test_extending_twice_by_one_token_is_extending_once(rig):
    """The first answer may be lost, and the repetition must name the same token."""
    job = await rig.leased()
    assert await rig.ledger.extend(QUEUE, [job], LEASE_MS) == await rig.ledger.extend(QUEUE, [job], LEASE_MS)


async def test_a_lost_lease_cannot_be_extended(rig):
    job = await rig.leased()
    now_its = await lose(rig, job)
    assert await rig.ledger.extend(QUEUE, [job], LEASE_MS) == [None]
    assert await rig.score("leases", job.reference) == now_its.token


# ---- retry -----------------------------------------------------------------------------------------------------------


async def test_a_charged_job_backs_off_doubling_up_to_the_longest(redis_url):
    """With a jitter of up to half: what failed together does not come back together."""
    async with rigged(redis_url, backoff_min_ms=1_000, backoff_max_ms=10_000) as rig:
        await rig.offloaded()
        for attempt, whole in enumerate([1_000, 2_000, 4_000, 8_000, 10_000, 10_000], start=1):
            [job] = (await rig.claim()).leased
            [retried] = await rig.ledger.retry(QUEUE, [Failure(job, "timeout", charged=True)], max_attempts=8)
            assert (retried.state, retried.attempts) == ("delayed", attempt)
            assert whole / 2 <= retried.next_attempt_ms - rig.now_ms <= whole
            assert await rig.score("delayed", job.reference) == retried.next_attempt_ms
            rig.now_ms = retried.next_attempt_ms
        assert job.due_ms == T0, "its owner's due does not change"


async def test_the_last_attempt_ends_dead_with_its_reason(rig):
    await rig.offloaded()
    for left in (2, 1, 0):
        [job] = (await rig.claim()).leased
        failure = Failure(job, "http-500", charged=True, reason="unknown_backend")
        [retried] = await rig.ledger.retry(QUEUE, [failure], max_attempts=3)
        rig.now_ms += 600_000
        assert retried.state == ("delayed" if left else "dead")
    record = await rig.record(job.reference)
    assert (record["attempts"], record["error"], record["reason"]) == (3, "http-500", "unknown_backend")
    assert await rig.where(job.reference) == {"dead"}
    found = await rig.ledger.lookup(job.reference)
    assert found is not None
    assert (found.state, found.reason, found.error) == ("dead", "unknown_backend", "http-500")
    assert found.died_at_ms == rig.now_ms - 600_000


async def test_an_outage_costs_a_job_nothing_however_long_it_lasts(rig):
    """Uncharged failures never add up to a death; the job waits as told and up to half as long again."""
    await rig.offloaded()
    for _ in range(30):
        [job] = (await rig.claim()).leased
        failure = Failure(job, "unavailable", charged=False, wait_ms=30_000)
        [retried] = await rig.ledger.retry(QUEUE, [failure], max_attempts=3)
        assert (retried.state, retried.attempts) == ("delayed", 0)
        assert 30_000 <= retried.next_attempt_ms - rig.now_ms <= 45_000
        rig.now_ms = retried.next_attempt_ms
    assert (await rig.record(job.reference))["attempts"] == 0


@pytest.mark.parametrize("record", ["not json", "[]", '{"attempts": "many", "expiries": null}', '{"attempts": 1e3}'])
async def test_a_record_that_somebody_spoilt_does_not_stop_a_retry(rig, record):
    """A script that fails after its first write leaves the job in no set at all."""
    job = await rig.leased()
    await rig.redis.hset(rig.keys.queue(QUEUE).trouble, job.reference.uuid, record)
    [retried] = await rig.ledger.retry(QUEUE, [Failure(job, "timeout", charged=True)], max_attempts=10_000)
    assert retried.state == "delayed"


# ---- not one's own ---------------------------------------------------------------------------------------------------


async def test_a_stale_dispatcher_can_neither_bury_postpone_nor_charge(rig):
    """It may have been stopped for minutes and does not know that the job is another's now."""
    mine = await rig.leased()
    its = await lose(rig, mine)
    before = await rig.dump()
    assert await rig.ledger.bury(QUEUE, [(mine, "payload_missing")]) == [False]
    assert await rig.ledger.release(QUEUE, [mine], wait_ms=10**6) == 0
    [retried] = await rig.ledger.retry(QUEUE, [Failure(mine, "timeout", charged=True)], max_attempts=1)
    assert retried.state == "gone"
    assert await rig.ledger.extend(QUEUE, [mine], LEASE_MS) == [None]
    assert await rig.dump() == before
    assert (await rig.deliver(its)).outcomes == [D]


@pytest.mark.parametrize("meanwhile", ["cancelled", "rescheduled", "delivered", "buried"])
async def test_a_dispatcher_that_wakes_up_late_changes_nothing(rig, meanwhile):
    job = await rig.leased()
    reference = job.reference
    match meanwhile:
        case "cancelled":
            assert await rig.ledger.cancel(reference) == "cancelled"
        case "rescheduled":
            assert await rig.ledger.reschedule(reference, T0 + 10**7) == "delayed"
        case "delivered":
            await rig.deliver(job)
        case "buried":
            await rig.ledger.bury(QUEUE, [(job, "payload_corrupt")])
    before = await rig.dump()
    assert await rig.ledger.bury(QUEUE, [(job, "payload_missing")]) == [False]
    assert await rig.ledger.release(QUEUE, [job], wait_ms=1) == 0
    [retried] = await rig.ledger.retry(QUEUE, [Failure(job, "timeout", charged=True)], max_attempts=1)
    assert retried.state == "gone"
    assert (await rig.deliver(job)).outcomes == [GONE]
    assert await rig.dump() == before


async def test_a_job_released_and_taken_again_in_one_millisecond_is_not_the_first_callers(rig):
    """A release whose answer was lost is repeated: it must not tear the job from its next holder's hands."""
    mine = await rig.leased()
    assert await rig.ledger.release(QUEUE, [mine]) == 1
    [its] = (await rig.claim()).leased
    assert await rig.ledger.release(QUEUE, [mine]) == 0
    assert await rig.where(its.reference) == {"leases"}


# ---- release, bury, reclaim ------------------------------------------------------------------------------------------


async def test_a_released_job_stands_where_it_stood(rig):
    """Also after a retry had postponed it: its place is by its owner's due."""
    job = await rig.leased(due_ms=T0 - 9)
    assert await rig.ledger.release(QUEUE, [job]) == 1
    assert await rig.score("delayed", job.reference) == T0 - 9
    assert await rig.record(job.reference) == {}


async def test_a_job_can_be_released_for_later(rig):
    job = await rig.leased(due_ms=T0 - 9)
    await rig.ledger.release(QUEUE, [job], wait_ms=1_000)
    assert await rig.score("delayed", job.reference) == T0 + 1_000


async def test_a_buried_job_keeps_its_payload_and_says_why(rig):
    job = await rig.leased()
    assert await rig.ledger.bury(QUEUE, [(job, "payload_corrupt")]) == [True]
    assert await rig.where(job.reference) == {"dead"}
    assert await rig.score("dead", job.reference) == T0
    assert (await rig.record(job.reference))["reason"] == "payload_corrupt"


async def test_a_lease_is_reclaimed_at_its_deadline_and_not_before(rig):
    job = await rig.leased(due_ms=T0 - 9)
    rig.now_ms = math.floor(job.token - 0.001)
    assert await rig.ledger.reclaim(QUEUE) == []
    rig.now_ms = math.ceil(job.token)
    assert await rig.ledger.reclaim(QUEUE) == [(str(job.reference), "delayed")]
    assert await rig.score("delayed", job.reference) == T0 - 9
    record = await rig.record(job.reference)
    assert (record["attempts"], record["expiries"]) == (0, 1), "a process died: that is not the job's failure"


async def test_a_job_that_kills_dispatcher_after_dispatcher_is_dead_in_the_end(redis_url):
    """Otherwise it takes them down for ever."""
    async with rigged(redis_url, max_expiries=3) as rig:
        await rig.offloaded()
        states = []
        for _ in range(3):
            [job] = (await rig.claim()).leased
            rig.now_ms = math.ceil(job.token)
            [(_, state)] = await rig.ledger.reclaim(QUEUE)
            states.append(state)
        assert states == ["delayed", "delayed", "dead"]
        assert (await rig.record(job.reference))["reason"] == "lease_expired"


async def test_reclaiming_is_bounded(rig):
    for _ in range(5):
        await rig.leased()
    rig.now_ms += 2 * LEASE_MS
    assert [len(await rig.ledger.reclaim(QUEUE, 2)) for _ in range(4)] == [2, 2, 1, 0]


async def test_junk_among_the_leases_is_dead_after_its_deadline(rig):
    """Nobody can fetch or deliver it, and left there it would be reclaimed for ever."""
    await rig.redis.zadd(rig.keys.queue(QUEUE).leases, {b"\xff junk": T0 - 1})
    assert await rig.ledger.reclaim(QUEUE) == [("\udcff junk", "dead")]
    assert await rig.ledger.purge(QUEUE, ["\udcff junk"]) == 1
    await rig.nothing_left()


async def test_a_job_that_never_was_can_be_named_without_harm(rig):
    job = Leased(Reference("s3", QUEUE, T0, new_uuid()), T0, T0)
    assert (await rig.deliver(job)).outcomes == [GONE]
    assert await rig.ledger.bury(QUEUE, [(job, "x")]) == [False]
    assert await rig.ledger.release(QUEUE, [job]) == 0
    await rig.nothing_left()
