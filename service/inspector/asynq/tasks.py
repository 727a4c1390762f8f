"""What the hashes of many Asynq tasks say, read in bounds: a field is asked for its size before it is read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from service.inspector.answers import Fact
from service.inspector.asynq.keys import NANOSECONDS, QueueKeys
from service.inspector.asynq.message import NotAMessage, TaskMessage, decode
from service.inspector.findings import Findings
from service.inspector.payloads import READ_BYTES, text_cut
from service.inspector.reading import ReadOnly
from service.inspector.times import Moment, moment
from service.members import text_of

STAND_COMMANDS: Final = 4
_WORD_BYTES: Final = 32  #: states and times are shorter; what is longer is neither
_GROUP_BYTES: Final = 2**10  #: of a group's name
_BRIEF_BYTES: Final = 2**16  #: of messages that are read for their type alone
_NUMBER_BYTES: Final = 20  #: of a 64-bit counter


@dataclass(frozen=True, slots=True)
class Stand:
    """What the hash of one id says of its state."""

    id: str
    exists: bool
    state: str | None = None  #: None: it has none
    message_bytes: int = 0
    readable: bool = True  #: False: its key is no hash, which `found` tells


async def stands(reader: ReadOnly, keys: QueueKeys, ids: Sequence[str], found: Findings) -> list[Stand]:
    """Of each id, in order, by up to STAND_COMMANDS each."""
    sizes = await _sizes(reader, keys, ids, ("state", "msg"))
    words = await _words(reader, keys, "state", {id_: size["state"] for id_, size in sizes.items()})
    empty = [id_ for id_, size in sizes.items() if not _fault_of(size) and not any(size.values())]
    there = dict(zip(empty, await reader.send([("EXISTS", keys.task(id_)) for id_ in empty]), strict=True))
    made = list[Stand]()
    for id_ in ids:
        size = sizes[id_]
        if error := _fault_of(size):
            found.told(error, keys.task(id_), None)
            made.append(Stand(id_, exists=True, readable=False))
        elif there.get(id_) == 0:
            made.append(Stand(id_, exists=False))
        else:
            made.append(Stand(id_, exists=True, state=words.get(id_), message_bytes=size["msg"]))
    return made


async def messages(
    reader: ReadOnly, keys: QueueKeys, ids: Sequence[str], most_bytes: int = _BRIEF_BYTES
) -> dict[str, TaskMessage | NotAMessage]:
    """The messages of those ids that have one, and not one of more than `most_bytes`."""
    sizes = await _sizes(reader, keys, ids, ("msg",))
    small = [id_ for id_, size in sizes.items() if not _fault_of(size) and 0 < size["msg"] <= most_bytes]
    read = await reader.send([("HGET", keys.task(id_), "msg") for id_ in small])
    told = dict[str, TaskMessage | NotAMessage]()
    for id_, data in zip(small, read, strict=True):
        if isinstance(data, bytes):
            try:
                told[id_] = decode(data)
            except NotAMessage as error:
                told[id_] = error
    return told


async def briefly(reader: ReadOnly, keys: QueueKeys, ids: Sequence[str]) -> dict[str, Mapping[str, Fact]]:
    """A few facts of each id whose message can be read."""
    told = await messages(reader, keys, ids)
    return {id_: _brief(message) for id_, message in told.items() if isinstance(message, TaskMessage)}


async def since_of(reader: ReadOnly, keys: QueueKeys, id: str) -> Moment | None:  # noqa: A002  Asynq's own word
    """Since when a task has been pending, if its hash says so."""
    sizes = await _sizes(reader, keys, [id], ("pending_since",))
    words = await _words(reader, keys, "pending_since", {id: sizes[id]["pending_since"]})
    return moment(words.get(id), NANOSECONDS)


async def group_of(reader: ReadOnly, keys: QueueKeys, id: str) -> str | None:  # noqa: A002  Asynq's own word
    """The group that a task's hash names."""
    sizes = await _sizes(reader, keys, [id], ("group",))
    size = sizes[id]["group"]
    if not isinstance(size, int) or not 0 < size <= _GROUP_BYTES:
        return None
    (name,) = await reader.send([("HGET", keys.task(id), "group")])
    return text_of(name) if isinstance(name, bytes) else None


async def number(reader: ReadOnly, key: str, found: Findings) -> int | None:
    """A counter; None for one that is not there. One that is no number is a problem: Asynq's scripts stop at it."""
    (reply,) = await reader.send([("GETRANGE", key, 0, _NUMBER_BYTES)])
    text = found.told(reply, key, b"")
    try:
        return int(text) if text else None
    except ValueError:
        found.add("does-not-parse", f"{text_cut(key)} is no number")
        return None


def too_large(stand: Stand) -> bool:
    return stand.message_bytes > READ_BYTES


async def _sizes(
    reader: ReadOnly, keys: QueueKeys, ids: Sequence[str], fields: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Of each field, in bytes, 0 if it is not there; an error if the key is no hash."""
    replies = await reader.send([("HSTRLEN", keys.task(id_), field) for id_ in ids for field in fields])
    rows = [replies[at : at + len(fields)] for at in range(0, len(replies), len(fields))]
    return {id_: dict(zip(fields, row, strict=True)) for id_, row in zip(ids, rows, strict=True)}


async def _words(reader: ReadOnly, keys: QueueKeys, field: str, sizes: Mapping[str, Any]) -> dict[str, str]:
    """A short field, of those ids that have it; of a longer one, that it is."""
    words = {id_: f"({size:,} bytes)" for id_, size in sizes.items() if isinstance(size, int) and size > _WORD_BYTES}
    short = [id_ for id_, size in sizes.items() if isinstance(size, int) and 0 < size <= _WORD_BYTES]
    read = await reader.send([("HGET", keys.task(id_), field) for id_ in short])
    return words | {id_: text_cut(word) for id_, word in zip(short, read, strict=True) if isinstance(word, bytes)}


def _fault_of(sizes: Mapping[str, Any]) -> Exception | None:
    return next((size for size in sizes.values() if isinstance(size, Exception)), None)


def _brief(message: TaskMessage) -> Mapping[str, Fact]:
    facts: dict[str, Fact] = {"type": text_cut(message.type)}
    if message.retried:
        facts["retried"] = f"{message.retried} of {message.max_retries}"
    return facts
