"""`Source`: where a worker's jobs come from, and what may happen to them there. Ready lists (`lists.py`) and ready
streams (`streams.py`).

          turn, wait                        turn ──────────► -
ready ──────────────► in this worker's hands ── postpone ──► delayed
  ▲                        │          └──────── condemn ───► dead
  └── hand_back, leave ────┤
  └── reap, by others ─────┘ after too long without `beat`: then nothing of the above has an effect any more
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from storage_backends.reference import Reference


@dataclass(eq=False, slots=True)
class Entry:
    """One job in this worker's hands. Two with the same payload are two. Not frozen: there is one for each job."""

    handle: bytes = field(
        repr=False
    )  #: what the source knows it by; of a list, the payload itself; of a stream, its id
    payload: bytes = field(repr=False)
    worker: str  #: the name under which it was taken
    deaths: int = 0  #: of workers that had it in hand, if it is a suspect
    due_ms: int | None = None  #: if the source knows
    fault: str | None = None  #: why it is no job; then `payload` is all that is known of it, as JSON


@dataclass(frozen=True, slots=True)
class Placed:
    """An envelope for the delayed or the dead set, its payload put where the router wants it."""

    reference: Reference
    body: bytes | None = field(repr=False)  #: inline
    put_at_ms: int | None = None  #: offloaded


@dataclass(frozen=True, slots=True)
class Postponed:
    """A job that is to be tried again when `placed` is due."""

    entry: Entry
    placed: Placed
    attempts: int | None = None  #: to remember for a payload that does not say it itself


@dataclass(frozen=True, slots=True)
class Condemned:
    """A job that is given up on."""

    entry: Entry
    placed: Placed
    record: str  #: JSON: reason, error, attempts and more


@dataclass(frozen=True, slots=True)
class Finished:
    """A job that is over. `once_key`: it must not run again for so long."""

    entry: Entry
    once_key: str | None = None
    once_ms: int = 0


@dataclass(frozen=True, slots=True)
class Turn:
    """The answer to one turn."""

    status: str  #: ok, lost, repeated (something may have been taken that nobody told of), unusable (no such queue)
    entries: Sequence[Entry] = ()
    left: int = 0  #: in the queue
    suspects: int = 0  #: left, likewise
    struck: bool = False  #: attempts or deaths of some payloads are remembered
    missing: int = 0  #: finished jobs that were not in this worker's hands


@dataclass(frozen=True, slots=True)
class Pulse:
    """The answer to a sign of life."""

    alive: bool  #: not: this worker was taken for dead
    held: int | None = None  #: entries in its hands, as Redis sees it; None: not asked


@dataclass(frozen=True, slots=True)
class Reaped:
    """What was returned of workers that died."""

    workers: int = 0
    returned: int = 0
    suspected: int = 0
    suspects: int = 0  #: that wait now, or other jobs that nobody is woken by


class Source(Protocol):
    """One queue, as one worker sees it. `turn`, `postpone` and `condemn` are called one at a time, with rising numbers;
    after RetryLater the same call may be repeated with the same number, and has its effect once. The rest may be
    called at any time. Every method may raise RetryLater.
    """

    queue: str
    worker: str  #: this worker's name, until it is taken for dead: then it begins anew under another

    async def begin(self) -> None:
        """Under a new name."""

    async def beat(self, *, count: bool) -> Pulse:
        """A sign of life. `count`: and how many entries are in its hands."""

    async def turn(self, number: int, finished: Sequence[Finished], count: int, *, suspect: bool) -> Turn:
        """Lets go of what is finished, and takes up to `count` more; one of them, and no more, may be a suspect."""

    async def postpone(self, number: int, jobs: Sequence[Postponed]) -> list[bool]:
        """Which were in this worker's hands. The payloads of the others are in the trash."""

    async def condemn(self, number: int, jobs: Sequence[Condemned]) -> list[bool]:
        """Likewise."""

    async def wait(self) -> Entry | None:
        """Sleeps in Redis until there is a job, and takes it; None after some seconds without one, or after `rouse`."""

    async def rouse(self) -> None:
        """Ends a `wait` that is under way, and all that follow."""

    async def hang_up(self) -> None:
        """Whatever `wait` is told from now on, nobody hears it; `holdings` will show it."""

    async def hand_back(self, entries: Sequence[Entry]) -> int:
        """To the end from which they are taken, oldest first. Returns how many went back."""

    async def holdings(self) -> list[Entry]:
        """What is in this worker's hands, as Redis sees it."""

    async def attempts(self, entry: Entry) -> int:
        """Failed attempts of a payload that does not say it itself."""

    async def reap(self) -> Reaped:
        """Returns jobs of workers that were not heard of in time; bounded."""

    async def leave(self) -> int:
        """The end. What is still in this worker's hands goes back; returns how many entries that were.

        What is more than one request may take is for others to return.
        """
