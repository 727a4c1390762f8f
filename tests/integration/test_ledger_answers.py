"""Every transition loses its answer, or its request, while a dispatcher is at work: nothing is delivered twice.

The proxy lets the command through and swallows the reply, or swallows the command; from here the two look alike. What
the ledger says must be true in both cases, or OutcomeUnknown.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from service.errors import OutcomeUnknown, RedisUnavailable, RetryLater
from service.records import Delivery, Entry, Failure, Outcome, Scheduled
from service.scripts import Scripts
from storage_backends.reference import Reference
from tests.kit.ledgers import QUEUE, Rig, rigged
from tests.kit.waiting import eventually

FAULTS = ("reply", "request")


class Stage:
    """A rig behind the proxy, one beside it, and a claimer that delivers whatever is due."""

    def __init__(self, rig: Rig, direct: Rig, proxy: Any) -> None:
        self.rig, self.direct, self.proxy = rig, direct, proxy

    def lose(self, fault: str, script: str) -> Any:
        """Arms the fault for the next run of `script` behind the proxy."""
        sha = Scripts()[script].sha.encode()
        return self.proxy.swallow_reply(sha) if fault == "reply" else self.proxy.swallow_request(sha)

    @asynccontextmanager
    async def claimer(self) -> AsyncIterator[None]:
        """A dispatcher at work: claims, delivers, reclaims, with no pause."""

        over = asyncio.Event()

        async def work() -> None:
            while not over.is_set():
                claimed = await self.direct.claim()
                await self.direct.deliver(*claimed.leased)
                await self.direct.ledger.reclaim(QUEUE)

        working = asyncio.create_task(work())
        try:
            yield
        finally:
            over.set()
            await working

    async def hold(self) -> None:
        """From now on nothing passes the proxy, until it is healed; whoever waits for it soon gives up."""
        await self.rig.transport.send([("PING",)])
        self.proxy.hold()
        self.rig.pool.timeout = 0.1

    async def arrived(self, count: int) -> None:
        """That so many payloads are ready, and no more come: everything due is claimed once more."""
        await eventually(lambda: self._ready(count), described=f"{count} payloads are ready")
        await self.direct.claim()
        assert len(await self.direct.ready()) == count

    async def _ready(self, count: int) -> bool:
        return len(await self.direct.ready()) >= count


@pytest.fixture
async def stage(redis_url, redis_proxy):
    async with rigged(redis_url, through=redis_proxy.url, timeout_s=2) as rig, rigged(redis_url) as direct:
        rig.now_ms = direct.now_ms = None
        rig.transport.after = None
        for script in Scripts():
            await direct.redis.script_load(script.source)
        yield Stage(rig, direct, redis_proxy)
        await direct.check()


both_faults = pytest.mark.parametrize("fault", FAULTS)


# ---- schedule --------------------------------------------------------------------------------------------------------


@both_faults
@pytest.mark.parametrize("body", [b"payload", None], ids=["inline", "offloaded"])
@pytest.mark.parametrize("key", [None, "order-1"], ids=["unkeyed", "keyed"])
async def test_a_job_due_now_is_scheduled_once_or_its_fate_is_unknown(stage, fault, body, key):
    """With redis-py's own repetitions this put the job into the ready list twice."""
    entry = stage.rig.entry(body, key=key)
    async with stage.claimer():
        trap = stage.lose(fault, "schedule")
        [answer] = await stage.rig.ledger.schedule(QUEUE, [entry])
        await trap
        carried_out = fault == "reply" or key is not None
        if key is not None:
            assert answer == Scheduled(Outcome.SCHEDULED, entry.reference, "why")
        elif not carried_out:
            assert isinstance(answer, OutcomeUnknown)
            assert answer.reference == entry.reference
        else:
            assert isinstance(answer, OutcomeUnknown) or answer.outcome == "scheduled"
        await stage.arrived(1 if carried_out else 0)


