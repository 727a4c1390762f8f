"""The skeleton of every periodic loop: driven by itself, woken earlier, never silently dead."""

import asyncio

import pytest

from service import loops
from service.clock import SystemClock
from service.errors import RedisUnavailable
from service.loops import Loop, Loops
from service.metrics import Metrics
from service.wiring import hangs_after_s
from tests.kit.waiting import eventually


class SetClock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic_s(self) -> float:
        return self.now_s

    def now_ms(self) -> int:
        return int(self.now_s * 1000)


class Rounds:
    """A round that does what it was told, and counts."""

    def __init__(self, *results):
        self.results = list(results)
        self.count = 0
        self.waiting = asyncio.Event()

    async def __call__(self):
        self.count += 1
        result = self.results.pop(0) if self.results else None
        if isinstance(result, Exception):
            raise result
        if result == "hang":
            await self.waiting.wait()
            return None
        return result


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(loops, "_BACKOFF_MIN_S", 0.0001)
    monkeypatch.setattr(loops, "_BACKOFF_MAX_S", 0.001)


@pytest.fixture
def metrics():
    return Metrics("0", backends=(), loops=("dispatch",))


def a_loop(round_, metrics, *, interval_s=60.0, clock=None, **options) -> Loop:
    return Loop("dispatch", round_, interval_s=interval_s, clock=clock or SystemClock(), metrics=metrics, **options)


def errors(metrics) -> str:
    return next(
        line for line in metrics.render()[0].decode().splitlines() if line.startswith("coatcheck_loop_errors_total{")
    ).rsplit(" ", 1)[1]


@pytest.fixture
async def started():
    """Starts loops, and ends them after the test."""
    groups = []

    def start(*some: Loop) -> Loops:
        group = Loops(some)
        group.start()
        groups.append(group)
        return group

    yield start
    for group in groups:
        await group.stop(grace_s=0.1)


async def test_it_runs_at_once_and_again_when_its_round_wants_it(metrics, started):
    rounds = Rounds(0.001, 0.0, 0.001)
    started(a_loop(rounds, metrics))
    await eventually(lambda: rounds.count == 4, described="three short pauses are over")


async def test_it_never_pauses_longer_than_its_interval(metrics, started):
    """Whatever a round believes: a wake-up that was lost costs at most one interval."""
    rounds = Rounds(1e9, 1e9)
    started(a_loop(rounds, metrics, interval_s=0.01))
    await eventually(lambda: rounds.count > 3, described="it goes on")


async def test_a_wake_up_makes_it_earlier(metrics, started):
    rounds = Rounds()
    loop = a_loop(rounds, metrics)
    started(loop)
    await eventually(lambda: rounds.count == 1)
    loop.wake()
    await eventually(lambda: rounds.count == 2, within_s=1)


async def test_a_wake_up_during_a_round_is_not_lost(metrics, started):
    rounds = Rounds("hang")
    loop = a_loop(rounds, metrics)
    started(loop)
    await eventually(lambda: rounds.count == 1)
    loop.wake()
    rounds.waiting.set()
    await eventually(lambda: rounds.count == 2, within_s=1)


async def test_an_outage_is_waited_out_however_long_it_takes(metrics, started):
    """Redis away is nothing that a restart would heal."""
    rounds = Rounds(*[RedisUnavailable("away")] * 3 * loops.MAX_FAILURES)
    group = started(a_loop(rounds, metrics))
    await eventually(lambda: rounds.count == 3 * loops.MAX_FAILURES + 1, described="the outage is over")
    assert group.sick() == []
    assert errors(metrics) == f"{3 * loops.MAX_FAILURES}.0"


async def test_a_loop_that_fails_again_and_again_is_dead_and_named(metrics, started):
    """Never a silent dead loop: the process's liveness goes with it."""
    rounds = Rounds(*[ValueError("a bug")] * loops.MAX_FAILURES)
    group = started(a_loop(rounds, metrics))
    await eventually(lambda: group.sick() == ["dispatch"], described="it is named")
    assert rounds.count == loops.MAX_FAILURES


