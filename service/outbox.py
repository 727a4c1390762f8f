"""One queue's fetched payloads on their way to its ready queue. While one delivery is under way, the next gathers."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from service.errors import RedisUnavailable
from service.ledger import Ledger
from service.records import Delivery, Leased
from service.runner import chunks

T = TypeVar("T")
#: While there is a backlog, which makes jobs late by more. A script for each payload costs a tenth of fetching it.
_GATHER_S: Final = 0.01
_PAUSE_MIN_S: Final = 0.05
_PAUSE_MAX_S: Final = 1.0


async def patiently(request: Callable[[], Awaitable[T]], ledger: Ledger, until_ms: float) -> T:
    """Repeats `request` while Redis is away, until `until_ms` by Redis's clock: after a lease, trying on is for others.

    For requests that find their own work done the second time.
    """
    pause_s = _PAUSE_MIN_S
    while True:
        try:
            return await request()
        except RedisUnavailable:
            if ledger.clock.now_ms() + pause_s * 1000 >= until_ms:
                raise
        await asyncio.sleep(pause_s)
        pause_s = min(_PAUSE_MAX_S, pause_s * 2)


class Outbox:
    """`deliver` may be called by many at once. No task of its own is alive while nothing waits."""

    def __init__(self, queue: str, ledger: Ledger, busy: Callable[[], bool] = lambda: False) -> None:
        """`busy`: more payloads are on their way, so that waiting for them a moment saves scripts."""
        self._queue = queue
        self._ledger = ledger
        self._busy = busy
        self._waiting: list[tuple[Leased, bytes, asyncio.Future[tuple[Delivery, int]]]] = []
        self._delivering: asyncio.Task[None] | None = None

    @property
    def idle(self) -> bool:
        return self._delivering is None

    async def deliver(self, job: Leased, payload: bytes) -> tuple[Delivery, int]:
        """What became of it, and when by Redis's clock, ms.

        Raises RedisUnavailable if Redis stayed away until the lease was over. Cancelling the caller does not stop a
        delivery that is under way.
        """
        future: asyncio.Future[tuple[Delivery, int]] = asyncio.get_running_loop().create_future()
        self._waiting.append((job, payload, future))
        if self._delivering is None:
            self._delivering = asyncio.create_task(self._run(), name=f"deliver {self._queue}")
        return await future

    async def aclose(self) -> None:
        """Stops trying. Those who still wait are cancelled; a delivery that was sent may happen."""
        if self._delivering is not None:
            self._delivering.cancel()
            await asyncio.wait([self._delivering])
            self._delivering = None
        for _, _, future in self._waiting:
            future.cancel()
        self._waiting.clear()

    async def _run(self) -> None:
        try:
            while self._waiting:
                if self._busy():
                    await asyncio.sleep(_GATHER_S)
                batch = next(chunks(self._waiting, lambda entry: len(entry[1])))
                del self._waiting[: len(batch)]
                await self._deliver(batch)
        finally:
            self._delivering = None

    async def _deliver(self, batch: list[tuple[Leased, bytes, asyncio.Future[tuple[Delivery, int]]]]) -> None:
        jobs = [(job, payload) for job, payload, future in batch if not future.done()]
        if not jobs:
            return
        futures = [future for _, _, future in batch if not future.done()]
        try:
            until_ms = min(job.token for job, _ in jobs)
            delivered = await patiently(lambda: self._ledger.deliver(self._queue, jobs), self._ledger, until_ms)
        except asyncio.CancelledError:
            for future in futures:
                future.cancel()
            raise
        except Exception as error:  # noqa: BLE001  it goes to everyone who waits for this delivery
            for future in futures:
                if not future.done():
                    future.set_exception(error)
            return
        for future, outcome in zip(futures, delivered.outcomes, strict=True):
            if not future.done():
                future.set_result((outcome, delivered.now_ms))