async def test_a_future_job_is_found_after_its_answer_was_lost(stage):
    """Found is done: the caller gets a 201, and not an unknown."""
    entry = stage.rig.entry(due_ms=stage.rig.now_ms + 10**6)
    stage.lose("reply", "schedule")
    [answer] = await stage.rig.ledger.schedule(QUEUE, [entry])
    assert answer == Scheduled(Outcome.SCHEDULED, entry.reference, "why")


@both_faults
async def test_in_a_batch_each_job_gets_its_own_true_answer(stage, fault):
    """Keyed ones are repeated, the others looked up; a replayed one stays replayed."""
    due_ms = stage.rig.now_ms + 10**6
    keyed, twin, bare = (stage.rig.entry(due_ms=due_ms, key=key) for key in ("a", "a", None))
    stage.lose(fault, "schedule")
    answers = await stage.rig.ledger.schedule(QUEUE, [keyed, bare, twin])
    assert answers[0] == Scheduled(Outcome.SCHEDULED, keyed.reference, "why")
    assert answers[2] == Scheduled(Outcome.REPLAYED, keyed.reference, "why")
    assert isinstance(answers[1], Scheduled if fault == "reply" else OutcomeUnknown)
    assert await stage.direct.where(bare.reference) == ({"delayed"} if fault == "reply" else set())


async def test_a_server_that_stays_away_leaves_the_outcome_unknown(stage):
    """Neither the repetition nor the look-up is answered."""
    entries = [stage.rig.entry(key="a"), stage.rig.entry()]
    await stage.hold()
    answers = await stage.rig.ledger.schedule(QUEUE, entries)
    assert [type(answer) for answer in answers] == [OutcomeUnknown] * 2
    await stage.proxy.heal()


@pytest.mark.parametrize("keys", [0, 1], ids=["unkeyed", "one of them keyed"])
async def test_a_server_that_stays_away_holds_up_a_chunk_of_five_hundred_no_longer_than_one_job(stage, keys):
    """Looked up one after another they took 15 s each at the default timeout: two hours for one batch."""
    entries = [stage.rig.entry() for _ in range(500 - keys)] + [stage.rig.entry(key="a") for _ in range(keys)]
    await stage.hold()
    async with asyncio.timeout(10):
        answers = await stage.rig.ledger.schedule(QUEUE, entries)
    assert {type(answer) for answer in answers} == {OutcomeUnknown}
    assert [answer.reference for answer in answers] == [entry.reference for entry in entries]
    await stage.proxy.heal()


@both_faults
async def test_a_chunk_of_five_hundred_is_settled_by_one_question(stage, fault):
    """Each gets its own true answer."""
    due_ms = stage.rig.now_ms + 10**6
    entries = [stage.rig.entry(due_ms=due_ms) for _ in range(500)]
    before = await _scripts_run(stage)
    stage.lose(fault, "schedule")
    answers = await stage.rig.ledger.schedule(QUEUE, entries)
    assert {type(answer) for answer in answers} == {Scheduled if fault == "reply" else OutcomeUnknown}
    assert [answer.reference for answer in answers] == [entry.reference for entry in entries]
    assert await _scripts_run(stage) - before <= 3  # one more may come before the script is known


async def test_behind_a_chunk_that_is_unknown_nothing_is_sent(stage):
    """A batch of many chunks waits for an outage once, and those that were not sent may be repeated without a doubt."""
    entries = [stage.rig.entry(due_ms=stage.rig.now_ms + 10**6) for _ in range(3_000)]
    await stage.hold()
    async with asyncio.timeout(10):
        answers = await stage.rig.ledger.schedule(QUEUE, entries)
    assert [type(answer) for answer in answers] == [OutcomeUnknown] * 1_000 + [RedisUnavailable] * 2_000
    await stage.proxy.heal()
    sent = {entry.reference.uuid.encode() for entry in entries[1_000:]}
    assert not sent & set((await stage.direct.dump()).bodies)


