"""Calls that block, in a bounded pool of threads, for a backend whose client library knows no asyncio."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

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
    must therefore end by itself, by timeouts of its own.
    """

    def __init__(self, name: str, size: int, limit_s: float) -> None:
        self._pool = ThreadPoolExecutor(size, thread_name_prefix=f"{name}-call")
        self._spare = ThreadPoolExecutor(1, thread_name_prefix=f"{name}-spare")
        self._limit_s = limit_s

    async def run(
        self,
        work: Callable[[], T],
        *,
        spare: bool = False,
        abandoned: Callable[[Future[T]], None] | None = None,
    ) -> T:
        """What `work` returns or raises. Raises Overdue after `limit_s`, the wait for a free thread included.

        `abandoned` is called if nobody waits for `work` any more: with its future, when that is over or was cancelled
        before it began, in whichever thread that is known.
        """
        future = (self._spare if spare else self._pool).submit(work)
        timer = asyncio.timeout(self._limit_s)
        try:
            async with timer:
                return await asyncio.wrap_future(future)
        except BaseException as error:
            begun = not future.cancel()
            if abandoned is not None:
                future.add_done_callback(abandoned)
            if isinstance(error, TimeoutError) and timer.expired():
                raise Overdue(begun=begun) from None
            raise

    async def aclose(self) -> None:
        """Ends the threads, without blocking the loop; those that are still busy after `limit_s` end when they can."""
        for pool in (self._pool, self._spare):
            pool.shutdown(wait=False, cancel_futures=True)
        joined = asyncio.gather(*(asyncio.to_thread(pool.shutdown) for pool in (self._pool, self._spare)))
        await asyncio.wait([joined], timeout=self._limit_s)
