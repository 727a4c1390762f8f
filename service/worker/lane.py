"""A lane: one queue's way through this worker. It alone talks to its source about jobs, one request after another.

granted by the crew ─► turn: let go of the finished, take more ─► received by the crew
nothing there ─► asleep in Redis (listen) ─► one job, or some seconds later again
an answer that was not seen ─► the same turn again; what it may have taken is found among the holdings, and adopted
taken for dead ─► everything in hand is forgotten, and a new life begins under another name
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol

import structlog
from redis.exceptions import ResponseError

from service.errors import RetryLater
from service.metrics import Metrics
from service.worker.held import Held
from service.worker.outgoing import Outgoing
from service.worker.source import Condemned, Entry, Finished, Placed, Postponed, Source, Turn

#: Finished jobs gather for so long if no turn is due anyway: each turn costs as much as some jobs.
_GATHER_S: Final = 0.005
_WATCH_S: Final = 60.0  #: what was sent and not answered is carried out by then, or never
_LATER_S: Final = 60.0  #: until a lane that nobody wakes looks by itself

log = structlog.get_logger(__name__)


class Crew(Protocol):
    """Who works on what lanes bring."""

    def received(self, lane: "Lane", entries: Sequence[Entry], asked: int) -> None:
        """The answer to a grant of `asked`; 0 for what came without one."""

    def forget(self, lane: "Lane", placed: Sequence[Placed]) -> None:
        """What it holds is no longer this worker's, and nobody needs these payloads."""

    def refill(self) -> None:
        """There may be jobs where there were none."""


