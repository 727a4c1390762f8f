"""Threads: bounded, cancellable as far as a thread can be, and never in the loop's way."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import Future

import pytest

from storage_backends.threads import Overdue, Threads
from tests.kit.waiting import eventually

LIMIT_S = 0.3


@pytest.fixture
async def threads() -> AsyncIterator[Threads]:
    made = Threads("test", 2, LIMIT_S)
    yield made
    await made.aclose()


class Gate:
    """Work that blocks its thread until it is opened."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.opened = threading.Event()
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        self.begun.release()
        assert self.opened.wait(20)
        return "through"


@pytest.fixture
def gate() -> Gate:
    return Gate()


async def begun(gate: Gate, count: int = 1) -> None:
    for _ in range(count):
        await eventually(lambda: gate.begun.acquire(blocking=False), described="a thread has begun")


async def test_it_returns_and_raises_what_the_work_does(threads: Threads) -> None:
    assert await threads.run(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await threads.run(lambda: 1 // 0)


async def test_a_timeout_of_the_work_is_not_ours(threads: Threads) -> None:
    """Sockets raise TimeoutError, too; only the limit is Overdue."""

    def timed_out() -> None:
        raise TimeoutError("a socket's")

    with pytest.raises(TimeoutError, match="a socket's"):
        await threads.run(timed_out)


async def test_no_more_than_its_size_are_under_way(threads: Threads, gate: Gate) -> None:
    tasks = [asyncio.create_task(threads.run(gate)) for _ in range(10)]
    await begun(gate, 2)
    assert gate.calls == 2
    gate.opened.set()
    assert await asyncio.gather(*tasks) == ["through"] * 10


async def test_what_is_overdue_says_whether_it_had_begun(threads: Threads, gate: Gate) -> None:
    """A put that still stood in the queue has certainly not happened."""
    tasks = [asyncio.create_task(threads.run(gate)) for _ in range(3)]
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [outcome.begun for outcome in outcomes if isinstance(outcome, Overdue)] == [True, True, False]
    gate.opened.set()
    await eventually(lambda: _free(threads), described="the pool is free")
    assert gate.calls == 2


async def _free(threads: Threads) -> bool:
    try:
        return await threads.run(lambda: True)
    except Overdue:
        return False


async def test_the_spare_thread_waits_for_nobody(threads: Threads, gate: Gate) -> None:
    tasks = [asyncio.create_task(threads.run(gate)) for _ in range(4)]
    await begun(gate, 2)
    assert await threads.run(lambda: "spare", spare=True) == "spare"
    gate.opened.set()
    await asyncio.gather(*tasks)


async def test_a_cancelled_call_that_had_not_begun_never_happens(threads: Threads, gate: Gate) -> None:
    held = [asyncio.create_task(threads.run(gate)) for _ in range(2)]
    await begun(gate, 2)
    over: list[bool] = []
    happened = threading.Event()
    waiting = asyncio.create_task(threads.run(happened.set, abandoned=lambda future: over.append(future.cancelled())))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    gate.opened.set()
    await asyncio.gather(*held)
    assert over == [True]
    assert not happened.is_set()


async def test_the_result_of_a_cancelled_call_is_not_lost(threads: Threads, gate: Gate) -> None:
    """It may hold a connection that somebody has to close."""
    left: list[str] = []
    arrived = threading.Event()

    def keep(future: Future[str]) -> None:
        left.append(future.result())
        arrived.set()

    task = asyncio.create_task(threads.run(gate, abandoned=keep))
    await begun(gate)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gate.opened.set()
    await eventually(arrived.is_set, described="the result is handed over")
    assert left == ["through"]


async def test_a_call_that_is_awaited_to_its_end_is_not_abandoned(threads: Threads) -> None:
    assert await threads.run(lambda: 7, abandoned=lambda _: pytest.fail("abandoned")) == 7


def test_python_ends_without_waiting_for_a_thread_that_hangs() -> None:
    """A process that is told to stop would otherwise stay for as long as its slowest connection."""
    code = """
import asyncio, threading
from storage_backends.threads import Threads

async def main():
    threads, begun = Threads("test", 1, 30.0), threading.Event()
    task = asyncio.create_task(threads.run(lambda: begun.set() or threading.Event().wait()))
    while not begun.is_set():
        await asyncio.sleep(0.001)
    task.cancel()
    try:
        async with asyncio.timeout(0.01):
            await threads.aclose()
    except TimeoutError:
        print("given up")

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], timeout=20, check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("given up\n", "")


async def test_closing_ends_its_threads_and_what_waited_for_them(threads: Threads, gate: Gate) -> None:
    running = [asyncio.create_task(threads.run(gate)) for _ in range(2)]
    await begun(gate, 2)
    waiting = asyncio.create_task(threads.run(gate))
    await asyncio.sleep(0)
    closing = asyncio.create_task(threads.aclose())
    with pytest.raises(asyncio.CancelledError):
        await waiting
    gate.opened.set()
    await closing
    assert await asyncio.gather(*running) == ["through"] * 2
    assert gate.calls == 2
    for thread in threading.enumerate():
        if thread.name.startswith("test-call"):
            thread.join(10)  # it says that it ends a moment before it has
            assert not thread.is_alive()
    with pytest.raises(RuntimeError, match="test-call is closed"):
        await threads.run(gate)


async def test_closing_waits_for_its_threads_but_not_for_ever(gate: Gate) -> None:
    """Nor does it hold up the loop, nor mind being called twice."""
    threads = Threads("test", 1, LIMIT_S)
    task = asyncio.create_task(threads.run(gate))
    await begun(gate)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    at = time.monotonic()
    await threads.aclose()
    assert time.monotonic() - at < 10 * LIMIT_S
    gate.opened.set()
    await threads.aclose()


async def test_without_a_limit_a_call_may_take_its_time_and_closing_still_ends_what_waits(gate: Gate) -> None:
    """Handlers of a worker have limits of their own, or none."""
    threads = Threads("test", 1, None)
    held = asyncio.create_task(threads.run(gate))
    await begun(gate)
    waiting = asyncio.create_task(threads.run(gate))
    await asyncio.sleep(0)
    closing = asyncio.create_task(threads.aclose())
    with pytest.raises(asyncio.CancelledError):
        await waiting
    gate.opened.set()
    assert await held == "through"
    await closing


def test_a_thread_that_outlives_its_loop_ends_without_a_word() -> None:
    """Its answer is for nobody; a traceback for each would fill a log at every stop."""
    opened, begun, errors = threading.Event(), threading.Event(), list[object]()
    before, threading.excepthook = threading.excepthook, errors.append
    threads, ended = Threads("late", 1, None), threading.Event()

    def work() -> None:
        begun.set()
        assert opened.wait(20)

    async def main() -> None:
        task = asyncio.create_task(threads.run(work, abandoned=lambda _: ended.set()))
        await eventually(begun.is_set, described="a thread has begun")
        task.cancel()

    try:
        asyncio.run(main())
        opened.set()
        assert ended.wait(20)
    finally:
        threading.excepthook = before
    assert errors == []
