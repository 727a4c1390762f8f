"""The slow pass over all queues: repairs the index, and trims dead sets by age and number.

Every process with a dispatcher does it; doing it twice changes nothing.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import structlog

from service.census import Census
from service.ledger import Ledger
from service.metrics import Metrics

INTERVAL_S: Final = 60.0
#: Calls of SCAN a pass, of 1,000 keys each: a queue that the index lost is found within (keys / 20,000) minutes, and a
#: Redis with millions of other keys is not read through every minute.
_SCAN_STEPS: Final = 20
_TRIM_PAGE: Final = 500
_TRIM_PAGES: Final = 400  #: a pass, all queues together: 20 s. The rest is trimmed by the next ones
_BREATH_S: Final = 0.05  #: between pages, so that the pass over 10,000 queues does not look like load

log = structlog.get_logger(__name__)


class Housekeeping:
    """`round` is a loop's round."""

    def __init__(
        self, ledger: Ledger, census: Census, metrics: Metrics, *, dead_max_age_ms: int, dead_max_count: int
    ) -> None:
        self._ledger = ledger
        self._census = census
        self._metrics = metrics
        self._dead_max_age_ms = dead_max_age_ms
        self._dead_max_count = dead_max_count
        self._cursor = 0
        self._pages_left = 0

    async def round(self) -> None:
        self._pages_left = _TRIM_PAGES
        async for queues in self._census.queues():
            await self._look_after(queues)
            await asyncio.sleep(_BREATH_S)
        self._cursor, strays = await self._census.stray_queues(self._cursor, _SCAN_STEPS)
        await self._look_after(sorted(strays))

    async def _look_after(self, queues: Sequence[str]) -> None:
        repaired = await self._ledger.repair(queues)
        if repaired:
            self._metrics.index_repaired(repaired)
            log.warning("the index was out of step", queues=repaired)
        now_ms = await self._ledger.now_ms()
        for queue, (count, first_ms) in zip(queues, await self._census.dead(queues), strict=True):
            if count > self._dead_max_count or (first_ms is not None and first_ms < now_ms - self._dead_max_age_ms):
                await self._trim(queue, count - self._dead_max_count, now_ms - self._dead_max_age_ms)

    async def _trim(self, queue: str, surplus: int, before_ms: int) -> None:
        trimmed = 0
        while self._pages_left > 0:
            self._pages_left -= 1
            members = await self._census.oldest_dead(queue, _TRIM_PAGE, before_ms)
            if not members and trimmed < surplus:
                members = await self._census.oldest_dead(queue, min(_TRIM_PAGE, surplus - trimmed))
            if not members:
                break
            trimmed += await self._ledger.purge(queue, members)
            await asyncio.sleep(_BREATH_S)
        if trimmed:
            self._metrics.trimmed(queue, trimmed)
            log.error("dead jobs were discarded", queue=queue, count=trimmed)
