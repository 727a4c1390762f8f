"""The envelope that workers understand: a task and its payload in JSON, on the wire as redis_task_queue has it.

    {"id": "…", "task": {"type": "send_email", "payload": …}, "queue": "emails", "max_retries": 8, "attempt": 0}

`attempt` counts retries from 0. Every other field is kept as it is through all retries; of ours, `due` (ms) is one.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID, uuid5

from service.errors import InvalidBody
from storage_backends.reference import MAX_TS_MS, new_uuid

MAX_RETRIES: Final = 8  #: after the first attempt, of tasks for which nothing else is said
_MAX_COUNT: Final = 2**31 - 1  #: readers in other languages have 32 bits
MAX_NAME: Final = 512  #: characters of an id or a type: they are shown and logged

_IDS: Final = UUID("6f0a1c2b-3d4e-4d57-9e7a-0193f2a47c1e")  #: the name space of ids that are made from keys

_space = re.compile(r"[ \t\n\r]*")
_decoder = json.JSONDecoder()


class NotAnEnvelope(ValueError):
    """Why a payload is none, in words that hold nothing of it."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """One task as its producer sent it."""

    id: str  #: the same in every attempt
    type: str
    payload: Any = field(repr=False)
    queue: str
    max_retries: int
    attempt: int
    due_ms: int | None = None  #: nothing, if what it says is no time


def parse(raw: bytes) -> Envelope:
    """Raises NotAnEnvelope: not JSON in UTF-8, or a field that is missing or of another type."""
    try:
        told = json.loads(raw.decode())
    except (ValueError, RecursionError) as error:
        raise NotAnEnvelope(f"not JSON: {type(error).__name__}") from error
    if type(told) is not dict:
        raise NotAnEnvelope("not a JSON object")
    task = told.get("task")
    if type(task) is not dict:
        raise NotAnEnvelope("task: missing, or not an object")
    if "payload" not in task:
        raise NotAnEnvelope("task.payload: missing")
    due = told.get("due")
    return Envelope(
        _name(told, "id"),
        _name(task, "type"),
        task["payload"],
        _name(told, "queue"),
        _count(told, "max_retries"),
        _count(told, "attempt"),
        due if type(due) is int and 0 <= due <= MAX_TS_MS else None,
    )


def build(
    type_: str,
    payload: Any,
    queue: str,
    *,
    max_retries: int = MAX_RETRIES,
    due_ms: int | None = None,
    key: str | None = None,
) -> bytes:
    """A new task's envelope, with an id of its own, or, with a `key`, always the same. A pydantic model is its JSON.

    Raises InvalidBody.
    """
    if not isinstance(type_, str) or not 0 < len(type_) <= MAX_NAME:
        raise InvalidBody(f"a task's type is a text of 1 to {MAX_NAME} characters")
    if type(max_retries) is not int or not 0 <= max_retries <= _MAX_COUNT:
        raise InvalidBody("max_retries is not a number of retries")
    told: dict[str, Any] = {"id": new_uuid() if key is None else str(uuid5(_IDS, key))}
    try:
        plain = payload.model_dump(mode="json") if hasattr(payload, "model_dump") else payload
        told |= {"task": {"type": type_, "payload": plain}, "queue": queue, "max_retries": max_retries, "attempt": 0}
        if due_ms is not None:
            told["due"] = due_ms
        return json.dumps(told, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:  # a lone surrogate, too, is a ValueError
        raise InvalidBody(f"the task's payload cannot be said in JSON: {type(error).__name__}") from error


def with_numbers(raw: bytes, **numbers: int) -> bytes:
    """The same envelope with other numbers in these fields of the outermost object, if it has them.

    Every other byte is as its producer wrote it: what JSON readers differ about (large numbers, order, doubled fields)
    stays the business of who wrote it and who reads it. `raw` is an envelope.
    """
    text = raw.decode()
    spans: dict[str, tuple[int, int]] = {}  # of doubled fields the last one counts, as for every reader we know
    at = _after_space(text, _after_space(text, 0) + 1)
    while text[at] != "}":
        name, at = _decoder.raw_decode(text, at)
        begin = _after_space(text, _after_space(text, at) + 1)
        _, end = _decoder.raw_decode(text, begin)
        spans[name] = (begin, end)
        at = _after_space(text, end)
        if text[at] == ",":
            at = _after_space(text, at + 1)
    for name, (begin, end) in sorted(spans.items(), key=lambda span: -span[1][0]):
        if name in numbers:
            text = f"{text[:begin]}{numbers[name]}{text[end:]}"
    return text.encode()


def _after_space(text: str, at: int) -> int:
    match = _space.match(text, at)
    return match.end() if match else at


def _name(told: dict[str, Any], name: str) -> str:
    value = told.get(name)
    if type(value) is not str or not 0 < len(value) <= MAX_NAME:
        raise NotAnEnvelope(f"{name}: missing, or not a text of 1 to {MAX_NAME} characters")
    return value


def _count(told: dict[str, Any], name: str) -> int:
    value = told.get(name)
    if type(value) is not int or not 0 <= value <= _MAX_COUNT:
        raise NotAnEnvelope(f"{name}: missing, or not a number of retries")
    return value
