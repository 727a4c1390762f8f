"""The sorted sets in which libraries keep delayed jobs, and the shape of what reads one library's.

Every one of these libraries keeps its delayed jobs as members of a sorted set, so that a job can be drawn by its rank:
O(log n) for Redis, however large the set. What differs is where the payload is, and what is told of the delay.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Protocol

from service.inspector.reading import Command, ReadOnly
from service.inspector.times import Moment
from service.keys import Keys

READ_BYTES: Final = 2**20  #: a larger record is not fetched to learn its delay; its size is known all the same
SAMPLES: Final = 50  #: fields that MEMORY USAGE looks at; records have fewer


@dataclass(frozen=True, slots=True)
class DelayedSet:
    """One sorted set of delayed jobs."""

    layout: str
    queue: str
    key: str
    jobs: int


@dataclass(frozen=True, slots=True)
class Member:
    """One entry of a delayed set, and what its score says."""

    text: bytes
    due: Moment | None


@dataclass(frozen=True, slots=True)
class Job:
    """What a delayed job costs, and how long it waits. Holds no byte of its payload."""

    payload_bytes: int = 0  #: that Redis holds; what would be the payload's size as Coatcheck stores it
    held_bytes: int = 0  #: of Redis's memory, everything that belongs to the job
    delay_ms: int | None = None  #: from when it was handed in until it is due, if anything tells
    waits_ms: int = 0  #: from now on; negative: overdue
    delayed: bool = True  #: not, if the set keeps other things beside delayed jobs
    offloaded: bool = False  #: its payload is elsewhere already
    fault: str = ""  #: what does not fit, in constant words

    @property
    def judged_ms(self) -> int:
        """The delay to go by. Where none is recorded it was at least what is left of it."""
        return max(0, self.waits_ms) if self.delay_ms is None else max(0, self.delay_ms)


class Layout(Protocol):
    """Reads one library's delayed sets. Any key may be of a wrong type, any value broken: that is a Job's `fault`."""

    name: ClassVar[str]
    per_ms: ClassVar[float]  #: units of its scores in a millisecond

    def __init__(self, keys: Keys) -> None: ...

    def queue_of(self, key: str) -> str | None:
        """The queue whose delayed jobs this key may hold; None if it is none of this library's. Pure and quick."""

    async def registered(self, reader: ReadOnly) -> list[str]:
        """Keys that its own registry and its fixed names lead to, whether they are there or not."""

    async def owns(self, reader: ReadOnly, key: str) -> bool:
        """Whether such a key is really this library's, by a few reads; asked where `queue_of` cannot be sure.

        Raises ResponseError if the user may not read it.
        """

    async def jobs(self, reader: ReadOnly, key: str, members: Sequence[Member], now_ms: int) -> list[Job]:
        """One for each member. Raises what ReadOnly does, never for what is stored."""


def told(member: Member, now_ms: int) -> tuple[int, str]:
    """How long it waits, ms, and what is wrong with its score."""
    return (0, "its score is no time") if member.due is None else (member.due.ms - now_ms, "")


def number(reply: object) -> int:
    """Of an answer that is a number; 0 for an error, and for nothing."""
    return int(reply) if isinstance(reply, int) else 0


def usage(key: str) -> Command:
    """What a record costs, its key included."""
    return ("MEMORY", "USAGE", key, "SAMPLES", SAMPLES)


async def members_of_set(reader: ReadOnly, key: str, most: int) -> list[bytes]:
    """Up to about `most` members of a set; none if it is of another type."""
    found: set[bytes] = set()
    cursor = 0
    while len(found) < most:
        (reply,) = await reader.send([("SSCAN", key, cursor, "COUNT", 1000)])
        if isinstance(reply, Exception):
            return []
        cursor = int(reply[0])
        found.update(reply[1])
        if cursor == 0:
            break
    return sorted(found)
