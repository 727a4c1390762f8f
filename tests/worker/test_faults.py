"""A worker whose connections break, whose answers get lost, and who is taken for dead without being so."""

from collections.abc import AsyncIterator

import pytest

from service.scripts import Scripts
from service.worker import Context, Retry, Worker
from tests.kit.proxy import Proxy
from tests.kit.waiting import eventually
from tests.kit.workers import QUEUE, QUICK, AtWork, Gate, Log, Workshop, both_kinds, envelope
from tests.kit.yards import counted

pytestmark = both_kinds
SHA = {script.name: script.sha.encode() for script in Scripts()}


@pytest.fixture
async def proxy(redis_proxy: Proxy) -> AsyncIterator[Proxy]:
    yield redis_proxy
    await redis_proxy.heal()


def noting(log: Log) -> Worker:
    """Tasks that say that they ran."""
    worker = Worker()

    @worker.task("note")
    async def note(context: Context) -> None:
        log.add(context.id)

    @worker.task("flaky")
    async def flaky(context: Context) -> None:
        log.add(f"{context.id}:{context.attempt}")
        if not context.attempt:
            raise Retry(after="10ms")

    @worker.task("broken")
    async def broken(context: Context) -> None:
        raise ValueError("why")

    return worker


@pytest.mark.parametrize("silence", [False, True], ids=["dropped", "silent"])
@pytest.mark.parametrize("lost", ["reply", "request"])
async def test_a_turn_whose_answer_is_lost_loses_no_job(
    shop: Workshop, log: Log, proxy: Proxy, lost: str, silence: bool
) -> None:
    """What it took is in the worker's hands by then, and nobody told it so."""
    async with shop.at_work(noting(log), redis_url=proxy.url, REDIS__TIMEOUT="500ms", WORKER__BLOCK="200ms"):
        swallow = proxy.swallow_reply if lost == "reply" else proxy.swallow_request
        trap = swallow(lambda request: SHA["take"] in request, then_silence=silence)
        await shop.push(QUEUE, *(envelope("note", id=f"{number}") for number in range(100)))
        await trap
        await log.has(100)
        await shop.idle()
    assert sorted(log.seen) == sorted(f"{number}" for number in range(100))
    await shop.nothing_left(shop.keys.queue(QUEUE).departed)


@pytest.mark.parametrize("lost", ["reply", "request"])
@pytest.mark.parametrize("silence", [False, True], ids=["dropped", "silent"])
async def test_an_idle_worker_whose_wake_up_is_lost_still_does_the_job(
    shop: Workshop, log: Log, proxy: Proxy, lost: str, silence: bool
) -> None:
    """The job is popped, its payload on a connection that is dead. The worker finds it among its holdings."""
    async with shop.at_work(noting(log), redis_url=proxy.url, REDIS__TIMEOUT="500ms", WORKER__BLOCK="200ms", **QUICK):
        swallow = proxy.swallow_reply if lost == "reply" else proxy.swallow_request
        trap = swallow(lambda request: b"BLMOVE" in request or b"BLOCK" in request, then_silence=silence)
        if lost == "reply":
            await eventually(lambda: trap.request, described="a pop is on its way")
        await shop.push(QUEUE, envelope("note", id="7"))
        await trap
        await log.has(1)
        await shop.idle()
        await shop.push(QUEUE, envelope("note", id="8"))
        await log.has(2)
    assert log.seen == ["7", "8"]


@pytest.mark.parametrize("script", ["postpone", "condemn", "hand_back"])
@pytest.mark.parametrize("lost", ["reply", "request"])
async def test_a_decision_whose_answer_is_lost_is_made_once(
    shop: Workshop, log: Log, proxy: Proxy, script: str, lost: str
) -> None:
    worker, gate = noting(log), Gate()

    @worker.task("wait")
    async def wait() -> None:
        await gate.passed()

    async with (
        shop.dispatching(),
        shop.at_work(worker, redis_url=proxy.url, concurrency=2, REDIS__TIMEOUT="500ms", **QUICK),
    ):
        swallow = proxy.swallow_reply if lost == "reply" else proxy.swallow_request
        trap = swallow(lambda request: SHA[script] in request)
        if script == "hand_back":  # a pop takes what there is no room for, gives it back, and it is done in the end
            await shop.push(QUEUE, envelope("wait"), envelope("wait"), envelope("wait"))
            await eventually(lambda: gate.waiting == 2)
            if not trap.request:
                trap.disarm()
            gate.open()
        await shop.push(QUEUE, envelope("flaky", id="7"), envelope("broken", id="8", max_retries=0))
        await log.has(2)
        (record,) = await shop.dead()
        if not trap.disarmed:
            await trap
        await shop.idle()
    assert log.seen == ["7:0", "7:1"]
    assert record["id"] == "8"


