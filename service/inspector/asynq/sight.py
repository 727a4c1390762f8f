"""What one look gathered of an Asynq task, and what its hash and message say."""

from dataclasses import dataclass
from typing import Final

from service.inspector.answers import Fact
from service.inspector.asynq.keys import NANOSECONDS, SECONDS
from service.inspector.asynq.message import TaskMessage
from service.inspector.asynq.places import Places
from service.inspector.hashes import Record
from service.inspector.payloads import Payload, rendered, text_cut, unread
from service.inspector.times import Moment, moment

_ERROR_CHARS: Final = 2_000
_HEADERS: Final = 50
_OWN_FIELDS: Final = frozenset({b"msg", b"state", b"pending_since", b"unique_key", b"group", b"result"})


@dataclass(frozen=True, slots=True)
class Sight:
    """One task."""

    id: str
    record: Record | None
    message: TaskMessage | None
    places: Places
    missing: bool = False  #: there is no hash; without `record` and this it could not be read

    @property
    def said(self) -> str | None:
        """The state that the hash claims."""
        return state_said(self.record)

    @property
    def really(self) -> str | None:
        """Of several places, the one that the hash says: that is the one that Asynq acts by."""
        return self.said if self.said in self.places.states else next(iter(self.places.states), None)

    @property
    def agrees(self) -> bool | None:
        if self.record is None or (not self.places.held and self.places.unsought):
            return None
        return [self.said] == self.places.states


def state_said(record: Record | None) -> str | None:
    said = record.get("state") if record else None
    size = record.sizes_bytes.get(b"state", 0) if record else 0
    return text_cut(said, 40) if said else f"({size:,} bytes)" if size else None


def shown(name: str) -> str:
    """A name as decoded messages spell it: what is no UTF-8 escaped."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def facts(sight: Sight) -> dict[str, Fact]:
    """What the message says, and fields of the hash that Asynq does not write."""
    told: dict[str, Fact] = {}
    message, record = sight.message, sight.record
    if message is not None:
        told |= {
            "type": text_cut(message.type),
            "id": text_cut(message.id),
            "queue": text_cut(message.queue),
            "max_retries": message.max_retries,
            "retried": message.retried,
            "last_error": text_cut(message.error, _ERROR_CHARS) or None,
            "timeout_s": message.timeout_s or None,
            "retention_s": message.retention_s or None,
            "unique_key": text_cut(message.unique_key) or None,
            "group": text_cut(message.group) or None,
        }
        told |= {f"header {text_cut(name, 80)}": text_cut(value) for name, value in message.headers[:_HEADERS]}
        for field in message.unknown:
            told[f"field {field.number}"] = field.value if isinstance(field.value, int) else rendered(field.value)
    for name, size in (record.sizes_bytes if record else {}).items():
        if name not in _OWN_FIELDS:
            value = record.fields.get(name) if record else None
            told[f"hash field {text_cut(name, 80)}"] = unread(size) if value is None else rendered(value)
    return {name: value for name, value in told.items() if value is not None}


def times(sight: Sight) -> dict[str, Moment]:
    told: dict[str, Moment | None] = {place.at_is: place.at for place in sight.places.held if place.at_is}
    told["lease_ends"] = sight.places.lease_ends
    if sight.record is not None and "pending" in (sight.said, *sight.places.states):  # archived by hand, it stays
        told["pending_since"] = moment(sight.record.get("pending_since"), NANOSECONDS)
    if sight.message is not None:
        told["deadline"] = moment(sight.message.deadline_s, SECONDS)
        told["last_failed"] = moment(sight.message.last_failed_at_s, SECONDS)
        told["completed"] = moment(sight.message.completed_at_s, SECONDS)
    return {name: at for name, at in told.items() if at is not None}


def payloads(sight: Sight, max_bytes: int) -> dict[str, Payload]:
    """The task's payload and result; the message as it is, if it cannot be read."""
    told = dict[str, Payload]()
    if sight.message is not None:
        told["payload"] = rendered(sight.message.payload, max_bytes)
    if sight.record is not None:
        for name in ("result", *(["msg"] if sight.message is None else [])):
            size, data = sight.record.sizes_bytes.get(name.encode()), sight.record.get(name)
            if size is not None:
                told[name] = unread(size) if data is None else rendered(data, max_bytes)
    return told
