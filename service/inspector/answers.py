"""What an inspector tells: frozen values, the same for every layout, and their JSON.

Names of states and fields are each library's own words. Counts are of one moment each, not all of the same.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from service.inspector.payloads import Payload
from service.inspector.times import Moment

Fact = str | int | float | bool | None | Moment | Payload | Mapping[str, "Fact"]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that does not fit. What it means, and what usually causes it, is in `causes.CAUSES[kind]`."""

    kind: str
    detail: str  #: one sentence with the figures of this case; holds no payload
    ids: Sequence[str] = ()  #: of jobs, some of those that it is about
    count: int | None = None  #: how many it is about; None: not counted, at least those in `ids`
    since: Moment | None = None  #: since when, where that is known


@dataclass(frozen=True, slots=True)
class QueueSummary:
    """One queue in one line."""

    layout: str
    queue: str
    states: Mapping[str, int | None]  #: jobs by state, in the library's order; None: its key cannot be counted
    paused: bool | None
    oldest_due: Moment | None = None  #: of what is due, and still where it waits
    next_due: Moment | None = None  #: of what is not due yet
    problems: Sequence[Problem] = ()  #: what was in the way of summing it up


@dataclass(frozen=True, slots=True)
class Entry:
    """A job as one structure shows it."""

    id: str
    at: Moment | None = None  #: what its score says, if that is a time; `StateDetail.at_is` says what for
    facts: Mapping[str, Fact] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StateDetail:
    """One state of a queue, and both ends of the structure that holds it."""

    state: str
    key: str
    count: int | None  #: None: cannot be counted, `problems` of the queue say why
    at_is: str | None = None  #: what `Entry.at` is: due, lease ends, died, …
    head: Sequence[Entry] = ()  #: those that leave next, the first of them first
    tail: Sequence[Entry] = ()  #: those that leave last, in the same order; nothing that `head` has


@dataclass(frozen=True, slots=True)
class QueueDetail:
    """One queue, looked at closely."""

    summary: QueueSummary
    states: Sequence[StateDetail]
    facts: Mapping[str, Fact] = field(default_factory=dict)  #: whatever else is worth knowing of this queue
    problems: Sequence[Problem] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """A structure that holds a job's id."""

    state: str
    key: str
    at: Moment | None = None  #: what its score says, if it is a time
    at_is: str | None = None
    position: int | None = None  #: in a list: 0 leaves next


@dataclass(frozen=True, slots=True)
class Unsought:
    """A list that was too long to be sought through, and what was."""

    state: str
    key: str
    each_end: int  #: entries looked at from each end
    total: int

    def __str__(self) -> str:
        return f"not in the first and last {self.each_end:,} of {self.total:,}"


@dataclass(frozen=True, slots=True)
class JobDetail:
    """Everything about one job."""

    layout: str
    queue: str
    id: str
    state: str | None  #: the state it is really in, by the library's own rule; None: in nothing that was looked at
    places: Sequence[Place]
    unsought: Sequence[Unsought] = ()
    record: Mapping[str, Fact] = field(default_factory=dict)  #: what is written about it
    record_state: str | None = None  #: the state that its record claims, where records do
    agrees: bool | None = None  #: whether places and record tell the same; None: there is nothing to compare
    times: Mapping[str, Moment] = field(default_factory=dict)  #: due, enqueued, died, lease ends, …
    payloads: Mapping[str, Payload] = field(default_factory=dict)
    problems: Sequence[Problem] = ()


def plain(value: Any) -> Any:
    """For JSON: dataclasses as objects, moments as RFC 3339. A payload that is whole JSON is shown as its text, too."""
    if isinstance(value, Moment | Unsought):
        return str(value) if isinstance(value, Moment) else {**_fields(value), "detail": str(value)}
    if dataclasses.is_dataclass(value):
        return _fields(value)
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no such numbers
    return value


def _fields(value: Any) -> dict[str, Any]:
    return {each.name: plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
