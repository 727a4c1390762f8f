"""What Redis tells of jobs, as records; and places in a set, as the cursors that callers hand back.

A cursor names a place between two members by score and member, not by number: whatever is added or removed meanwhile,
what follows it is neither passed over nor shown twice, unless its own score changes.
"""

import base64
import binascii
import json
import re
from collections.abc import Sequence
from typing import Any, Final

from service.errors import InvalidQuery
from service.members import reference_of, text_of
from service.records import Job, Page, Place, Stranger
from storage_backends.reference import MAX_TS_MS, Reference

#: A score as Redis spells it. float() takes more: `nan`, `1_0`, ` 1 `, which Redis does not.
_score: Final = re.compile(r"-?(?:inf|[0-9]{1,32}(?:\.[0-9]{1,32})?(?:e[+-]?[0-9]{1,3})?)")
_MAX_CURSOR: Final = 2048  #: characters; a reference needs about 300, a member that is none may be longer


def job(reference: Reference, state: str, score: str, moved: str, record: str) -> Job:
    """The job of which `lookup` and `page` told this. `record` may be anything: a scribble in it hides no job."""
    trouble = _record(record)
    return Job(
        reference=reference,
        state=state,
        due_ms=ms_of(moved) if _score.fullmatch(moved) else reference.ts_ms,
        next_attempt_ms=ms_of(score) if state == "delayed" else None,
        attempts=_count(trouble, "attempts"),
        expiries=_count(trouble, "expiries"),
        error=_word(trouble, "error"),
        reason=_word(trouble, "reason") if state == "dead" else None,
        died_at_ms=ms_of(score) if state == "dead" else None,
    )


def page(queue: str, state: str, reply: Sequence[Any]) -> Page:
    """What the script `page` answered."""
    left, *flat = reply
    members: list[tuple[Place, Job | Stranger]] = []
    for told in zip(*[iter(flat)] * 4, strict=True):
        member, score, moved, record = map(text_of, told)
        reference = reference_of(member, queue)
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
        told = json.loads(base64.b64decode(_padded(cursor), "-_", validate=True).decode())
    except (binascii.Error, ValueError, RecursionError):
        told = None
    if isinstance(told, list) and len(told) == 2 + more:
        score, member, *numbers = told
        if _is_score(score) and isinstance(member, str) and is_writable(member) and all(map(_is_ms, numbers)):
            return Place(score, member), numbers
    raise InvalidQuery("cursor: hand back what the page before said in `next`, as it was")


def is_writable(text: str) -> bool:
    """Whether Redis can be sent `text`: UTF-8, with bytes that are none as `surrogateescape` has them. JSON can spell
    others, which are no characters: lone surrogates.
    """
    try:
        return text.isascii() or bool(text.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        return False


def ms_of(score: str | bytes) -> int:
    """A score may be any number; ours are whole ones below 2^53."""
    return int(max(0.0, min(float(score), float(MAX_TS_MS))))


def _is_score(value: object) -> bool:
    return isinstance(value, str) and _score.fullmatch(value) is not None


def _is_ms(value: object) -> bool:
    return type(value) is int and 0 <= value <= MAX_TS_MS


def _padded(cursor: str) -> str:
    if len(cursor) > _MAX_CURSOR:
        raise ValueError("no cursor of ours is that long")
    return cursor + "=" * (-len(cursor) % 4)


def _stranger(member: str, state: str, score: str, record: str) -> Stranger:
    trouble = _record(record)
    return Stranger(member, state, ms_of(score), _word(trouble, "error"), _word(trouble, "reason"))


def _count(trouble: dict[str, Any], name: str) -> int:
    """0 for what is no count: JSON can spell numbers that become NaN or infinite."""
    value = trouble.get(name, 0)
    return int(value) if isinstance(value, int | float) and 0 <= value <= MAX_TS_MS else 0


def _word(trouble: dict[str, Any], name: str) -> str | None:
    value = trouble.get(name)
    return value if isinstance(value, str) else None


def _record(text: str) -> dict[str, Any]:
    try:
        record = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}
