"""The crew: so many jobs at once, whatever queue they are from, and a few waiting at hand while jobs are short."""

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Sequence
from typing import Final, TypeVar

import structlog
from redis.exceptions import ResponseError

from service.errors import RetryLater
from service.metrics import Metrics
from service.worker.handling import Handling, Slot
from service.worker.lane import Lane
from service.worker.placing import Placing
from service.worker.source import Condemned, Entry, Finished, Placed, Postponed
from service.worker.verdicts import Again, Over, Verdict
from service.worker.waiting import Waiting
from service.worker.weights import Shares

T = TypeVar("T")

#: Jobs are taken ahead for about so long: it saves round trips, and keeps no other worker waiting for what lies here.
_AHEAD_S: Final = 0.05
_AHEAD_BYTES: Final = 64 * 2**20  #: with more in hand, nothing is taken ahead
_UNKNOWN_S: Final = 1.0  #: so long a job is taken to last as long as nothing is known of it
_STUCK_S: Final = 1.0  #: no job ended for so long: what waits here is given to those who have time
_SMOOTHING: Final = 0.05  #: of a new duration in the mean of durations
_TURNS: Final = 32  #: jobs that may end without an await before the loop's other tasks have theirs
_PAUSE_S: Final = 0.5  #: before a job that could not be begun for want of Redis is tried again
_CANCELLED_S: Final = 2.0  #: for handlers to end when they are cancelled; who goes on is not waited for

log = structlog.get_logger(__name__)


