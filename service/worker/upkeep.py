"""Signs of life, and the return of jobs whose worker gives none. Every worker does both; there is no leader."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import Sequence
from typing import Final

import structlog
from redis.exceptions import ResponseError

from service.metrics import Metrics
from service.together import all_of
from service.worker.lane import Lane

#: One after the other, those of many queues would come too late where Redis takes long to answer.
_BEATS_AT_ONCE: Final = 16

log = structlog.get_logger(__name__)


class Heartbeat:
    """`round` is a loop's round. Raises RetryLater; what did not beat in time is taken for dead by others."""

    def __init__(self, lanes: Sequence[Lane], interval_s: float) -> None:
        self._lanes = lanes
        self._interval_s = interval_s
        self._steady_since_s = self._last_s = time.monotonic()

    async def round(self) -> None:
        first, *others = self._lanes
        await self._beat(first)  # Redis tells it the time, for all
        turns = asyncio.Semaphore(_BEATS_AT_ONCE)
        await all_of(self._beat(lane, turns) for lane in others)
        now_s = time.monotonic()
        if now_s - self._last_s > 2 * self._interval_s:
            self._steady_since_s = now_s
        self._last_s = now_s

    async def _beat(self, lane: Lane, turns: asyncio.Semaphore | None = None) -> None:
        async with turns or contextlib.nullcontext():
            try:
                await lane.beat()
            except ResponseError as error:  # to its keys alone: the other queues' workers live on
                log.error("queue cannot be used", queue=lane.queue, error=str(error).partition(" ")[0])  # noqa: TRY400  as in Lane.round

    @property
    def steady_s(self) -> float:
        """For how long this worker has been heard without a gap: so long the others can have been heard, too."""
        now_s = time.monotonic()
        return 0.0 if now_s - self._last_s > 2 * self._interval_s else now_s - self._steady_since_s


class Reaper:
    """`round` is a loop's round; bounded. Raises RetryLater.

    After an outage of Redis every heartbeat is overdue. So nobody is taken for dead before all have had time to beat.
    """

    def __init__(self, lanes: Sequence[Lane], heartbeat: Heartbeat, metrics: Metrics, *, steady_s: float) -> None:
        self._lanes = itertools.cycle(lanes)
        self._heartbeat = heartbeat
        self._metrics = metrics
        self._steady_s = steady_s

    async def round(self) -> None:
        """One queue's turn."""
        if self._heartbeat.steady_s < self._steady_s:
            return
        lane = next(self._lanes)
        try:
            reaped = await lane.source.reap()
        except ResponseError as error:  # likewise: the next round is another queue's
            log.error("queue cannot be used", queue=lane.queue, error=str(error).partition(" ")[0])  # noqa: TRY400  as in Lane.round
            return
        lane.suspected(reaped.suspects)
        if reaped.workers:
            self._metrics.worker_reaped(lane.queue, reaped.returned + reaped.suspected)
            log.warning(
                "returned jobs of workers that were not heard of",
                queue=lane.queue,
                workers=reaped.workers,
                jobs=reaped.returned,
                suspects=reaped.suspected,
            )
