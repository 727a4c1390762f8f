"""Where BullMQ keeps a queue: `<prefix>:<queue>:` and one of these names, or a job's id.

A job has no field for its state: the structure that holds its id is its state. Checked against the scripts of 5.x and
6.x; both ask in the order of STRUCTURES.
"""

from dataclasses import dataclass
from typing import Final

from service.inspector.times import Moment, moment

PREFIX: Final = "bull"
#: A delayed score is `due_ms * 4096 + sequence`: jobs of one millisecond keep their order, the first 4,095 of them.
PER_MS: Final = 4096
_PRIORITY: Final = 2**32  #: a prioritized score is `priority * 2^32 + counter`
_EXACT: Final = 2**53  #: beyond, a score has no room for its sequence: from 2039-09-07 on


@dataclass(frozen=True, slots=True)
class Structure:
    """A key of a queue that holds ids of jobs."""

    name: str  #: last part of its key, and the word by which the library counts what is in it
    state: str  #: what `getState()` says of a job in it
    is_list: bool = False  #: pushed at the left, taken at the right; else a sorted set, lowest score first
    at_is: str | None = None  #: what its scores are, if they are times

    @property
    def counted_as(self) -> str:
        """The word of `getJobCounts()`."""
        return "waiting" if self.name == "wait" else self.name


STRUCTURES: Final = (
    Structure("completed", "completed", at_is="finished"),
    Structure("failed", "failed", at_is="finished"),
    Structure("delayed", "delayed", at_is="due"),
    Structure("prioritized", "prioritized"),
    Structure("active", "active", is_list=True),
    Structure("wait", "waiting", is_list=True),
    Structure("paused", "waiting", is_list=True),  # up to 5.x a paused queue's jobs wait here, and 6.x still empties it
    Structure("waiting-children", "waiting-children", at_is="waiting since"),
)
LISTS: Final = tuple(each for each in STRUCTURES if each.is_list)
SORTED: Final = tuple(each for each in STRUCTURES if not each.is_list)

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
    """The queue whose `meta` this key may be. Modern releases take no queue name with a colon."""
    start, end = f"{prefix}:", ":" + "meta"
    if not (key.startswith(start) and key.endswith(end) and len(key) > len(start) + len(end)):
        return None
    queue = key[len(start) : -len(end)]
    return None if ":" in queue else queue


def is_marker(entry: str) -> bool:
    """Whether this entry of a list is no id: releases before 5 put `0`, and `0:<ms>`, there to wake a worker."""
    return entry == "0" or entry.startswith("0:")


def due_of(score: object) -> Moment | None:
    """When a delayed job is due, to the millisecond; None if the score cannot be one."""
    return moment(score, per_ms=PER_MS)


def sequence_of(score: float) -> int | None:
    """Its place among those of the same millisecond; None where scores have no room for it."""
    return int(score % PER_MS) if 0 <= score < _EXACT else None


def score_at(due_ms: int) -> int:
    """The lowest score of what is due at `due_ms`."""
    return due_ms * PER_MS


def priority_of(score: float) -> int:
    """1 goes first."""
    return int(score // _PRIORITY)
