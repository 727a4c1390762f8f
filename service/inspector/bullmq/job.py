"""One BullMQ job: where its id is, what its hash says, and whether these agree."""

from dataclasses import dataclass, field
from typing import Final

from redis.exceptions import ResponseError

from service.inspector.answers import Fact, JobDetail, Place, Unsought
from service.inspector.bullmq.keys import QueueKeys, due_of, priority_of, sequence_of, state_of
from service.inspector.bullmq.record import JobRecord, decoded
from service.inspector.findings import Findings
from service.inspector.hashes import record_of
from service.inspector.layout import Look
from service.inspector.reading import Command
from service.inspector.seeking import Sought, seeking, sought
from service.inspector.structures import Structure
from service.inspector.times import Moment, lasting, moment

#: A worker with nothing to do asks every 5 s, and one that waits for a due time at least every 10 s.
LATE_MS: Final = 15_000
_UNREAD: Final = object()  #: instead of an error
_RELATED: Final = (
    ("SCARD", "dependencies", "children_pending"),
    ("HLEN", "processed", "children_completed"),
    ("HLEN", "failed", "children_ignored"),
    ("ZCARD", "unsuccessful", "children_failed"),
    ("LLEN", "logs", "log_lines"),
)


@dataclass(slots=True)
class Whereabouts:
    """Everything that holds an id, at one look."""

    places: list[Place] = field(default_factory=list)  #: in the library's order
    unsought: list[Unsought] = field(default_factory=list)
    scores: dict[str, float] = field(default_factory=dict)  #: by state
    facts: dict[str, Fact] = field(default_factory=dict)  #: how many children and log lines
    lock_ms: int | None = None  #: for how long a worker still holds it; -1: for ever; None: it does not
    paused: bool | None = None  #: its queue; None: cannot be known
    childless: bool = False  #: no child is pending
    unread: bool = False  #: whether a structure could not be asked

    @property
    def state(self) -> str | None:
        """What the library says of it; None: it is where nobody looked, if anywhere."""
        if self.places:
            return state_of(self.places[0].state)
        return None if self.unsought or self.unread else "unknown"


async def whereabouts(look: Look, keys: QueueKeys, job: str, found: Findings) -> Whereabouts:
    """Asks every structure, all in one write: Redis mostly answers that before anything moves."""
    asked = {each: _asking(each, job) for each in keys.structures}
    related = _related(keys, job)
    replies = iter(await look.reader.send([*(one for some in asked.values() for one in some), *related]))
    where = Whereabouts()
    for each, commands in asked.items():
        told = [found.told(next(replies), each.key, _UNREAD) for _ in commands]
        if _UNREAD in told:
            where.unread = True
        elif each.per_ms is None:
            _list(each, sought(told), where)
        elif (score := told[0]) is not None:
            where.places.append(Place(each.state, each.key, moment(score, each.per_ms), each.at_is))
            where.scores[each.state] = float(score)
    *counts, lock_ms, paused = [
        found.told(reply, str(command[1]), None) for reply, command in zip(replies, related, strict=True)
    ]
    where.facts = {name: count for (*_, name), count in zip(_RELATED, counts, strict=True) if count}
    where.childless = counts[0] == 0
    where.lock_ms = None if lock_ms == -2 else lock_ms
    where.paused = None if paused is None else bool(paused)
    return where


def _related(keys: QueueKeys, job: str) -> list[Command]:
    counts: list[Command] = [(command, keys.part(job, name)) for command, name, _ in _RELATED]
    return [*counts, ("PTTL", keys.part(job, "lock")), ("HEXISTS", keys.of("meta"), "paused")]


def _asking(structure: Structure, job: str) -> list[Command]:
    return seeking(structure.key, job) if structure.per_ms is None else [("ZSCORE", structure.key, job)]


