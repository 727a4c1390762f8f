"""What Redis tells of jobs, as records; and places in a set, as the cursors that callers hand back.

A cursor names a place between two members by score and member, not by number: whatever is added or removed meanwhile,
what follows it is neither passed over nor shown twice, unless its own score changes.
"""

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any, Final

from service.errors import InvalidQuery
from service.records import Job, Page, Place, Stranger
from storage_backends.reference import MAX_TS_MS, InvalidName, Reference

_MAX_CURSOR: Final = 2048  #: characters; a reference needs about 300, a member that is none may be longer


def job(reference: Reference, state: str, score: str, moved: str, record: str) -> Job:
    """The job of which `lookup` and `page` told this. `record` may be anything: a scribble in it hides no job."""
    trouble = _record(record)
    return Job(
        reference=reference,
        state=state,
        due_ms=_ms(moved) if moved else reference.ts_ms,
        next_attempt_ms=_ms(score) if state == "delayed" else None,
        attempts=_count(trouble, "attempts"),
        expiries=_count(trouble, "expiries"),
        error=trouble.get("error"),
        reason=trouble.get("reason") if state == "dead" else None,
        died_at_ms=_ms(score) if state == "dead" else None,
    )


def page(queue: str, state: str, reply: Sequence[Any]) -> Page:
    """What the script `page` answered."""
    left, *flat = reply
    members: list[tuple[Place, Job | Stranger]] = []
    for told in zip(*[iter(flat)] * 4, strict=True):
        member, score, moved, record = (part.decode("utf-8", "surrogateescape") for part in told)
        reference = _reference(queue, member)
        if reference is None:
            members.append((Place(score, member), _stranger(member, state, score, record)))
        else:
            members.append((Place(score, member), job(reference, state, score, moved, record)))
    return Page(members, left)


def cursor_of(place: Place, *more: int) -> str:
    """Opaque, and fit for a URL. `more` comes back as it is."""
    return base64.urlsafe_b64encode(json.dumps([place.score, place.member, *more]).encode()).decode().rstrip("=")


def place_of(cursor: str, more: int = 0) -> tuple[Place, list[int]]:
    """What `cursor_of` made it from, with `more` numbers. Raises InvalidQuery."""
    try:
        score, member, *numbers = json.loads(base64.b64decode(_padded(cursor), "-_", validate=True))
        float(score)
        if len(numbers) == more and all(type(each) is int for each in numbers) and isinstance(score + member, str):
            return Place(score, member), numbers
    except (binascii.Error, ValueError, TypeError, RecursionError):
        pass
    raise InvalidQuery("cursor: hand back what the page before said in `next`, as it was")


def _padded(cursor: str) -> str:
    if len(cursor) > _MAX_CURSOR:
        raise ValueError("no cursor of ours is that long")
    return cursor + "=" * (-len(cursor) % 4)


def _reference(queue: str, member: str) -> Reference | None:
    """None for what is no reference, or one of another queue."""
    try:
        reference = Reference.parse(member)
    except InvalidName:
        return None
    return reference if reference.queue == queue else None


def _stranger(member: str, state: str, score: str, record: str) -> Stranger:
    trouble = _record(record)
    return Stranger(member, state, _ms(score), trouble.get("error"), trouble.get("reason"))


def _ms(score: str) -> int:
    """A score may be any number; ours are whole ones below 2^53."""
    return int(max(0.0, min(float(score), float(MAX_TS_MS))))


def _count(trouble: dict[str, Any], name: str) -> int:
    value = trouble.get(name, 0)
    return int(value) if isinstance(value, int | float) else 0


def _record(text: str) -> dict[str, Any]:
    try:
        record = json.loads(text) if text else {}
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}
