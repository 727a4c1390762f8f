"""Many want to know at once whether a backend can be read: it is asked once, and an old answer proves nothing."""

import asyncio

import pytest

from service.shared_check import CHECK_SHARED_S, SharedCheck


class Still:
    """A clock that stands still until it is set."""

    now_s = 100.0

    def monotonic_s(self) -> float:
        return self.now_s

    def now_ms(self) -> int:
        return int(self.now_s * 1000)


class Prover:
    """Counts how often it is asked, and answers as it was told."""

    def __init__(self) -> None:
        self.asked = 0
        self.error: Exception | None = None
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()

    async def __call__(self) -> None:
        self.asked += 1
        await self.may_go_on.wait()
        if self.error is not None:
            raise self.error


@pytest.fixture
def clock():
    return Still()


@pytest.fixture
def prover():
    return Prover()


@pytest.fixture
def check(prover, clock):
    return SharedCheck(prover, clock, timeout_s=5)


async def test_who_asks_while_one_runs_gets_its_answer(check, prover):
    prover.may_go_on.clear()
    asking = asyncio.gather(*(check.answer(100.0) for _ in range(50)))
    await asyncio.sleep(0)
    prover.may_go_on.set()
    assert await asking == [None] * 50
    assert prover.asked == 1


async def test_a_good_answer_serves_failures_of_calls_that_began_before_it(check, prover, clock):
    """A thousand fetches that fail at once, one after the other, ask once."""
    await check.answer()
    clock.now_s += 0.9 * CHECK_SHARED_S
    assert await check.answer(since_s=99.0) is None
    assert prover.asked == 1


async def test_a_good_answer_from_before_a_call_proves_nothing_about_it(check, prover, clock):
    """The outage may have begun in between. Were it shared, the first jobs of every outage would be charged."""
    await check.answer()
    clock.now_s += 0.1
    prover.error = OSError()
    assert await check.answer(since_s=clock.now_s) is prover.error
    assert prover.asked == 2


async def test_a_bad_answer_serves_whoever_comes_soon(check, prover, clock):
    prover.error = OSError()
    await check.answer()
    clock.now_s += 0.9 * CHECK_SHARED_S
    assert await check.answer(since_s=clock.now_s) is prover.error
    assert prover.asked == 1


async def test_no_answer_serves_for_ever(check, prover, clock):
    await check.answer()
    clock.now_s += CHECK_SHARED_S
    await check.answer()
    assert prover.asked == 2


async def test_a_check_that_takes_too_long_has_failed(prover, clock):
    prover.may_go_on.clear()
    assert isinstance(await SharedCheck(prover, clock, timeout_s=0.01).answer(), TimeoutError)


async def test_who_loses_patience_does_not_end_it_for_the_others(check, prover):
    prover.may_go_on.clear()
    impatient, patient = asyncio.create_task(check.answer()), asyncio.create_task(check.answer())
    await asyncio.sleep(0)
    impatient.cancel()
    await asyncio.sleep(0)
    prover.may_go_on.set()
    assert await patient is None