async def test_a_server_that_is_down_has_certainly_accepted_nothing(stage):
    """The producer may undo its upload then."""
    async with stage.proxy.down():
        answers = await stage.rig.ledger.schedule(QUEUE, [stage.rig.entry(), stage.rig.entry(key="a")])
    assert [type(answer) for answer in answers] == [RedisUnavailable] * 2


# ---- claim and deliver -----------------------------------------------------------------------------------------------


@both_faults
async def test_a_claim_whose_answer_was_lost_delivers_inline_jobs_once_and_loses_no_lease(stage, fault):
    """It is not repeated: what it leased for nobody comes back when the lease runs out, charged with nothing."""
    await stage.direct.inline()
    job = await stage.direct.offloaded()
    trap = stage.lose(fault, "claim")
    with pytest.raises(RedisUnavailable):
        await stage.rig.claim(lease_ms=1)
    await trap
    assert len(await stage.direct.ready()) == (fault == "reply")
    async with stage.claimer():
        await stage.arrived(2)
    assert await stage.direct.where(job) == {"trash"}


@both_faults
async def test_a_delivery_whose_answer_was_lost_is_done_once(stage, fault):
    """The repetition says GONE of what the first try delivered: the dispatcher must not take that for a failure."""
    job = await stage.direct.leased()
    async with stage.claimer():
        trap = stage.lose(fault, "deliver")
        [outcome] = (await stage.rig.deliver(job)).outcomes
        await trap
        assert outcome is (Delivery.GONE if fault == "reply" else Delivery.DELIVERED)
        await stage.arrived(1)


@both_faults
async def test_an_extension_whose_answer_was_lost_names_the_token_that_stands(stage, fault):
    job = await stage.direct.leased()
    stage.lose(fault, "extend")
    [extended] = await stage.rig.ledger.extend(QUEUE, [job], 60_000)
    assert await stage.direct.score("leases", job.reference) == extended.token


# ---- giving up a lease -----------------------------------------------------------------------------------------------


@both_faults
async def test_a_retry_whose_answer_was_lost_charges_once(stage, fault):
    job = await stage.direct.leased()
    async with stage.claimer():
        stage.lose(fault, "retry")
        failure = Failure(job, "timeout", charged=True)
        [retried] = await stage.rig.ledger.retry(QUEUE, [failure], max_attempts=8)
        assert retried.state == ("gone" if fault == "reply" else "delayed")
        assert (await stage.direct.record(job.reference))["attempts"] == 1
        assert await stage.direct.where(job.reference) == {"delayed"}


@both_faults
async def test_a_release_whose_answer_was_lost_tears_the_job_from_nobody_else(stage, fault):
    """The claimer takes it at once, perhaps in the same millisecond; the repetition comes 20 ms later."""
    job = await stage.direct.leased()
    stage.lose(fault, "release")
    async with stage.claimer():
        assert await stage.rig.ledger.release(QUEUE, [job]) == (fault == "request")
        await stage.arrived(1)


@both_faults
async def test_a_burial_whose_answer_was_lost_is_done_once(stage, fault):
    job = await stage.direct.leased()
    async with stage.claimer():
        stage.lose(fault, "bury")
        assert await stage.rig.ledger.bury(QUEUE, [(job, "payload_missing")]) == [fault == "request"]
        assert await stage.direct.where(job.reference) == {"dead"}


@both_faults
async def test_a_reclaim_whose_answer_was_lost_counts_one_expiry(stage, fault):
    reference = await stage.direct.offloaded()
    await stage.direct.claim(lease_ms=0)
    await eventually(lambda: _over(stage.direct), described="the lease is over")
    stage.lose(fault, "reclaim")
    await stage.rig.ledger.reclaim(QUEUE)
    assert (await stage.direct.record(reference))["expiries"] == 1
    assert await stage.direct.where(reference) == {"delayed"}


