"""Asynq's TaskMessage, read by field numbers: a schema of our own over the bytes that a task's hash holds as `msg`.

    1 type          2 payload      3 id             4 queue         5 retry (most retries)
    6 retried       7 error_msg    8 timeout, s     9 deadline, s  10 unique_key
   11 last_failed_at, s           12 retention, s  13 completed_at, s
   14 group_key    15 headers, a map of text to text

It is proto3: a zero or empty field is absent on the wire. What Asynq declares as text is bytes here, since a strict
reader, Asynq's own among them, refuses the whole message for one byte that is not UTF-8, and somebody wants to see it.
A field that a newer release adds, or that comes with another wire type, is kept as an unknown one.

ServerInfo, which each server writes about itself every few seconds, likewise, as far as it is told here:

    1 host   2 pid   3 server_id   4 concurrency   5 queues, a map of name to priority   7 status   9 tasks in hand
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any, Final, TypeAlias

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

_Kind: TypeAlias = "FieldDescriptorProto.Type.ValueType"
_BYTES: Final = FieldDescriptorProto.TYPE_BYTES
_INT32: Final = FieldDescriptorProto.TYPE_INT32
_INT64: Final = FieldDescriptorProto.TYPE_INT64
_MESSAGE: Final = FieldDescriptorProto.TYPE_MESSAGE
_ONE: Final = FieldDescriptorProto.LABEL_OPTIONAL
_MANY: Final = FieldDescriptorProto.LABEL_REPEATED
_FIELDS: Final = {
    1: ("type", _BYTES),
    2: ("payload", _BYTES),
    3: ("id", _BYTES),
    4: ("queue", _BYTES),
    5: ("retry", _INT32),
    6: ("retried", _INT32),
    7: ("error_msg", _BYTES),
    8: ("timeout", _INT64),
    9: ("deadline", _INT64),
    10: ("unique_key", _BYTES),
    11: ("last_failed_at", _INT64),
    12: ("retention", _INT64),
    13: ("completed_at", _INT64),
    14: ("group_key", _BYTES),
}
_HEADERS: Final = 15
_SERVER_FIELDS: Final = {
    1: ("host", _BYTES),
    2: ("pid", _INT32),
    3: ("server_id", _BYTES),
    4: ("concurrency", _INT32),
    7: ("status", _BYTES),
    9: ("active", _INT32),
}
_SERVER_QUEUES: Final = 5
_GROUP_WIRE_TYPE: Final = 3
_UNKNOWN_MOST: Final = 50  #: foreign bytes may be thousands of tiny fields, of which nobody wants to read more


class NotAMessage(ValueError):
    """These bytes are no protobuf message: cut off, overwritten, or of another program."""


@dataclass(frozen=True, slots=True)
class UnknownField:
    """A field that this release of Coatcheck has no name for. A group, long out of use, comes without its content."""

    number: int
    value: int | bytes


@dataclass(frozen=True, slots=True)
class TaskMessage:
    """What a message says. Bytes that are no UTF-8 are shown escaped, and their field is in `not_text`."""

    type: str
    payload: bytes
    id: str
    queue: str
    max_retries: int
    retried: int
    error: str
    timeout_s: int  #: 0: none
    deadline_s: int  #: unix time; 0: none
    unique_key: str
    last_failed_at_s: int  #: 0: never
    retention_s: int
    completed_at_s: int  #: 0: not completed
    group: str
    headers: tuple[tuple[str, str], ...]
    unknown: tuple[UnknownField, ...]  #: the first 50
    not_text: tuple[str, ...]  #: names of fields in the .proto; Asynq itself cannot read a message that has one


@dataclass(frozen=True, slots=True)
class Server:
    """What a server says of itself."""

    host: str
    pid: int
    concurrency: int
    queues: frozenset[str]  #: as `service.members.text_of` spells names
    status: str
    active: int  #: tasks in its hands


def decode(data: bytes) -> TaskMessage:
    """Raises NotAMessage. Bytes of another program may decode by chance: then hardly anything is set but `unknown`."""
    try:
        message: Any = _schema()["Task"].FromString(data)
    except DecodeError as error:
        raise NotAMessage(f"{len(data)} bytes that are no protobuf message") from error
    not_text = list[str]()

    def text(name: str, value: bytes) -> str:
        try:
            return value.decode()
        except UnicodeDecodeError:
            if name not in not_text:
                not_text.append(name)
            return value.decode(errors="backslashreplace")

    return TaskMessage(
        type=text("type", message.type),
        payload=message.payload,
        id=text("id", message.id),
        queue=text("queue", message.queue),
        max_retries=message.retry,
        retried=message.retried,
        error=text("error_msg", message.error_msg),
        timeout_s=message.timeout,
        deadline_s=message.deadline,
        unique_key=text("unique_key", message.unique_key),
        last_failed_at_s=message.last_failed_at,
        retention_s=message.retention,
        completed_at_s=message.completed_at,
        group=text("group_key", message.group_key),
        headers=tuple((text("headers", it.key), text("headers", it.value)) for it in message.headers),
        unknown=tuple(_unknown(message)),
        not_text=tuple(not_text),
    )


def _unknown(message: Message) -> Iterator[UnknownField]:
    fields: Any = UnknownFieldSet(message)  # its stub does not say that it can be iterated over
    for field in islice(fields, _UNKNOWN_MOST):
        yield UnknownField(field.field_number, b"" if field.wire_type == _GROUP_WIRE_TYPE else field.data)


def decode_server(data: bytes) -> Server:
    """Raises NotAMessage."""
    try:
        message: Any = _schema()["Server"].FromString(data)
    except DecodeError as error:
        raise NotAMessage(f"{len(data)} bytes that are no protobuf message") from error
    return Server(
        host=message.host.decode(errors="backslashreplace"),
        pid=message.pid,
        concurrency=message.concurrency,
        queues=frozenset(it.key.decode(errors="surrogateescape") for it in message.queues),
        status=message.status.decode(errors="backslashreplace"),
        active=message.active,
    )


@cache
def _schema() -> dict[str, type[Message]]:
    """In a pool of its own: an application that imports Coatcheck may have Asynq's real schema in the common one."""
    file = FileDescriptorProto(name="coatcheck/asynq.proto", package="coatcheck", syntax="proto3")
    _add(file, "Task", _FIELDS, pairs=("headers", _HEADERS, _BYTES))
    _add(file, "Server", _SERVER_FIELDS, pairs=("queues", _SERVER_QUEUES, _INT32))
    pool = DescriptorPool()
    pool.Add(file)
    return {it.name: GetMessageClass(pool.FindMessageTypeByName(f"coatcheck.{it.name}")) for it in file.message_type}


def _add(
    file: FileDescriptorProto, name: str, fields: Mapping[int, tuple[str, _Kind]], pairs: tuple[str, int, _Kind]
) -> None:
    """A message; `pairs` is its one map: on the wire, a list of messages with the fields 1 and 2."""
    message, pair = file.message_type.add(name=name), f"{name}Pair"
    for number, (field, kind) in fields.items():
        message.field.add(name=field, number=number, type=kind, label=_ONE)
    field, number, kind = pairs
    message.field.add(name=field, number=number, type=_MESSAGE, label=_MANY, type_name=f".coatcheck.{pair}")
    entry = file.message_type.add(name=pair)
    entry.field.add(name="key", number=1, type=_BYTES, label=_ONE)
    entry.field.add(name="value", number=2, type=kind, label=_ONE)