class Lane:
    """`round` and `listen` are rounds of loops, `wake` and `wake_listener` their wake-ups, set by who makes these."""

    def __init__(self, index: int, source: Source, metrics: Metrics, *, patience_s: float, cool_down_s: float) -> None:
        self.index = index
        self.source = source
        self.queue = source.queue
        self.crew: Crew
        self.wake: Callable[[], None] = lambda: None
        self.wake_listener: Callable[[], None] = lambda: None
        self.left = 0  #: jobs in the queue, when last heard of
        self.known = False  #: whether `left` was ever told, in this life
        self.struck = False
        self._metrics = metrics
        self._patience_s = patience_s
        self._cool_down_s = cool_down_s
        self._held = Held()
        self._outgoing = Outgoing()
        self._number = 0
        self._granted = 0
        self._asked = 0  # of what was granted, in a turn under way
        self._asleep = False  # there was nothing, and whoever listens will hear when there is
        self._rests_until_s = 0.0
        self._doubtful = False  # Redis may know of jobs in our hands that we do not know of
        self._lost = True  # until it has begun
        self._stopping = False
        self._watched_until_s = 0.0
        self._suspects = 0
        self._sure_until_s = 0.0
        self._heard = asyncio.Event()
        self._unanswered: tuple[Callable[[], Awaitable[Any]], Callable[[Any], None]] | None = None
        self._alarm: asyncio.TimerHandle | None = None

    # ---- for the crew ----------------------------------------------------------------------------------------------

    @property
    def open(self) -> bool:
        """Whether asking for jobs makes sense."""
        return not self._asleep and not self._lost and self._rests_until_s <= time.monotonic()

    @property
    def settled(self) -> bool:
        """Whether Redis has heard of everything."""
        return self._outgoing.empty and self._unanswered is None

    def grant(self, count: int) -> None:
        self._granted += count
        self.wake()

    def sure(self, entry: Entry) -> bool:
        """Whether it is certainly ours: then it may be begun."""
        mine = entry.worker == self.source.worker and not self._lost
        return mine and time.monotonic() < self._sure_until_s

    async def owns(self, entry: Entry) -> bool:
        """The same, but waits while it cannot be known: this worker may have been taken for dead."""
        while entry.worker == self.source.worker and not self._lost:
            if self.sure(entry):
                return True
            self._heard.clear()
            await self._heard.wait()
        return False

    def finish(self, finished: Finished) -> None:
        if self._ours(finished.entry) or finished.once_key is not None:  # the mark is set, whoever has the job now
            self._outgoing.finished.append(finished)
            if self._outgoing.urgent or self._stopping:
                self.wake()
            elif self._alarm is None:
                self._alarm = asyncio.get_running_loop().call_later(_GATHER_S, self.wake)

    def postpone(self, job: Postponed) -> bool:
        """False: it is no longer ours, and its payload nobody's."""
        if self._ours(job.entry):
            self._outgoing.postponed.append(job)
            self.wake()
            return True
        return False

    def condemn(self, job: Condemned) -> bool:
        """Likewise."""
        if self._ours(job.entry):
            self._outgoing.condemned.append(job)
            self.wake()
            return True
        return False

    def give_back(self, entries: Sequence[Entry]) -> None:
        """Not begun."""
        self._outgoing.returned += entries
        self.left += len(entries)
        self.wake()

    async def stop(self) -> None:
        """Takes nothing more."""
        self._stopping, self._granted = True, 0
        self.wake()
        await self.source.rouse()

    # ---- signs of life ---------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Under a new name. Raises RetryLater."""
        began_s = time.monotonic()
        await self.source.begin()
        self._held.clear()
        self._number, self._lost, self._doubtful, self.known = 0, False, False, False
        self._alive(began_s)

    async def beat(self) -> None:
        """Raises RetryLater."""
        began_s, name, changes = time.monotonic(), self.source.worker, self._held.changes
        pulse = await self.source.beat(count=bool(self._held) or began_s < self._watched_until_s)
        if name != self.source.worker or self._lost:
            return
        if not pulse.alive:
            self._lose()
            return
        if changes == self._held.changes and pulse.held is not None and pulse.held > len(self._held):
            self._doubt()
            self.wake()
        self._alive(began_s)

    def suspected(self, suspects: int) -> None:
        """So many wait, which nobody is woken by."""
        self._suspects = suspects
        if suspects and self._held.suspect is None and self._asleep:
            self._awake()

    def _alive(self, began_s: float) -> None:
        self._sure_until_s = began_s + self._patience_s
        self._heard.set()
        self.crew.refill()

    def _doubt(self) -> None:
        """Redis may know of jobs in our hands that we do not know of, and may yet put some there."""
        self._doubtful = True
        self._watched_until_s = time.monotonic() + _WATCH_S

    def _lose(self) -> None:
        """Taken for dead: others have our jobs by now."""
        if self._lost:
            return
        log.warning("taken for dead", queue=self.queue, worker=self.source.worker, jobs=len(self._held))
        self._metrics.worker_lost(self.queue)
        self._lost, self._doubtful, self._asleep = True, False, False
        self._held.clear()
        self.crew.forget(self, self._outgoing.forget())
        self._heard.set()
        self.wake()

    # ---- asking ----------------------------------------------------------------------------------------------------

    async def round(self) -> float:
        """Everything that is to be said now. Raises RetryLater; then it is said again."""
        try:
            if self._unanswered is not None:
                await self._ask(*self._unanswered)
            if self._lost:
                await self.begin()
            if self._doubtful and not self._lost:
                await self._reconcile()
            await self._let_go()
            if self._granted or self._outgoing.finished:
                await self._take()
        except ResponseError as error:
            log.error("queue cannot be used", queue=self.queue, error=str(error).partition(" ")[0])  # noqa: TRY400  this is its handling
            return self._rest()
        return 0.0 if self._granted or self._doubtful or self._lost or self._outgoing.urgent else _LATER_S

    async def listen(self) -> float:
        """Sleeps in Redis while there is nothing. Raises RetryLater."""
        if not self._asleep or self._stopping:
            return _LATER_S
        try:
            entry = await self.source.wait()
        except RetryLater:
            self._doubt()
            self._awake()
            raise
        if entry is not None and entry.worker == self.source.worker and not self._lost:
            self._held.add([entry])
            self.struck = True  # perhaps; the next turn tells
            self.crew.received(self, [entry], 0)
            self._awake()
        return 0.0

    def _awake(self) -> None:
        self._asleep = False
        self.wake()
        self.crew.refill()

    async def _ask(self, request: Callable[[], Awaitable[Any]], answered: Callable[[Any], None]) -> None:
        """One request that has its effect once. Unless it is answered, the next round begins with it."""
        self._unanswered = (request, answered)
        answer = await request()
        self._unanswered = None
        answered(answer)

    async def _let_go(self) -> None:
        outgoing = self._outgoing
        while later := outgoing.take(outgoing.postponed):
            await self._ask(partial(self.source.postpone, self._next(), later), partial(self._left_hands, later))
        while dying := outgoing.take(outgoing.condemned):
            await self._ask(partial(self.source.condemn, self._next(), dying), partial(self._left_hands, dying))
        while back := outgoing.take_returned():
            await self._ask(partial(self.source.hand_back, back), partial(self._went_back, back))

    async def _take(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        finished = self._outgoing.take(self._outgoing.finished)
        count, self._asked, self._granted = self._granted, self._granted, 0
        number, suspect = self._next(), self._held.suspect is None and self._suspects > 0
        request = partial(self.source.turn, number, finished, count, suspect=suspect)
        await self._ask(request, lambda turn: self._took(turn, finished, count))

    def _took(self, turn: Turn, finished: Sequence[Finished], count: int) -> None:
        if turn.status == "lost":
            self._lose()
        else:
            self._held.remove([each.entry for each in finished])
        if turn.status == "repeated":
            self._doubt()
        if turn.status == "unusable":
            self._metrics.ready_unusable(self.queue)
            self._rest()
        if turn.missing:
            self._metrics.worker_missing(self.queue, turn.missing)
        self.left, self.struck, self.known = turn.left, turn.struck, True
        entries = [] if self._lost else turn.entries
        self._held.add(entries)
        if turn.status == "ok" and count and len(turn.entries) < count and not turn.left:
            self._asleep = True
            self.wake_listener()
        asked, self._asked = self._asked, 0
        self.crew.received(self, entries, asked)
        self.suspected(turn.suspects)  # the next one at once: a killer may have put a hundred others under suspicion

    def _left_hands(self, jobs: Sequence[Postponed | Condemned], outcomes: Sequence[bool]) -> None:
        missing = len(jobs) - sum(outcomes)
        if missing:
            self._metrics.worker_missing(self.queue, missing)
            self._doubt()
        self._held.remove([job.entry for job in jobs])
        self.suspected(self._suspects)

    def _went_back(self, entries: Sequence[Entry], back: int) -> None:
        self._held.remove(entries)
        if back < len(entries):
            self._doubt()

    async def _reconcile(self) -> None:
        """Takes up what Redis says is in our hands and we were not told of. No answer of a pop is on its way then."""
        await self.source.hang_up()
        self._asleep = False
        found = await self.source.holdings()
        self._doubtful = False
        adopted = self._held.unknown(found)
        if adopted:
            log.warning("adopted", queue=self.queue, jobs=len(adopted))
            self._held.add(adopted)
            self.struck = True
            self.crew.received(self, adopted, 0)
        self.crew.refill()

    # ---- in hand ---------------------------------------------------------------------------------------------------

    def _ours(self, entry: Entry) -> bool:
        if entry.worker == self.source.worker and not self._lost:
            return True
        self._metrics.worker_missing(self.queue, 1)
        return False

    def _rest(self) -> float:
        """This queue cannot be used for now. What was granted to it is others', also while a turn has no answer."""
        granted, self._granted, self._asked = self._granted + self._asked, 0, 0
        self._rests_until_s = time.monotonic() + self._cool_down_s
        asyncio.get_running_loop().call_later(self._cool_down_s + 0.01, self.crew.refill)
        self.crew.received(self, [], granted)
        return self._cool_down_s

    def _next(self) -> int:
        self._number += 1
        return self._number
