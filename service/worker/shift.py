"""A shift: one process's work on some queues, from its first sign of life to the last job given back.

lanes begin ─► hands at work, loops running ─► stop: nothing more is taken, what has not begun goes back
                                                 └─► what runs is finished within grace ─► Redis has heard ─► left
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import structlog
from redis.exceptions import ResponseError

from service.clock import Clock
from service.errors import RetryLater
from service.loops import Loop, Loops
from service.metrics import Metrics
from service.services import Health
from service.together import all_of
from service.worker.crew import Crew
from service.worker.handling import Handling
from service.worker.lane import Lane
from service.worker.upkeep import Heartbeat, Reaper

_PAUSE_S: Final = 0.5
_UNLOAD_S: Final = 0.5
_TELL_S: Final = 3.0  #: at a stop, for telling Redis what became of the last jobs
_LEAVE_S: Final = 1.0
_LOOPS_S: Final = 0.5

log = structlog.get_logger(__name__)


class Shift:
    """For one event loop, to be built within it."""

    def __init__(
        self,
        lanes: Sequence[Lane],
        crew: Crew,
        handling: Handling,
        metrics: Metrics,
        clock: Clock,
        *,
        heartbeat_s: float,
        reap_s: float,
        grace_s: float,
        hangs_after_s: float,
    ) -> None:
        """`reap_s`: how often one queue is looked at for dead workers' jobs, in turn. `hangs_after_s`: as Loop."""
        self._lanes = list(lanes)
        self._crew = crew
        self._handling = handling
        self._metrics = metrics
        self._grace_s = grace_s
        heartbeat = Heartbeat(self._lanes, heartbeat_s)
        reaper = Reaper(self._lanes, heartbeat, metrics, steady_s=1.5 * heartbeat_s)

        def loop(name: str, round_: Callable[[], object], interval_s: float, *, interruptible: bool = True) -> Loop:
            return Loop(
                name,
                round_,  # type: ignore[arg-type]  # a round gives seconds or nothing
                interval_s=interval_s,
                clock=clock,
                metrics=metrics,
                interruptible=interruptible,
                hangs_after_s=hangs_after_s,
            )

        loops = [
            loop("heartbeat", heartbeat.round, heartbeat_s),
            loop("reap", reaper.round, reap_s),
            loop("unload", crew.unload, _UNLOAD_S),
        ]
        for lane in self._lanes:
            take, listen = loop("take", lane.round, 60.0), loop("listen", lane.listen, 60.0)
            lane.wake, lane.wake_listener = take.wake, listen.wake
            loops += [take, listen]
        self._loops = Loops(loops)
        self._stopping = False

    @property
    def running(self) -> int:
        """Jobs whose handlers run now."""
        return self._crew.running

    @property
    def done(self) -> int:
        """Attempts that ended, however."""
        return self._crew.done

    async def start(self) -> None:
        """Waits while Redis is away. A queue that cannot be used is begun later, and keeps no other from that."""
        await all_of(self._begin(lane) for lane in self._lanes)
        self._loops.start()
        self._crew.start()
        log.info("working", queues=[lane.queue for lane in self._lanes])

    async def stop(self) -> None:
        """Over within grace and some seconds. What could not be finished goes back, and is done from the start.

        Not so if something ended this worker's tasks before: who knows a job that does that to each worker? Nothing is
        given back then. The others take it for dead, as if it had been killed, and count that against its jobs.
        """
        torn = bool(self._loops.sick() or self._crew.dead)
        self._stopping = True
        log.info("finishing", running=self._crew.running, waiting=self._crew.waiting)
        await asyncio.gather(*(lane.stop() for lane in self._lanes))
        cancelled = await self._crew.stop(self._grace_s)
        if not torn:
            await self._told()
        await self._loops.stop(_LOOPS_S)
        back = 0
        if torn:
            log.error("something ended this worker's tasks; others return its jobs")
            await asyncio.gather(*(lane.source.hang_up() for lane in self._lanes))
        else:
            back = sum(await asyncio.gather(*(self._left(lane) for lane in self._lanes)))
        await self._handling.aclose()
        log.info("left", cancelled=cancelled, handed_back=back)

    def alive(self) -> Health:
        """Not, if a loop or a hand is dead or hangs: then a restart is needed."""
        sick = [f"loop {name} is dead or hangs" for name in self._loops.sick()]
        sick += self._crew.sick()
        return Health(not sick, sick)

    def ready(self) -> Health:
        """Not, if it takes no jobs."""
        reasons = [*self.alive().reasons, *(["stopping"] if self._stopping else [])]
        return Health(not reasons, reasons)

    def measure(self) -> None:
        """Before a scrape."""
        self._metrics.worker_now(self._crew.running, self._crew.waiting)

    async def _begin(self, lane: Lane) -> None:
        while True:
            try:
                await lane.begin()
            except RetryLater as error:
                log.warning("waiting for Redis", queue=lane.queue, code=error.code)
                await asyncio.sleep(_PAUSE_S)
            except ResponseError as error:
                log.error("queue cannot be used", queue=lane.queue, error=str(error).partition(" ")[0])  # noqa: TRY400  as in Lane.round
                return
            else:
                return

    async def _told(self) -> None:
        deadline = asyncio.get_running_loop().time() + _TELL_S
        while not all(lane.settled for lane in self._lanes):
            if asyncio.get_running_loop().time() > deadline:
                log.warning("Redis could not be told of the last jobs; they will be done again")
                return
            for lane in self._lanes:
                lane.wake()
            await asyncio.sleep(0.01)

    async def _left(self, lane: Lane) -> int:
        try:
            async with asyncio.timeout(_LEAVE_S):
                return await lane.source.leave()
        except (RetryLater, ResponseError, TimeoutError) as error:
            log.warning("not left in order; others return the jobs", queue=lane.queue, error=type(error).__name__)
            return 0