class Crew:
    """As service.worker.lane.Crew. For one event loop."""

    def __init__(
        self,
        lanes: Sequence[Lane],
        weights: Sequence[float],
        handling: Handling,
        placing: Placing,
        metrics: Metrics,
        *,
        concurrency: int,
        prefetch: int,
        dead_kept_ms: int,
        strict: bool = False,
    ) -> None:
        """`prefetch`: how many are taken ahead at most. `dead_kept_ms`: how long the dead set keeps jobs."""
        self._lanes = list(lanes)
        self._shares = Shares(weights, strict=strict)
        self._handling = handling
        self._placing = placing
        self._metrics = metrics
        self._concurrency = concurrency
        self._prefetch = prefetch
        self._dead_kept_ms = dead_kept_ms
        self._waiting = Waiting(weights, strict=strict)
        self._idle: deque[asyncio.Future[None]] = deque()
        self._hands: list[asyncio.Task[None]] = []
        self._parked: set[asyncio.Task[None]] = set()
        self._discards: set[asyncio.Task[None]] = set()
        self._held = 0  # waiting or running
        self._held_bytes = 0
        self._running = 0
        self._done = 0
        self._hung = 0
        self._asked = 0
        self._mean_s = _UNKNOWN_S  # of one job
        self._ended_s = time.monotonic()  # the last one
        self._stopping = False
        for lane in self._lanes:
            lane.crew = self

    @property
    def running(self) -> int:
        return self._running

    @property
    def done(self) -> int:
        return self._done

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def dead(self) -> list[str]:
        """Hands that ended although nobody told them to."""
        return [] if self._stopping else [hand.get_name() for hand in self._hands if hand.done()]

    def start(self) -> None:
        self._hands = [asyncio.create_task(self._work(), name=f"hand {number}") for number in range(self._concurrency)]
        self.refill()

    def sick(self) -> list[str]:
        """What only a restart mends, in words."""
        sick = [f"{name} is dead" for name in self.dead]
        if self._hung == self._concurrency:
            sick.append("every hand waits for a thread whose time was up")
        return sick

    async def stop(self, grace_s: float) -> int:
        """What has not begun goes back at once; what runs has `grace_s`, then it is cancelled.

        Returns how many were, and ends soon after, whatever they do.
        """
        self._stopping = True
        for lane in self._lanes:
            self._give_back(lane)
        for hand in self._parked:
            hand.cancel()
        late: set[asyncio.Task[None]] = set()
        if self._hands:
            _, late = await asyncio.wait(self._hands, timeout=grace_s)
        for hand in late:
            hand.cancel()
        if late or self._discards:
            await asyncio.wait([*late, *self._discards], timeout=_CANCELLED_S)
        deaf = sum(not hand.done() for hand in late)
        if deaf:
            log.warning("handlers go on although they were cancelled", jobs=deaf)
        return len(late)

    # ---- what lanes tell -------------------------------------------------------------------------------------------

    def received(self, lane: Lane, entries: Sequence[Entry], asked: int) -> None:
        self._asked -= asked
        if asked > len(entries):
            self._shares.refund(lane.index, asked - len(entries))
        if self._stopping or (entries and not asked and self._held >= self._concurrency and not self._ahead()):
            lane.give_back(entries)
            return
        self._waiting.add(lane.index, entries)
        self._held += len(entries)
        self._held_bytes += sum(len(entry.payload) for entry in entries)
        for _ in range(min(len(entries), len(self._idle))):
            idle = self._idle.popleft()
            if not idle.done():
                idle.set_result(None)
        if len(entries) < asked:
            self.refill()

    def forget(self, lane: Lane, placed: Sequence[Placed]) -> None:
        self._drop(lane)
        self._discard(placed)
        self.refill()

    def refill(self) -> None:
        """Asks lanes for as many jobs as there is room for, by their weights."""
        if self._stopping or not self._hands:  # before the start the first that has begun would have all of it
            return
        in_sight, ahead = self._held + self._asked, self._ahead()
        room = self._concurrency - in_sight
        if room <= 0 and ahead + room <= ahead // 2:  # enough is at hand
            return
        lanes = [lane for lane in self._lanes if lane.open]
        self._grant(room, lanes)
        if all(lane.known for lane in lanes):  # else the first that answers would have all of it
            long = [lane for lane in lanes if lane.left > 2 * (self._concurrency + ahead)]
            self._grant(self._concurrency + ahead - self._held - self._asked, long)

    async def unload(self) -> None:
        """A loop's round: gives back what waits behind jobs that take longer than those before them."""
        if len(self._waiting) and time.monotonic() - self._ended_s > _STUCK_S:
            self._mean_s = _UNKNOWN_S
            for lane in self._lanes:
                self._give_back(lane)

    def _give_back(self, lane: Lane) -> None:
        dropped = self._drop(lane)
        if dropped:
            lane.give_back(dropped)

    def _drop(self, lane: Lane) -> list[Entry]:
        dropped = self._waiting.drop(lane.index)
        self._held -= len(dropped)
        self._held_bytes -= sum(len(entry.payload) for entry in dropped)
        return dropped

    def _grant(self, count: int, lanes: Sequence[Lane]) -> None:
        for index, granted in self._shares.grant(count, [lane.index for lane in lanes]).items():
            self._asked += granted
            self._lanes[index].grant(granted)

    def _ahead(self) -> int:
        """How many jobs may wait here."""
        if self._held_bytes > _AHEAD_BYTES:
            return 0
        return min(self._prefetch, math.floor(self._concurrency * _AHEAD_S / self._mean_s))

    # ---- at work ---------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        slot, jobs = Slot(), 0
        while not self._stopping:
            found = self._waiting.next()
            if found is None:
                idle = asyncio.get_running_loop().create_future()
                self._idle.append(idle)
                await self._parked_at(idle)
                continue
            jobs += 1
            if not jobs % _TURNS:
                await asyncio.sleep(0)
            self._running += 1
            try:
                await self._one(self._lanes[found[0]], found[1], slot)
            finally:
                self._running -= 1
                self._held -= 1
                self._held_bytes -= len(found[1].payload)
            self.refill()

    async def _parked_at(self, waiting: Awaitable[T]) -> T:
        """A stop need not wait for a hand that is here."""
        hand = asyncio.current_task()
        assert hand is not None  # noqa: S101  for the type checker: coroutines run in tasks
        self._parked.add(hand)
        try:
            return await waiting
        finally:
            self._parked.discard(hand)

    async def _one(self, lane: Lane, entry: Entry, slot: Slot) -> None:
        while lane.sure(entry) or await self._parked_at(lane.owns(entry)):
            began_s = time.monotonic()
            try:
                verdict = await self._handling.handle(entry, lane.source, slot, lambda: lane.struck)
            except (RetryLater, ResponseError) as error:
                log.warning("job waits for Redis", queue=lane.queue, error=type(error).__name__)
                await self._parked_at(asyncio.sleep(_PAUSE_S))
                continue
            self._ended_s = time.monotonic()
            seconds = self._ended_s - began_s
            self._mean_s += (max(seconds, 1e-6) - self._mean_s) * _SMOOTHING
            await self._settle(lane, entry, verdict, seconds)
            if slot.thread_over is not None:
                log.warning("a thread goes on after its time was up", queue=lane.queue, task=verdict.task)
                self._hung += 1
                try:
                    await self._parked_at(slot.thread_over)
                finally:
                    self._hung -= 1
                slot.thread_over = None
            return

    async def _settle(self, lane: Lane, entry: Entry, verdict: Verdict, seconds: float) -> None:
        self._done += 1
        if isinstance(verdict, Over):
            self._metrics.worker_job(lane.queue, verdict.task, verdict.outcome, seconds)
            lane.finish(Finished(entry, verdict.once_key, verdict.once_ms))
        elif isinstance(verdict, Again):
            self._metrics.worker_job(lane.queue, verdict.task, "retried", seconds)
            placed = await self._placing.place(lane.queue, verdict.envelope, verdict.wait_ms)
            if not lane.postpone(Postponed(entry, placed, verdict.attempts)):
                self._discard([placed])
        else:
            self._metrics.worker_job(lane.queue, verdict.task, "dead", seconds)
            placed = await self._placing.place(lane.queue, verdict.envelope, 0, kept_ms=self._dead_kept_ms)
            self._metrics.buried(lane.queue, placed.reference.backend, verdict.reason)
            if not lane.condemn(Condemned(entry, placed, verdict.record)):
                self._discard([placed])

    def _discard(self, placed: Sequence[Placed]) -> None:
        if any(each.put_at_ms is not None for each in placed):
            task = asyncio.create_task(self._placing.discard(list(placed)), name="discard payloads")
            self._discards.add(task)
            task.add_done_callback(self._discards.discard)
