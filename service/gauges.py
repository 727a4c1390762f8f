"""The gauges that describe Redis, read when they are scraped, at most every 5 s and for at most `limit` queues."""

import asyncio
from collections.abc import Sequence
from typing import Final

import structlog

from service.census import Census
from service.clock import Clock
from service.errors import RetryLater
from service.metrics import Metrics, QueueGauges
from service.overdue import Overdue
from service.records import Counts

MAX_AGE_S: Final = 5.0
#: For reading Redis: a scrape is usually given up after 10 s, and must tell the rest while Redis is away.
_PATIENCE_S: Final = 3.0

log = structlog.get_logger(__name__)


class Gauges:
    """`refresh` before a scrape."""

    def __init__(
        self,
        census: Census,
        overdue: Overdue,
        metrics: Metrics,
        clock: Clock,
        *,
        configured: Sequence[str],
        limit: int,
    ) -> None:
        """`configured` queues come first, but no more than `limit`; the index gives the others, in its order."""
        self._census = census
        self._overdue = overdue
        self._metrics = metrics
        self._clock = clock
        self._configured = list(configured)[:limit]
        self._limit = limit
        self._refreshed_s = float("-inf")
        self._lock = asyncio.Lock()

    async def refresh(self) -> None:
        """Reads anew what is older than MAX_AGE_S. Redis being away is itself a figure, not an error."""
        async with self._lock:
            if self._clock.monotonic_s() - self._refreshed_s < MAX_AGE_S:
                return
            self._refreshed_s = self._clock.monotonic_s()
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    await self._read()
            except (RetryLater, TimeoutError) as error:
                self._metrics.redis_up(False)
                log.warning("gauges could not be read", error=type(error).__name__)
            else:
                self._metrics.redis_up(True)

    async def _read(self) -> None:
        known, empty = await self._census.number_of_queues(), await self._census.not_in_index(self._configured)
        names = list(dict.fromkeys((*self._configured, *await self._census.first_queues(self._limit))))[: self._limit]
        gauges = []
        for name, counts in zip(names, await self._census.counts(names), strict=True):
            if isinstance(counts, Exception):
                log.warning("a queue cannot be counted", queue=name, error=str(counts).partition(" ")[0])
            else:
                gauges.append(self._gauges(name, counts))
        self._metrics.snapshot(
            gauges,
            unlisted=max(0, known - (len(names) - empty)),
            memory_ratio=await self._census.memory_ratio(),
            at_ms=self._clock.now_ms(),
        )

    def _gauges(self, queue: str, counts: Counts) -> QueueGauges:
        put_back, oldest_ms = self._overdue.of(queue, counts.now_ms)
        put_back = min(put_back, counts.future)  # some may have been cancelled since
        dues = [due for due in (oldest_ms if put_back else None, counts.next_due_ms) if due is not None]
        return QueueGauges(
            queue,
            future=counts.future - put_back,
            overdue=counts.overdue + put_back,
            leased=counts.leased,
            ready=counts.ready,
            dead=counts.dead,
            trash=counts.trash,
            oldest_overdue_s=max(0.0, (counts.now_ms - min(dues, default=counts.now_ms)) / 1000),
            paused=counts.paused,
        )