async def _over(rig: Rig) -> bool:
    return (await rig.claim(shares={})).leases_expired


# ---- owners ----------------------------------------------------------------------------------------------------------


@both_faults
@pytest.mark.parametrize("state", ["delayed", "leased"])
async def test_a_cancel_whose_answer_was_lost_tells_the_truth(stage, fault, state):
    """`cancelled` means that it will never be delivered; and that is what the repetition says, too."""
    soon_ms = stage.direct.now_ms + (10**6 if state == "delayed" else 0)
    reference = await stage.direct.offloaded(due_ms=soon_ms)
    held = (await stage.direct.claim()).leased
    async with stage.claimer():
        stage.lose(fault, "cancel")
        assert await stage.rig.ledger.cancel(reference) == "cancelled"
        assert (await stage.direct.deliver(*held)).outcomes == [Delivery.GONE] * len(held)
        await stage.arrived(0)


@both_faults
async def test_a_cancel_in_a_race_with_the_claim_is_never_wrong(stage, fault):
    """Due now, and the answer lost: either it was cancelled and never arrives, or it is gone and arrived."""
    async with stage.claimer():
        for round_number in range(5):
            await stage.direct.redis.delete(stage.direct.keys.queue(QUEUE).ready)
            entry = stage.direct.entry(due_ms=stage.direct.now_ms + 2)
            await stage.direct.ledger.schedule(QUEUE, [entry])
            stage.lose(fault, "cancel")
            answer = await stage.rig.ledger.cancel(entry.reference)
            await stage.arrived(0 if answer == "cancelled" else 1)
            assert answer in ("cancelled", "gone"), round_number


async def outcome(asked: Awaitable[str]) -> str | OutcomeUnknown:
    try:
        return await asked
    except OutcomeUnknown as unknown:
        return unknown


@both_faults
async def test_a_run_now_whose_answer_was_lost_runs_once(stage, fault):
    """The job may be delivered before the repetition: then it is gone, and that is unknown, not a 404."""
    reference = await stage.direct.inline(due_ms=stage.direct.now_ms + 10**6)
    async with stage.claimer():
        stage.lose(fault, "reschedule")
        answer = await outcome(stage.rig.ledger.reschedule(reference, stage.rig.now_ms))
        assert answer == "delayed" or (isinstance(answer, OutcomeUnknown) and fault == "reply")
        await stage.arrived(1)


@both_faults
async def test_a_revival_whose_answer_was_lost_revives_once(stage, fault):
    reference = await stage.direct.dead()
    async with stage.claimer():
        stage.lose(fault, "revive")
        await stage.rig.ledger.revive(QUEUE, [str(reference)])
        await stage.arrived(1)
    assert await stage.direct.where(reference) == {"trash"}


@both_faults
@pytest.mark.parametrize("operation", ["purge", "discard", "collect_trash", "empty_trash", "pause", "repair", "due"])
async def test_other_operations_are_repeated_without_harm(stage, fault, operation):
    """Each finds its own work done the second time."""
    dead, trash = await stage.direct.dead(), await stage.direct.dead()
    await stage.direct.ledger.purge(QUEUE, [str(trash)])
    ledger = stage.rig.ledger
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "purge": lambda: ledger.purge(QUEUE, [str(dead)]),
        "discard": lambda: ledger.discard(QUEUE, [dead, trash], wait_ms=5_000),
        "collect_trash": lambda: ledger.collect_trash(QUEUE, 10, put_off_ms=5_000),
        "empty_trash": lambda: ledger.empty_trash(QUEUE, [str(trash)]),
        "pause": lambda: ledger.pause(QUEUE),
        "repair": lambda: ledger.repair([QUEUE]),
        "due": lambda: ledger.due(10),
    }
    trap = stage.lose(fault, operation)
    await calls[operation]()
    await trap
    assert await stage.direct.where(dead) == ({"trash"} if operation == "purge" else {"dead"})
    assert await stage.direct.where(trash) == (set() if operation == "empty_trash" else {"trash"})


