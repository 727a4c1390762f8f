"""Where BullMQ keeps a queue: `<prefix>:<queue>:` and one of these names, or a job's id.

A job has no field for its state: the structure that holds its id is its state. Checked against the scripts of 5.x and
6.x; both ask in the order of STRUCTURES.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from service.inspector.structures import Ends, Structure
from service.inspector.times import Moment, moment
from service.members import text_of

PREFIX: Final = "bull"
#: A delayed score is `due_ms * 4096 + sequence`: jobs of one millisecond keep their order, the first 4,095 of them.
PER_MS: Final = 4096
NO_TIME: Final = math.inf  #: units a millisecond of scores that are no times
_PRIORITY: Final = 2**32  #: a prioritized score is `priority * 2^32 + counter`
_EXACT: Final = 2**53  #: beyond, a score has no room for its sequence: from 2039-09-07 on


class Shape(NamedTuple):
    """One of a queue's structures, of whatever queue."""

    name: str  #: last part of its key
    counted_as: str  #: the word of `getJobCounts()` for what is in it
    per_ms: float | None  #: units of its scores a millisecond; None: a list
    at_is: str | None  #: what its scores say, if they are times


#: What holds ids of jobs, in the order in which the library asks.
STRUCTURES: Final = (
    Shape("completed", "completed", 1, "finished"),
    Shape("failed", "failed", 1, "finished"),
    Shape("delayed", "delayed", PER_MS, "due"),
    Shape("prioritized", "prioritized", NO_TIME, None),
    Shape("active", "active", None, None),
    Shape("wait", "waiting", None, None),
    Shape("paused", "paused", None, None),  # up to 5.x a paused queue's jobs wait here, and 6.x still reads it
    Shape("waiting-children", "waiting-children", 1, "waiting since"),
)
#: Keys of a queue that are no job, whatever they hold.
_OTHERS: Final = frozenset(
    {"meta", "id", "pc", "marker", "events", "stalled", "stalled-check", "limiter", "repeat", ""}
)
_RESERVED: Final = _OTHERS | {each.name for each in STRUCTURES}
_FIRST_PARTS: Final = ("de:", "dn:", "metrics:")  #: deduplication, its next job, and the metrics
_LAST_PARTS: Final = (":lock", ":logs", ":dependencies", ":processed", ":failed", ":unsuccessful")  #: of one job


@dataclass(frozen=True, slots=True)
class QueueKeys:
    """The keys of one queue."""

    queue: str
    prefix: str = PREFIX

    @property
    def structures(self) -> tuple[Structure, ...]:
        """STRUCTURES of this queue. Their `state` is the word by which the library counts, see `state_of`."""
        return tuple(
            Structure(each.counted_as, self.of(each.name), each.per_ms, each.at_is, waiting=each.at_is == "due")
            for each in STRUCTURES
        )

    def structure(self, counted_as: str) -> Structure:
        """The one of these that the library counts by this word."""
        return next(each for each in self.structures if each.state == counted_as)

    def of(self, name: str) -> str:
        """A structure, or a job's record."""
        return f"{self.prefix}:{self.queue}:{name}"

    def part(self, job: str, name: str) -> str:
        """What belongs to one job: its lock, logs, dependencies, and its children by outcome."""
        return self.of(f"{job}:{name}")

    def job_of(self, key: str) -> str | None:
        """The id whose record this key may be; None if it can be none."""
        start = self.of("")
        name = key[len(start) :]
        if not key.startswith(start) or name in _RESERVED or name.startswith(_FIRST_PARTS):
            return None
        return None if name.endswith(_LAST_PARTS) else name


def queue_of(key: str, prefix: str = PREFIX) -> str | None:
    """The queue that this key may be of. Modern releases take no queue name with a colon."""
    if not key.startswith(f"{prefix}:"):
        return None
    queue, colon, name = key[len(prefix) + 1 :].partition(":")
    return queue if queue and colon and name else None


def state_of(counted_as: str) -> str:
    """What `getState()` says of a job that `getJobCounts()` counts by this word."""
    return "waiting" if counted_as == "paused" else counted_as


def is_marker(entry: str) -> bool:
    """Whether this entry of a list is no id: releases before 5 put `0`, and `0:<ms>`, there to wake a worker."""
    return entry == "0" or entry.startswith("0:")


def markers(both: Ends) -> Sequence[str]:
    """Entries at the ends of a list that are no jobs. Older releases left one, at the right."""
    return [entry for member, _ in both.members if is_marker(entry := text_of(member))]


def due_of(score: object) -> Moment | None:
    """When a delayed job is due, to the millisecond; None if the score cannot be one."""
    return moment(score, per_ms=PER_MS)


def sequence_of(score: float) -> int | None:
    """Its place among those of the same millisecond; None where scores have no room for it."""
    return int(score % PER_MS) if 0 <= score < _EXACT else None


def score_at(due_ms: int) -> int:
    """The lowest score of what is due at `due_ms`."""
    return due_ms * PER_MS


def priority_of(score: float) -> int | None:
    """1 goes first."""
    return int(score // _PRIORITY) if math.isfinite(score) else None
