"""Entries of redis_task_queue's lists and sets, which have to be looked into: pages from both ends, within bounds."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from service.inspector.answers import Unsought
from service.inspector.findings import Findings
from service.inspector.payloads import text_cut
from service.inspector.reading import PAGE, SCANNED, Command, OverBudget, ReadOnly
from service.inspector.rtq.envelope import Envelope, NotAnEnvelope, decode
from service.inspector.rtq.keys import RtqKeys
from service.inspector.structures import Structure
from service.inspector.times import Moment, moment
from service.inspector.weighing import afford
from service.members import text_of

SWEEP_BYTES: Final = 2**21  #: of entries read from one structure at most
SWEEP_PAGES: Final = 10  #: from each end
_SCANS: Final = 40  #: pages of the keyspace, for in-flight lists
_WORKERS: Final = 50  #: whose lists are looked at
_SHARED: Final = 500  #: entries of each end of a shared list that are looked at to tell whose they are
_special = str.maketrans({char: f"\\{char}" for char in "*?[]\\^"})


@dataclass(frozen=True, slots=True)
class Seen:
    """One entry, and what it says."""

    structure: Structure
    index: int  #: from the left of a list, from the lowest score of a set
    at: Moment | None
    envelope: Envelope | None
    fault: str | None  #: why it is no envelope; None without one: it was not decoded


@dataclass(frozen=True, slots=True)
class Sweep:
    """What was read of one structure."""

    structure: Structure
    entries: Sequence[Seen]
    total: int | None  #: None: it cannot be read
    each_end: int  #: entries looked at from each end

    @property
    def whole(self) -> bool:
        return self.total is not None and len(self.entries) >= self.total

    @property
    def unsought(self) -> Unsought | None:
        if self.whole or self.total is None:
            return None
        return Unsought(self.structure.state, self.structure.key, self.each_end, self.total)

    def of(self, queue: str) -> list[Seen]:
        return [it for it in self.entries if it.envelope is not None and it.envelope.queue == queue]


async def sweep(
    reader: ReadOnly, structure: Structure, found: Findings, most: int = SWEEP_PAGES * PAGE, naming: str = ""
) -> Sweep:
    """Up to `most` entries from each end, and SWEEP_BYTES of them altogether. Only those that may name `naming` are
    decoded: that takes longer than to read them.
    """
    key, count = structure.key, "LLEN" if structure.per_ms is None else "ZCARD"
    (reply,) = await reader.send([(count, key)])
    total = found.told(reply, key, None)
    if not total:
        return Sweep(structure, (), total, 0)
    page = await afford(reader, key, count, min(PAGE, most))
    if not page:
        found.add("value-too-large", f"{text_cut(key)}: entries too large to be read")
    left, right = list[Seen](), list[Seen]()
    name = naming.encode("utf-8", "surrogateescape")
    looked, enough = 0, reader.budget.reply_bytes - SWEEP_BYTES
    while page and looked < min(most, (total + 1) // 2) and reader.budget.reply_bytes > enough:
        try:
            first, last = await _pages(reader, structure, looked, page, found)
        except OverBudget:
            break
        fresh = max(0, total - looked - len(right))
        left += [_seen(structure, looked + at, *row, name) for at, row in enumerate(first[:fresh])]
        start = max(0, total - looked - len(last))
        right[:0] = [_seen(structure, start + at, *row, name) for at, row in enumerate(last) if start + at >= len(left)]
        looked += page
    return Sweep(structure, [*left, *right], total, min(looked, total))


async def workers(reader: ReadOnly, keys: RtqKeys, found: Findings) -> tuple[list[Structure], bool]:
    """The in-flight lists that there are, and whether these are all."""
    pattern = keys.in_flight("").key.translate(_special) + "*"
    names, cursor = set[str](), b"0"
    for _ in range(_SCANS):
        cursor, some = await reader.ask("SCAN", cursor, "MATCH", pattern, "COUNT", SCANNED)
        names |= {text_of(key) for key in some}
        if cursor == b"0" or len(names) > _WORKERS:
            break
    complete = cursor == b"0" and len(names) <= _WORKERS
    if not complete:
        found.add("not-all-looked-at", "in-flight lists were sought in a part of the keys")
    return [keys.in_flight(keys.worker_of(name)) for name in sorted(names)[:_WORKERS]], complete


@dataclass(frozen=True, slots=True)
class Shared:
    """What queues share: the lists of workers, by key, and the dead."""

    in_flight: Mapping[str, Sweep]
    dead: Sweep
    all_workers: bool

    def count_in_flight(self, queue: str) -> int | None:
        """None if not all could be looked into."""
        known = self.all_workers and all(it.whole for it in self.in_flight.values())
        return sum(len(it.of(queue)) for it in self.in_flight.values()) if known else None

    def count_dead(self, queue: str) -> int | None:
        return len(self.dead.of(queue)) if self.dead.whole else None

    @property
    def queues(self) -> set[str]:
        """Of the entries that were looked at."""
        sweeps = (self.dead, *self.in_flight.values())
        return {seen.envelope.queue for it in sweeps for seen in it.entries if seen.envelope is not None}


async def shared(reader: ReadOnly, keys: RtqKeys, found: Findings, most: int = _SHARED) -> Shared:
    lists, complete = await workers(reader, keys, found)
    in_flight = {it.key: await sweep(reader, it, found, most) for it in lists}
    return Shared(in_flight, await sweep(reader, keys.dead, found, most), complete)


def ids_of(entries: Sequence[bytes]) -> list[str]:
    """Of those that are envelopes."""
    ids = list[str]()
    for entry in entries:
        with suppress(NotAnEnvelope):
            ids.append(decode(entry).id)
    return ids


async def _pages(
    reader: ReadOnly, structure: Structure, looked: int, page: int, found: Findings
) -> list[list[tuple[bytes, bytes | None]]]:
    """The next of each end, as members with scores."""
    spans = ((looked, looked + page - 1), (-looked - page, -looked - 1))
    if structure.per_ms is None:
        commands: list[Command] = [("LRANGE", structure.key, *span) for span in spans]
    else:
        commands = [("ZRANGE", structure.key, *span, "WITHSCORES") for span in spans]
    replies = [found.told(reply, structure.key, []) for reply in await reader.send(commands)]
    if structure.per_ms is None:
        return [[(entry, None) for entry in reply] for reply in replies]
    return [list(zip(reply[::2], reply[1::2], strict=True)) for reply in replies]


def _seen(structure: Structure, index: int, entry: bytes, score: bytes | None, name: bytes) -> Seen:
    at = None if score is None else moment(score)
    if name not in entry and b"\\" not in entry:  # with that, JSON may spell it otherwise
        return Seen(structure, index, at, None, None)
    try:
        return Seen(structure, index, at, decode(entry), None)
    except NotAnEnvelope as error:
        return Seen(structure, index, at, None, str(error))