def _list(structure: Structure, seen: Sought, where: Whereabouts) -> None:
    if seen.found_at is not None:
        where.places.append(Place(structure.state, structure.key, position=seen.total - 1 - seen.found_at))
    elif unsought := seen.unsought(structure.state, structure.key):
        where.unsought.append(unsought)


async def job_detail(look: Look, keys: QueueKeys, job: str) -> JobDetail | None:
    """Asks twice before it says that something does not fit: things move between two reads."""
    detail = await _job_detail(look, keys, job)
    return await _job_detail(look, keys, job) if detail is None or detail.problems else detail


async def _job_detail(look: Look, keys: QueueKeys, job: str) -> JobDetail | None:
    found = Findings()
    where = await whereabouts(look, keys, job, found)
    record = await _record(look, keys, job, found)
    if record is None and not (where.places or where.unsought or found.problems):
        return None
    agrees = _compare(job, where, record, found)
    _stuck(look, job, where, found)
    return JobDetail(
        "bullmq",
        keys.queue,
        job,
        where.state,
        where.places,
        where.unsought,
        record={**(record.facts if record else {}), **_of_scores(where), **where.facts},
        record_state=record.claims if record else None,
        agrees=agrees,
        times={**(record.times if record else {}), **_times(look, where)},
        payloads=record.payloads if record else {},
        problems=found.problems,
    )


async def _record(look: Look, keys: QueueKeys, job: str, found: Findings) -> JobRecord | None:
    try:
        raw = await record_of(look.reader, keys.of(job))
    except ResponseError as error:
        found.told(error, keys.of(job), None)
        return None
    return None if raw is None else decoded(job, raw, look.max_bytes, found)


def _compare(job: str, where: Whereabouts, record: JobRecord | None, found: Findings) -> bool | None:
    """Whether places and record tell the same; None where nobody can know."""
    states = [place.state for place in where.places]
    if len(states) > 1:
        found.add("in-two-places", f"{' and '.join(states)} have the id; the library says {where.state}", (job,))
    if record is None:
        if states:
            found.add("id-without-record", f"{' and '.join(states)} has the id, and there is no record", (job,))
        return False if states else None
    if where.state is None:
        return None
    if where.state == "unknown":
        found.add("record-without-id", "a record is there, and nothing holds its id", (job,))
        return False
    if record.claims not in (None, where.state):
        found.add("state-differs", f"it is {where.state}, and its record tells of a {record.claims} job", (job,))
        return False
    return len(states) == 1


def _stuck(look: Look, job: str, where: Whereabouts, found: Findings) -> None:
    if where.state == "active" and where.lock_ms is None:
        found.add("active-without-lease", "it is active, and no worker holds its lock: it is stalled", (job,))
    if where.state == "waiting-children" and where.childless:
        found.add("waits-for-nothing", "it waits for children, and has none that are pending", (job,))
    if where.places and where.places[0].state == "paused" and where.paused is False:
        found.add("left-in-paused", "its queue is not paused", (job,))
    if where.state != "delayed":
        return
    due = due_of(where.scores["delayed"])
    if due is None:
        found.add("score-no-time", f"its score of {where.scores['delayed']:.17g} is no time", (job,))
    elif (late_ms := look.now_ms - due.ms) > LATE_MS:
        found.add("due-not-moving", f"it has been due for {lasting(late_ms)}", (job,), since=due)


def _of_scores(where: Whereabouts) -> dict[str, Fact]:
    facts: dict[str, Fact] = {}
    if "delayed" in where.scores:
        facts["sequence"] = sequence_of(where.scores["delayed"])
    if "prioritized" in where.scores:
        facts["priority_queued"] = priority_of(where.scores["prioritized"])
    return facts


def _times(look: Look, where: Whereabouts) -> dict[str, Moment]:
    times = {place.at_is: place.at for place in where.places if place.at is not None and place.at_is is not None}
    if where.lock_ms is not None and where.lock_ms >= 0:
        times["lock ends"] = Moment(look.now_ms + where.lock_ms)
    return times