async def test_a_good_round_forgives_failures(metrics, started):
    failing = [ValueError("a bug")] * (loops.MAX_FAILURES - 1)
    rounds = Rounds(*failing, 0.0, *failing, 0.0)
    group = started(a_loop(rounds, metrics))
    await eventually(lambda: rounds.count > 2 * loops.MAX_FAILURES, described="it goes on")
    assert group.sick() == []


async def test_a_loop_whose_task_was_cancelled_by_a_stranger_is_dead_and_named(metrics, started):
    group = started(a_loop(Rounds(), metrics))
    group._tasks[0].cancel()
    await eventually(lambda: group.sick() == ["dispatch"])


async def test_a_round_that_takes_suspiciously_long_is_named(metrics, started):
    clock = SetClock()
    rounds = Rounds("hang")
    group = started(a_loop(rounds, metrics, clock=clock))
    await eventually(lambda: rounds.count == 1)
    assert group.sick() == []
    clock.now_s = loops.HANGS_AFTER_S + 1
    assert group.sick() == ["dispatch"]
    rounds.waiting.set()
    await eventually(lambda: group.sick() == [], described="the round is over after all")


async def test_with_long_timeouts_a_round_may_take_longer(metrics, started):
    """A restart would only begin the same wait anew."""
    clock = SetClock()
    rounds = Rounds("hang")
    group = started(a_loop(rounds, metrics, clock=clock, hangs_after_s=3600))
    await eventually(lambda: rounds.count == 1)
    clock.now_s = 3599
    assert group.sick() == []
    clock.now_s = 3601
    assert group.sick() == ["dispatch"]


@pytest.mark.parametrize(("timeout_s", "allowed_s"), [(5, loops.HANGS_AFTER_S), (300, 4 * 3 * 300)])
def test_how_long_a_round_may_take_follows_from_how_long_redis_may(timeout_s, allowed_s):
    assert hangs_after_s(timeout_s) == allowed_s


async def test_before_the_start_nobody_is_sick(metrics):
    """A process that waits for Redis is alive."""
    group = Loops([a_loop(Rounds(), metrics)])
    assert group.sick() == []
    await group.stop()


async def test_a_stop_lets_the_round_under_way_end(metrics):
    rounds = Rounds("hang")
    group = Loops([a_loop(rounds, metrics)])
    group.start()
    await eventually(lambda: rounds.count == 1)
    stopping = asyncio.create_task(group.stop(grace_s=10))
    await asyncio.sleep(0)
    assert not stopping.done()
    rounds.waiting.set()
    await stopping
    assert rounds.count == 1
    assert group.sick() == [], "a loop that was told to stop is not dead"


async def test_a_stop_cancels_an_interruptible_round_at_once(metrics):
    rounds = Rounds("hang")
    group = Loops([a_loop(rounds, metrics, interruptible=True)])
    group.start()
    await eventually(lambda: rounds.count == 1)
    async with asyncio.timeout(1):
        await group.stop(grace_s=60)


async def test_a_round_that_never_ends_does_not_hold_up_a_stop_for_ever(metrics):
    rounds = Rounds("hang")
    group = Loops([a_loop(rounds, metrics)])
    group.start()
    await eventually(lambda: rounds.count == 1)
    async with asyncio.timeout(5):
        await group.stop(grace_s=0.01)


async def test_one_loop_can_be_stopped_while_the_others_go_on(metrics, started):
    """At a stop no job is claimed any more, while leases are still extended."""
    stopped, going = a_loop(Rounds(), metrics), Rounds(*[0.001] * 10_000)
    group = started(stopped, a_loop(going, metrics))
    stopped.stop()
    await group.settled(stopped)
    count = going.count
    await eventually(lambda: going.count > count + 3)
    assert group.sick() == []