async def test_who_was_only_slow_finds_that_it_lost_its_job_and_acknowledges_nothing(
    shop: Workshop, log: Log, proxy: Proxy
) -> None:
    """Its network was away for longer than the others' patience. Another has its job by now."""
    slow, quick, gate, second = Worker(), Worker(), Gate(), Gate()

    @slow.task("work")
    async def slowly(context: Context) -> None:
        log.add("slow")
        await gate.passed()

    @quick.task("work")
    async def quickly(context: Context) -> None:
        log.add("quick")
        await second.passed()

    async with shop.at_work(slow, redis_url=proxy.url, REDIS__TIMEOUT="500ms", WORKER__BLOCK="200ms", **QUICK) as one:
        await shop.push(QUEUE, raw := envelope("work", id="7"))
        await log.has(1)
        async with shop.at_work(quick, WORKER__BLOCK="200ms", **QUICK) as other:
            proxy.blackhole()
            assert await log.has(2) == ["slow", "quick"]
            assert counted(other.service, "worker_reaped_total", queue=QUEUE) >= 1  # its last pop may take it once more
            await proxy.heal()
            await eventually(lambda: counted(one.service, "worker_taken_for_dead_total", queue=QUEUE) == 1)
            gate.open()
            await eventually(lambda: counted(one.service, "worker_not_ours_total", queue=QUEUE) == 1)
            assert [held for held in (await shop.inflight()).values() if held] == [[raw]], "somebody acknowledged it"
            second.open()
            await shop.idle()
        await shop.push(QUEUE, envelope("work"))
        assert (await log.has(3))[2] == "slow", "it does not work any more"
    assert log.seen == ["slow", "quick", "slow"]


async def test_a_job_is_not_begun_by_who_may_have_been_taken_for_dead(shop: Workshop, log: Log, proxy: Proxy) -> None:
    """It waited here while the worker stood still: by now it may be another's, and begun there."""
    worker, gate = noting(log), Gate()

    @worker.task("wait")
    async def wait() -> None:
        await gate.passed()

    async with shop.at_work(
        worker, redis_url=proxy.url, concurrency=1, REDIS__TIMEOUT="500ms", WORKER__BLOCK="200ms", **QUICK
    ) as one:
        await shop.push(QUEUE, *(envelope("note") for _ in range(3_000)))
        await log.has(500)
        proxy.blackhole()
        await eventually(lambda: not _sure(one), 10, "its last heartbeat is too old")
        count = len(log.seen)
        async with shop.at_work(noting(Log()), WORKER__BLOCK="200ms", **QUICK):
            await shop.idle(within_s=20)
        await proxy.heal()
        await shop.idle()
    assert len(log.seen) == count, "it began jobs that were others' by then"


def _sure(work: AtWork) -> bool:
    import time

    return time.monotonic() < work.shift._lanes[0]._sure_until_s


async def test_redis_away_for_longer_than_the_patience_costs_nobody_its_jobs(
    shop: Workshop, log: Log, proxy: Proxy
) -> None:
    """After it every heartbeat is overdue, and nobody is dead."""
    worker, gate = Worker(), Gate()

    @worker.task("work")
    async def work(context: Context) -> None:
        log.add(context.id)
        await gate.passed()

    pace = {"redis_url": proxy.url, "REDIS__TIMEOUT": "500ms", "WORKER__BLOCK": "200ms", **QUICK}
    async with shop.at_work(worker, concurrency=1, **pace) as one, shop.at_work(worker, concurrency=1, **pace) as two:
        await shop.push(QUEUE, envelope("work", id="a"), envelope("work", id="b"))
        await log.has(2)
        async with proxy.down():
            await eventually(lambda: not (_sure(one) or _sure(two)), 10, "both heartbeats are too old")
        await eventually(lambda: _sure(one) and _sure(two), 10, "both are heard again")
        gate.open()
        await shop.idle()
        assert counted(one.service, "worker_reaped_total") + counted(two.service, "worker_reaped_total") == 0
    assert sorted(log.seen) == ["a", "b"]
