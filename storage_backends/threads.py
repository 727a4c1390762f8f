"""Calls that block, in a bounded pool of threads, for a backend whose client library knows no asyncio."""

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from threading import Lock, Semaphore, Thread
from typing import Any, TypeVar

T = TypeVar("T")


class Overdue(Exception):  # named as the other errors of this package: for what happened
    """A call took longer than the limit. `begun`: a thread has it, and it may still take effect."""

    def __init__(self, *, begun: bool) -> None:
        super().__init__()
        self.begun = begun


class Threads:
    """`size` threads, and a spare one that is kept free for the call that must not wait behind the others.

    A thread cannot be interrupted. A call whose caller is cancelled or whose time is up never happens if no thread has
    begun it; otherwise it goes on and keeps its thread, so that no more than `size` are ever under way. What is called
    must therefore end by itself, by timeouts of its own. The process may end before.
    """

    def __init__(self, name: str, size: int, limit_s: float | None) -> None:
        """`limit_s`: of one call; None: none."""
        self._pool = _Daemons(f"{name}-call", size)
        self._spare = _Daemons(f"{name}-spare", 1)
        self._limit_s = limit_s

    async def run(
        self,
        work: Callable[[], T],
        *,
        spare: bool = False,
        abandoned: Callable[[Future[T]], None] | None = None,
    ) -> T:
        """What `work` returns or raises. Raises Overdue after the limit, the wait for a free thread included.

        `abandoned` is called if nobody waits for `work` any more: with its future, when that is over or was cancelled
        before it began, in whichever thread that is known.
        """
        future = (self._spare if spare else self._pool).submit(work)
        timer = None if self._limit_s is None else asyncio.timeout(self._limit_s)
        try:
            if timer is None:
                return await _outcome_of(future)
            async with timer:
                return await _outcome_of(future)
        except BaseException as error:
            begun = not future.cancel()
            if abandoned is not None:
                future.add_done_callback(abandoned)
            if isinstance(error, TimeoutError) and timer is not None and timer.expired():
                raise Overdue(begun=begun) from None
            raise

    async def aclose(self) -> None:
        """Ends the threads, without blocking the loop; those that are still busy after `limit_s` end when they can.

        Cancelled, it waits no longer; nothing else changes.
        """
        ends = [asyncio.wrap_future(end) for pool in (self._pool, self._spare) for end in pool.close()]
        if ends:
            await asyncio.wait(ends, timeout=self._limit_s)


class _Daemons:
    """Up to `size` threads, started when there is work for them.

    Python waits for those of a ThreadPoolExecutor before it ends, so that one call that hangs would keep the whole
    process for as long.
    """

    def __init__(self, name: str, size: int) -> None:
        self._name = name
        self._size = size
        self._ends: list[Future[None]] = []  # one a thread
        self._idle = Semaphore(0)
        self._work: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._lock = Lock()
        self._closed = False

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Raises RuntimeError after `close`."""
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError(f"{self._name} is closed")
            self._work.put((future, work))
            if not self._idle.acquire(blocking=False) and len(self._ends) < self._size:
                self._ends.append(Future())
                name = f"{self._name}-{len(self._ends)}"
                Thread(target=self._run, args=(self._ends[-1],), name=name, daemon=True).start()
        return future

    def close(self) -> list[Future[None]]:
        """Cancels what has not begun. Returns what is done when each thread has ended. Idempotent."""
        with self._lock:
            self._closed = True
            while (left := self._next_now()) is not None:
                left[0].cancel()
            for _ in self._ends:
                self._work.put(None)
        return self._ends

    def _run(self, end: Future[None]) -> None:
        while (given := self._next()) is not None:
            _carry_out(*given)
            del given  # it may hold a payload
        end.set_result(None)

    def _next(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        try:
            return self._work.get_nowait()
        except Empty:
            self._idle.release()
            return self._work.get()

    def _next_now(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        try:
            return self._work.get_nowait()
        except Empty:
            return None


async def _outcome_of(future: Future[T]) -> T:
    """As asyncio.wrap_future, in half the time: nothing is copied, and a cancellation is left to the caller."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()

    def tell(_: Future[T]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended before the thread
            loop.call_soon_threadsafe(_end, over, future.cancelled())

    future.add_done_callback(tell)
    await over
    return future.result()


def _end(over: asyncio.Future[None], cancelled: bool) -> None:
    if over.done():
        return
    if cancelled:
        over.cancel()
    else:
        over.set_result(None)


def _carry_out(future: Future[T], work: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001  it goes to who waits
        future.set_exception(error)
    else:
        future.set_result(result)
