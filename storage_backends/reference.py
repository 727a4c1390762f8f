"""The reference: all that the delayed set holds of a job, and the job's public id.

    reference = backend "::" queue "::" ts "::" uuid     s3::emails::1764547200000::0193f2a4-7c1e-7b3a-9d57-6f0a1c2b3d4e

    backend   [a-z][a-z0-9_]{0,31}, without "__", not ending in "_"
    queue     [A-Za-z0-9][A-Za-z0-9._:-]{0,127}, without "::", not ending in ":"
    ts        the due time given at enqueue, ms since the epoch: canonical decimal below 2^53
    uuid      canonical and lower-case, any version; we make UUIDv7

One spelling only: `parse(str(x)) == x`, and every other text is refused.
"""

import re
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache
from typing import Final

import uuid_utils

MAX_TS_MS: Final = 2**53 - 1  #: scores are doubles in Redis and in Lua; beyond this, neighbours become equal

_BACKEND = r"[a-z](?:_?[a-z0-9])*"
_QUEUE = r"[A-Za-z0-9](?:[A-Za-z0-9._-]|:(?!:))*(?<!:)"
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_backend = re.compile(_BACKEND)
_queue = re.compile(_QUEUE)
_uuid = re.compile(_UUID)
_reference = re.compile(rf"({_BACKEND})::({_QUEUE})::(0|[1-9][0-9]{{0,15}})::({_UUID})")

_DAY_MS: Final = 86_400_000
_CYCLE_YEARS: Final = 400  #: the Gregorian calendar repeats after so many years
_CYCLE_DAYS: Final = 146_097

MAX_BACKEND_LENGTH: Final = 32
MAX_QUEUE_LENGTH: Final = 128


class InvalidName(ValueError):
    """A text that is no backend name, no queue name or no reference. Never contains more than 200 characters of it."""


def check_queue(name: str) -> str:
    """`name`, if it is a queue name. Raises InvalidName that says what is wrong with it."""
    if len(name) <= MAX_QUEUE_LENGTH and _matches_queue(name):
        return name
    raise InvalidName(f"{_shown(name)} is not a queue name: {_queue_fault(name)}")


def check_backend(name: str) -> str:
    """`name`, if it is a backend name. Raises InvalidName."""
    if len(name) <= MAX_BACKEND_LENGTH and _matches_backend(name):
        return name
    raise InvalidName(
        f"{_shown(name)} is not a backend name: a lower-case letter, then up to 31 of [a-z0-9_], "
        "without '__' and not ending in '_'"
    )


@dataclass(frozen=True, slots=True)
class Reference:
    """One job's name. Immutable: a retry or a reschedule changes the score in the delayed set, never the member.

    `str(reference)` is its one spelling. Raises InvalidName if a field is not valid.
    """

    backend: str
    queue: str
    ts_ms: int
    uuid: str

    def __post_init__(self) -> None:
        check_backend(self.backend)
        check_queue(self.queue)
        if not 0 <= self.ts_ms <= MAX_TS_MS:
            raise InvalidName(f"{self.ts_ms} is not a time in ms below 2^53")
        if not _uuid.fullmatch(self.uuid):
            raise InvalidName(f"{_shown(self.uuid)} is not a canonical lower-case UUID")

    def __str__(self) -> str:
        return f"{self.backend}::{self.queue}::{self.ts_ms}::{self.uuid}"

    @property
    def due_day(self) -> str:
        """The UTC day of `ts_ms`, `YYYY-MM-DD`. Years after 9999, where `datetime` ends, have more digits."""
        cycles, days = divmod(self.ts_ms // _DAY_MS, _CYCLE_DAYS)
        day = date(1970, 1, 1) + timedelta(days=days)
        return f"{day.year + cycles * _CYCLE_YEARS:04}-{day.month:02}-{day.day:02}"

    @classmethod
    def parse(cls, text: str) -> "Reference":
        """The reference that `text` spells. Raises InvalidName for any text that `str` would not have produced."""
        match = _reference.fullmatch(text) if len(text) <= 256 else None
        if match is None:
            raise InvalidName(f"{_shown(text)} is not a reference: backend::queue::ms::uuid, in its one spelling")
        backend, queue, ts, uuid = match.groups()
        return cls(backend, queue, int(ts), uuid)


def new_uuid() -> str:
    """A UUIDv7 (RFC 9562, section 5.7): increasing within this process, also within one millisecond."""
    return str(uuid_utils.uuid7())


@lru_cache(maxsize=4096)  # each job asks for its queue's name again and again; what is cached is short
def _matches_queue(name: str) -> bool:
    return _queue.fullmatch(name) is not None


@lru_cache(maxsize=256)
def _matches_backend(name: str) -> bool:
    return _backend.fullmatch(name) is not None


def _shown(text: str) -> str:
    return repr(text if len(text) <= 150 else text[:150] + "…")


def _queue_fault(name: str) -> str:
    if not name:
        return "it is empty"
    if len(name) > MAX_QUEUE_LENGTH:
        return f"{len(name)} characters, at most {MAX_QUEUE_LENGTH} are allowed"
    if "::" in name:
        return "'::' separates the fields of a reference"
    if name.endswith(":"):
        return "it ends in ':'"
    if not re.match("[A-Za-z0-9]", name):
        return "it begins with neither an ASCII letter nor a digit"
    return "only ASCII letters, digits and . _ : - are allowed"
