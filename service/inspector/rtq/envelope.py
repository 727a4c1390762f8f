"""redis_task_queue's entries: JSON envelopes, and what wraps one that was given up on.

    {"id": …, "task": {"type": …, "payload": {…}}, "queue": …, "max_retries": 5, "attempt": 0}
    {"envelope": {…}, "error": "…", "dead_at": ms}     from 0.8.0 on; before, a dead entry was a bare envelope

`attempt` counts retries, from 0. The library cannot read what lacks one of these or has it of another type: its worker
stumbles over such an entry, and leaves it in its in-flight list for ever.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from service.inspector.payloads import json_of, text_cut
from service.inspector.times import Moment, moment

MOST_BYTES: Final = 2**22  #: of one entry; a larger one is not decoded
_FIELDS: Final[Mapping[str, type]] = {"id": str, "task": dict, "queue": str, "max_retries": int, "attempt": int}
_OF_TASK: Final[Mapping[str, type]] = {"type": str, "payload": dict}
_OF_DEAD: Final = frozenset({"envelope", "error", "dead_at"})


class NotAnEnvelope(ValueError):
    """The library could not read this entry. The message says why, and holds nothing of it."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """One entry. Texts hold no lone surrogates: those that JSON spells are escaped."""

    id: str
    type: str
    payload: bytes  #: JSON, without blanks, as the library spells it
    queue: str
    max_retries: int
    attempt: int
    bare: bool = True  #: not wrapped as a dead entry
    error: str | None = None  #: of a dead entry
    dead_at: Moment | None = None
    unknown: tuple[str, ...] = ()  #: names of fields that the library does not write


def decode(entry: bytes) -> Envelope:
    """Of either kind. Raises NotAnEnvelope."""
    if len(entry) > MOST_BYTES:
        raise NotAnEnvelope(f"{len(entry):,} bytes, which is too much to be decoded here")
    try:
        told = json_of(entry.decode())
    except UnicodeDecodeError as error:
        raise NotAnEnvelope("no UTF-8") from error
    except ValueError as error:
        raise NotAnEnvelope("no JSON") from error
    if not isinstance(told, dict):
        raise NotAnEnvelope("JSON that is no object")
    wrapped = told.get("envelope")
    if not isinstance(wrapped, dict):
        return _envelope(told)
    why, dead_at = told.get("error"), told.get("dead_at")
    if not isinstance(why, str | None) or (dead_at is not None and not _is(dead_at, int)):
        raise NotAnEnvelope("a dead entry whose error is no text or whose time is no whole number")
    return _envelope(wrapped, bare=False, error=why, dead_at=dead_at, more=sorted(told.keys() - _OF_DEAD))


def _envelope(
    told: dict[str, Any], *, bare: bool = True, error: str | None = None, dead_at: int | None = None, more: Any = ()
) -> Envelope:
    _check(told, _FIELDS)
    _check(told["task"], _OF_TASK)
    unknown = [*more, *sorted(told.keys() - _FIELDS), *(f"task.{it}" for it in sorted(told["task"].keys() - _OF_TASK))]
    return Envelope(
        id=_text(told["id"]),
        type=_text(told["task"]["type"]),
        payload=_json(told["task"]["payload"]),
        queue=_text(told["queue"]),
        max_retries=told["max_retries"],
        attempt=told["attempt"],
        bare=bare,
        error=None if error is None else _text(error),
        dead_at=moment(dead_at),
        unknown=tuple(text_cut(_text(name), 80) for name in unknown[:20]),
    )


def _json(value: object) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")
    except RecursionError as error:
        raise NotAnEnvelope("JSON that is nested too deeply") from error


def _check(told: dict[str, Any], fields: Mapping[str, type]) -> None:
    for name, kind in fields.items():
        if not _is(told.get(name), kind):
            raise NotAnEnvelope(f"JSON whose {name} is missing or no {kind.__name__}")


def _is(value: object, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _text(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