# ---- commands that come late -----------------------------------------------------------------------------------------


async def late(stage: Stage, command: Awaitable[Any], meanwhile: Callable[[], Awaitable[Any]]) -> None:
    """Holds `command` back, lets its caller give up, does `meanwhile`, and then lets it arrive."""
    await stage.hold()
    with suppress(RetryLater):
        await command
    await meanwhile()
    before = await _scripts_run(stage)
    await stage.proxy.heal()
    await eventually(lambda: _more_than(stage, before), described="the late command has arrived")


async def _scripts_run(stage: Stage) -> int:
    stats = await stage.direct.redis.info("commandstats")
    return int(stats.get("cmdstat_evalsha", {"calls": 0})["calls"])


async def _more_than(stage: Stage, before: int) -> bool:
    return await _scripts_run(stage) > before


@pytest.mark.parametrize("body", [b"payload", None], ids=["inline", "offloaded"])
async def test_a_late_schedule_does_not_come_after_its_cancel(stage, body):
    """A DELETE settles an unknown outcome: what it said must stay true, and its payload must go."""
    entry: Entry = stage.rig.entry(body)

    async def cancel() -> None:
        assert await stage.direct.ledger.cancel(entry.reference) == "gone"

    await late(stage, stage.rig.ledger.schedule(QUEUE, [entry]), cancel)
    async with stage.claimer():
        await stage.arrived(0)
    assert await stage.direct.where(entry.reference) == (set() if body else {"trash"})


async def test_a_late_schedule_does_not_refer_to_a_discarded_payload(stage):
    entry = stage.rig.entry(None)
    await late(
        stage,
        stage.rig.ledger.schedule(QUEUE, [entry]),
        lambda: stage.direct.ledger.discard(QUEUE, [entry.reference]),
    )
    async with stage.claimer():
        await stage.arrived(0)
    assert await stage.direct.where(entry.reference) == {"trash"}


@pytest.mark.parametrize("operation", ["retry", "release", "bury", "extend", "deliver"])
async def test_a_late_command_of_a_dispatcher_does_not_reach_a_cancelled_job(stage, operation):
    """Stopped past its lease and continued: nothing that is not its own any more is touched."""
    job = await stage.direct.leased()
    ledger = stage.rig.ledger
    commands: dict[str, Awaitable[Any]] = {
        "retry": ledger.retry(QUEUE, [Failure(job, "timeout", charged=True)], max_attempts=8),
        "release": ledger.release(QUEUE, [job]),
        "bury": ledger.bury(QUEUE, [(job, "payload_missing")]),
        "extend": ledger.extend(QUEUE, [job], 60_000),
        "deliver": stage.rig.deliver(job),
    }
    command = commands.pop(operation)
    for other in commands.values():
        other.close()  # type: ignore[attr-defined]  # a coroutine, which an Awaitable need not be

    async def cancel() -> None:
        assert await stage.direct.ledger.cancel(job.reference) == "cancelled"

    await late(stage, command, cancel)
    async with stage.claimer():
        await stage.arrived(0)
    assert await stage.direct.where(job.reference) == {"trash"}


async def test_a_late_cancel_of_a_delivered_job_changes_nothing(stage):
    reference: Reference = await stage.direct.inline(due_ms=stage.direct.now_ms)
    await late(stage, stage.rig.ledger.cancel(reference), stage.direct.claim)
    assert await stage.direct.ledger.cancel(reference) == "gone"
    assert len(await stage.direct.ready()) == 1


async def test_the_ledger_gives_up_in_bounded_time(stage):
    """Three tries of at most the socket's timeout, and short pauses: a request of a caller must not hang."""
    await stage.hold()
    began_s = time.monotonic()
    with pytest.raises(RedisUnavailable):
        await stage.rig.ledger.due(10)
    assert time.monotonic() - began_s < 3
    await stage.proxy.heal()
