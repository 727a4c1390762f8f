"""A job's hash as BullMQ writes it: short names spelt out, JSON shown as JSON, times as times."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from service.inspector.answers import Fact
from service.inspector.findings import Findings
from service.inspector.hashes import Record
from service.inspector.payloads import Payload, json_of, rendered, text_cut, unread
from service.inspector.times import Moment, moment

_TIMES: Final = {"timestamp": "added", "processedOn": "processed", "finishedOn": "finished"}
_NUMBERS: Final = {
    "delay": "delay_ms",
    "priority": "priority",
    "atm": "attempts_made",
    "attemptsMade": "attempts_made",  # as releases before 5 spelt it
    "ats": "attempts_started",
    "stc": "stalled_counter",
}
_TEXTS: Final = {
    "name": "name",
    "defa": "deferred_failure",
    "parentKey": "parent_key",
    "pb": "processed_by",
    "rjk": "repeat_job_key",
    "nrjid": "next_repeatable_job_id",
    "deid": "deduplication_id",
}
#: JSON, and the message of an error.
_PAYLOADS: Final = ("data", "opts", "returnvalue", "stacktrace", "progress", "parent", "failedReason")
_PARSED: Final = ("data", "opts", "progress", "parent")  #: by the library, without which it cannot take the job
_KNOWN: Final = frozenset({*_TIMES, *_NUMBERS, *_TEXTS, *_PAYLOADS})
_NEEDED: Final = ("name", "data", "timestamp")  #: what every job is written with
#: Options that are stored under short names, as its users know them.
_OPTIONS: Final = {
    "de": "deduplication",
    "fpof": "failParentOnFailure",
    "cpof": "continueParentOnFailure",
    "idof": "ignoreDependencyOnFailure",
    "kl": "keepLogs",
    "rdof": "removeDependencyOnFailure",
}


@dataclass(frozen=True, slots=True)
class JobRecord:
    """What a job's hash says."""

    facts: Mapping[str, Fact]
    times: Mapping[str, Moment]
    payloads: Mapping[str, Payload]
    claims: str | None  #: the state that its fields tell of, where they do


def decoded(job: str, record: Record, max_bytes: int, found: Findings) -> JobRecord:
    """Every field that is known, and the names of the others."""
    facts: dict[str, Fact] = {}
    for field, name in _TEXTS.items():
        if (value := record.get(field)) is not None:
            facts[name] = text_cut(value, max_bytes)
    for field, name in _NUMBERS.items():
        if (value := record.get(field)) is not None:
            facts[name] = _number(value)
    times = {name: at for field, name in _TIMES.items() if (at := moment(record.get(field))) is not None}
    if unknown := [text_cut(name) for name in record.sizes_bytes if name.decode("utf-8", "replace") not in _KNOWN]:
        facts["unknown_fields"] = text_cut(", ".join(unknown))
    payloads = dict(_payloads(record, max_bytes))
    _check(job, record, found)
    return JobRecord(facts, times, payloads, _claims(record))


def _payloads(record: Record, max_bytes: int) -> Iterator[tuple[str, Payload]]:
    for field in _PAYLOADS:
        value = record.get(field)
        if value is not None:
            yield field, rendered(_long_names(value) if field == "opts" else value, max_bytes)
        elif (size := record.sizes_bytes.get(field.encode())) is not None:
            yield field, unread(size)


def _long_names(opts: bytes) -> bytes:
    """As it is, if it is no JSON object, or none that can be written again."""
    try:
        found = json_of(opts)
        if not isinstance(found, dict):
            return opts
        return json.dumps({_OPTIONS.get(name, name): it for name, it in found.items()}, ensure_ascii=False).encode()
    except ValueError:
        return opts


def _is_json(value: bytes) -> bool:
    try:
        json_of(value)
    except ValueError:
        return False
    return True


def _number(value: bytes) -> Fact:
    try:
        number: Any = json_of(value)
    except ValueError:
        number = None
    return number if isinstance(number, int | float) else text_cut(value)


def _claims(record: Record) -> str | None:
    """A retry takes `finishedOn` away again, and a job that failed before it was completed keeps why."""
    if b"finishedOn" not in record.sizes_bytes:
        return None
    if b"returnvalue" in record.sizes_bytes:
        return "completed"
    return "failed" if b"failedReason" in record.sizes_bytes else None


def _check(job: str, record: Record, found: Findings) -> None:
    if record.total > len(record.sizes_bytes):
        found.add("does-not-parse", f"the record has {record.total:,} fields, a job about 20", (job,))
    elif absent := [field for field in _NEEDED if field.encode() not in record.sizes_bytes]:
        found.add("does-not-parse", f"the record has no {', '.join(absent)}", (job,))
    for field in _PARSED:
        value = record.get(field)
        if value and not _is_json(value):
            found.add("does-not-parse", f"{field} is no JSON: the worker that takes this job fails", (job,))
    for field, name in _TIMES.items():
        value = record.get(field)
        if value is not None and moment(value) is None:
            found.add("score-no-time", f"{field} ({name}) is no time in ms", (job,))
    for key, size in record.sizes_bytes.items():
        if key not in record.fields:
            found.add("value-too-large", f"{text_cut(key)} has {size:,} bytes", (job,))
