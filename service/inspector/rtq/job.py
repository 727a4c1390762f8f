"""Everything about one task of redis_task_queue: all that may hold it is looked through, within bounds."""

from collections.abc import Sequence
from typing import Final

from service.inspector.answers import Fact, JobDetail, Place, Unsought
from service.inspector.findings import Findings
from service.inspector.layout import Look
from service.inspector.payloads import rendered, text_cut
from service.inspector.reading import OverBudget
from service.inspector.rtq.entries import Seen, Sweep, sweep, workers
from service.inspector.rtq.keys import DEAD, DELAYED, IN_FLIGHT, PENDING, RtqKeys
from service.inspector.structures import Structure
from service.inspector.times import Moment

LATE_MS: Final = 60_000  #: a worker moves what is due each second, but not while it works on a task
_ERROR_CHARS: Final = 2_000


async def job_of(look: Look, keys: RtqKeys, queue: str, id_: str) -> JobDetail | None:
    """None if no entry has this id, and every entry was looked at. Of a moving task it may be seen twice or nowhere."""
    seen = await _look_at(look, keys, queue, id_)
    if seen is None or any(problem.kind == "in-two-places" for problem in seen.problems):
        seen = await _look_at(look, keys, queue, id_)
    return seen


async def _look_at(look: Look, keys: RtqKeys, queue: str, id_: str) -> JobDetail | None:
    found = Findings()
    held, unsought = list[tuple[Sweep, Seen]](), list[Unsought]()
    complete = False
    try:
        lists, complete = await workers(look.reader, keys, found)
        for structure in (*lists, keys.pending(queue), keys.delayed(queue), keys.dead):
            looked = await sweep(look.reader, structure, found, naming=id_)
            held += [(looked, it) for it in looked.entries if _is(it, structure, queue, id_)]
            unsought += [looked.unsought] if looked.unsought else []
    except OverBudget as error:
        complete = False
        found.add("not-all-looked-at", str(error))
    if not held and not unsought and complete and not found.problems:
        return None
    entries = [it for _, it in held]
    _judge(look.now_ms, queue, id_, entries, found)
    first = entries[0] if entries else None
    return JobDetail(
        "rtq",
        queue,
        id_,
        first.structure.state if first else None,
        [_place(*it) for it in held],
        unsought,
        _facts(keys, first) if first else {},
        times=_times(entries),
        payloads={"payload": rendered(first.envelope.payload, look.max_bytes)} if first and first.envelope else {},
        problems=found.problems,
    )


def _is(seen: Seen, structure: Structure, queue: str, id_: str) -> bool:
    """In a queue's own list an entry counts whatever queue it names; in a shared one that tells whose it is."""
    envelope = seen.envelope
    if envelope is None or envelope.id != id_:
        return False
    return structure.state in (PENDING, DELAYED) or envelope.queue == queue


def _place(looked: Sweep, seen: Seen) -> Place:
    state = seen.structure.state
    leaves_at = looked.total - 1 - seen.index if state == PENDING and looked.total else None
    died = seen.envelope.dead_at if seen.envelope else None
    return Place(
        state,
        seen.structure.key,
        died if state == DEAD else seen.at,
        "died" if died else seen.structure.at_is,
        leaves_at,
    )


def _judge(now_ms: int, queue: str, id_: str, entries: Sequence[Seen], found: Findings) -> None:
    if len(entries) > 1:
        found.add("in-two-places", f"it is {' and '.join(it.structure.state for it in entries)}", [id_])
    for seen in entries:
        if seen.envelope is not None and seen.envelope.queue != queue:
            found.add("state-differs", f"it says queue {text_cut(seen.envelope.queue, 80)}", [id_])
        if seen.structure.state == DELAYED:
            if seen.at is None:
                found.add("score-no-time", "its score is no time", [id_])
            elif seen.at.ms < now_ms - LATE_MS:
                found.add("due-not-moving", "it is due, and still delayed", [id_], since=seen.at)


def _facts(keys: RtqKeys, seen: Seen) -> dict[str, Fact]:
    envelope = seen.envelope
    if envelope is None:
        return {}
    told: dict[str, Fact] = {
        "type": text_cut(envelope.type),
        "queue": text_cut(envelope.queue),
        "max_retries": envelope.max_retries,
        "attempt": envelope.attempt,
    }
    if seen.structure.state == IN_FLIGHT:
        told["worker"] = text_cut(keys.worker_of(seen.structure.key))
    if seen.structure.state == DEAD:
        told["format"] = "bare envelope, as before 0.8.0" if envelope.bare else "with its error"
        told["attempts_made"] = envelope.attempt + 1
        if envelope.error is not None:
            told["last_error"] = text_cut(envelope.error, _ERROR_CHARS)
    if envelope.unknown:
        told["unknown_fields"] = ", ".join(envelope.unknown)
    return told


def _times(entries: Sequence[Seen]) -> dict[str, Moment]:
    told: dict[str, Moment] = {}
    for seen in entries:
        if seen.at is not None:
            told.setdefault("due", seen.at)
        if seen.envelope is not None and seen.envelope.dead_at is not None:
            told.setdefault("died", seen.envelope.dead_at)
    return told
