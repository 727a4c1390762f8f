"""Ids of both ends of each structure of a BullMQ queue, compared with their records and with the other structures.

Jobs move between two reads: what looks wrong is told only if it still does when it is looked at once more.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Final

from service.inspector.bullmq.job import LATE_MS, whereabouts
from service.inspector.bullmq.keys import QueueKeys, is_marker
from service.inspector.findings import Findings
from service.inspector.layout import SAMPLE, Look
from service.inspector.payloads import READ_BYTES, json_of
from service.inspector.reading import Command
from service.inspector.structures import Structure, earliest, ends
from service.inspector.times import Moment, moment
from service.members import text_of

_ID_CHARS: Final = 1_000  #: what is longer is no id, and not sent back to Redis as part of a key
_AT_ONCE: Final = 100  #: keys of one EXISTS
_CONFIRMED: Final = 20  #: suspects of one kind that are looked at once more
_NEAR: Final = 10_000  #: entries of a list within which an id is still near the end where it was
_READ: Final = 20  #: records of each structure that are read
_PARSED_BYTES: Final = 2**14  #: of one field, to see whether it is JSON
_JSON: Final = ("data", "opts")
_NUMBER_BYTES: Final = 32
_PARENTS: Final = 200


@dataclass(frozen=True, slots=True)
class _Held:
    """The ids that were read of one structure, as text, with what their scores say."""

    structure: Structure
    ids: Sequence[str]
    at: dict[str, Moment | None]
    looked_at: str  #: for whoever reads what was compared; "" if all was


@dataclass(frozen=True, slots=True)
class _Doubt:
    """Something that may be wrong with a job, and how to see whether it is."""

    kind: str
    detail: str
    asked: Callable[[str], Sequence[Command]]
    wrong: Callable[..., bool]  #: given the replies


class Sample:
    """One comparison."""

    def __init__(self, look: Look, keys: QueueKeys, found: Findings) -> None:
        self._look, self._reader = look, look.reader
        self._keys, self._found = keys, found

    async def compare(self) -> None:
        held = [await self._read(each) for each in self._keys.structures]
        if partly := [each.looked_at for each in held if each.looked_at]:
            self._found.add("not-all-looked-at", f"compared with their records: {', '.join(partly)}")
        for each in held:
            await self._gone(each)
            await self._records(each)
            if each.structure.state == "active":
                await self._active(each)
            if each.structure.state == "waiting-children":
                await self._parents(each)
        await self._elsewhere(held)

    async def _read(self, structure: Structure) -> _Held:
        both = await ends(self._reader, structure, self._found, SAMPLE)
        at = {text_of(member): scored for member, scored in both.members}
        long = [name for name in at if len(name) > _ID_CHARS]
        if long:
            self._found.add("does-not-parse", f"in {structure.state}, of over {_ID_CHARS:,} characters: no ids", long)
        ids = [name for name in at if len(name) <= _ID_CHARS and not is_marker(name)]
        partly = "" if both.whole or not both.count else f"{len(at):,} of {both.count:,} {structure.state}"
        return _Held(structure, ids, at, partly)

    async def _told(self, doubt: _Doubt, held: _Held, suspects: Sequence[str]) -> list[str]:
        """Adds a problem with those that are where they were and still wrong, both asked in one write."""
        again = list(suspects[:_CONFIRMED])
        asked = [[*self._holding(held.structure, each), *doubt.asked(each)] for each in again]
        replies = iter(await self._reader.send([command for commands in asked for command in commands]))
        confirmed = []
        for each, commands in zip(again, asked, strict=True):
            holding = len(self._holding(held.structure, each))
            told = [next(replies) for _ in commands]
            if any(isinstance(it, Exception) for it in told):
                continue
            if any(it is not None for it in told[:holding]) and doubt.wrong(*told[holding:]):
                confirmed.append(each)
        if confirmed:
            count = len(suspects) if len(confirmed) == _CONFIRMED else len(confirmed)
            self._found.add(doubt.kind, doubt.detail, confirmed, count=count, since=await self._since(doubt, confirmed))
        return confirmed

    def _holding(self, structure: Structure, job: str) -> Sequence[Command]:
        """What tells whether a structure holds it: one of the replies is not nil."""
        if structure.per_ms is not None:
            return [("ZSCORE", structure.key, job)]
        return [("LPOS", structure.key, job, "RANK", rank, "MAXLEN", _NEAR) for rank in (1, -1)]

    async def _since(self, doubt: _Doubt, ids: Sequence[str]) -> Moment | None:
        """When the first of the jobs that have no lock was taken."""
        if doubt.kind != "active-without-lease":
            return None
        keys = [self._keys.of(each) for each in ids]
        sizes = await self._reader.send([("HSTRLEN", key, "processedOn") for key in keys])
        asked = [
            key for key, size in zip(keys, sizes, strict=True) if isinstance(size, int) and 0 < size <= _NUMBER_BYTES
        ]
        return earliest([moment(it) for it in await self._reader.send([("HGET", key, "processedOn") for key in asked])])

    async def _gone(self, held: _Held) -> None:
        doubt = _Doubt(
            "id-without-record",
            f"in {held.structure.state}",
            lambda job: [("EXISTS", self._keys.of(job))],
            lambda there: there == 0,
        )
        await self._told(doubt, held, await self._absent(held.ids, self._keys.of))

    async def _active(self, held: _Held) -> None:
        doubt = _Doubt(
            "active-without-lease",
            "active, and no worker holds a lock",
            lambda job: [("EXISTS", self._keys.part(job, "lock"))],
            lambda there: there == 0,
        )
        await self._told(doubt, held, await self._absent(held.ids, lambda job: self._keys.part(job, "lock")))

    async def _absent(self, ids: Sequence[str], key_of: Callable[[str], str]) -> list[str]:
        """Those whose key is not there: halves what is not all there, so that few commands find a few in thousands."""
        absent = set[str]()
        parts = [ids[at : at + _AT_ONCE] for at in range(0, len(ids), _AT_ONCE)]
        while parts:
            there = await self._reader.send([("EXISTS", *map(key_of, part)) for part in parts])
            halves = list[Sequence[str]]()
            for part, count in zip(parts, there, strict=True):
                if count == 0:
                    absent |= set(part)
                elif count < len(part):
                    halves += [part[: len(part) // 2], part[len(part) // 2 :]]
            parts = halves
        return [each for each in ids if each in absent]

    async def _scored(self, structure: Structure, ids: Sequence[str]) -> list[str]:
        """Those that this sorted set holds."""
        parts = [ids[at : at + SAMPLE] for at in range(0, len(ids), SAMPLE)]
        replies = await self._reader.send([("ZMSCORE", structure.key, *part) for part in parts])
        scores = [
            score
            for part, reply in zip(parts, replies, strict=True)
            for score in self._found.told(reply, structure.key, [None] * len(part))
        ]
        return [each for each, score in zip(ids, scores, strict=True) if score is not None]

    async def _parents(self, held: _Held) -> None:
        """A flow is written in one step; those that have waited for seconds only are left alone all the same."""
        old = self._look.now_ms - LATE_MS
        ids = [each for each in held.ids if (at := held.at[each]) is None or at.ms < old][:_PARENTS]
        keys = [self._keys.part(each, "dependencies") for each in ids]
        left = await self._reader.send([("SCARD", key) for key in keys])
        told = [self._found.told(reply, key, None) for key, reply in zip(keys, left, strict=True)]
        doubt = _Doubt(
            "waits-for-nothing",
            "in waiting-children, with no pending child",
            lambda job: [("SCARD", self._keys.part(job, "dependencies"))],
            lambda pending: pending == 0,
        )
        await self._told(doubt, held, [each for each, count in zip(ids, told, strict=True) if count == 0])

    async def _records(self, held: _Held) -> None:
        """A few of each end: whether they are a job's, and whether a worker could read them."""
        state, half = held.structure.state, _READ // 2
        few = list(dict.fromkeys([*held.ids[:half], *held.ids[-half:]]))
        ghosts = await self._ghosts(held, few)
        whole = [each for each in few if each not in ghosts]
        sizes = await self._reader.send([("HSTRLEN", self._keys.of(it), name) for it in whole for name in _JSON])
        large = [
            each for each, *of in _by_id(whole, sizes) if any(isinstance(it, int) and it > READ_BYTES for it in of)
        ]
        if large:
            self._found.add("value-too-large", f"data or options of jobs in {state}", large)
        readable = [
            each for each, *of in _by_id(whole, sizes) if all(isinstance(it, int) and it <= _PARSED_BYTES for it in of)
        ]
        values = await self._reader.send([("HMGET", self._keys.of(each), *_JSON) for each in readable])
        broken = [
            each for each, reply in zip(readable, values, strict=True) if isinstance(reply, list) and _broken(reply)
        ]
        if broken:
            self._found.add("does-not-parse", f"data or options that are no JSON, of jobs in {state}", broken)

    async def _ghosts(self, held: _Held, ids: Sequence[str]) -> list[str]:
        """Hashes that lack what every job is written with: something touched a job that had been removed."""
        keys = [self._keys.of(each) for each in ids]
        fields = await self._reader.send([("HLEN", key) for key in keys])
        stamps = await self._reader.send([("HEXISTS", key, "timestamp") for key in keys])
        told = [self._found.told(reply, key, 0) for key, reply in zip(keys, fields, strict=True)]
        doubt = _Doubt(
            "does-not-parse",
            f"records in {held.structure.state} that are no job's, of which a part is left",
            lambda job: [("HLEN", self._keys.of(job)), ("HEXISTS", self._keys.of(job), "timestamp")],
            lambda count, stamp: count > 0 and stamp == 0,
        )
        suspects = [each for each, count, stamp in zip(ids, told, stamps, strict=True) if count and stamp == 0]
        return await self._told(doubt, held, suspects)

    async def _elsewhere(self, held: Sequence[_Held]) -> None:
        """Sorted sets are asked for all ids that were read; of the lists, what was read is compared."""
        suspects = set[str]()
        for each, other in permutations(held, 2):
            if other.structure.per_ms is not None:
                suspects.update(await self._scored(other.structure, each.ids))
            elif each.structure.per_ms is None:
                suspects.update(set(each.ids) & set(other.ids))
        told = dict[str, list[str]]()
        for job in sorted(suspects)[:_CONFIRMED]:
            places = (await whereabouts(self._look, self._keys, job, self._found)).places
            if len(places) > 1:
                told.setdefault(" and ".join(place.state for place in places), []).append(job)
        for states, jobs in told.items():
            self._found.add("in-two-places", f"in {states}", jobs)


def _by_id(ids: Sequence[str], sizes: Sequence[object]) -> list[tuple[str, object, object]]:
    return list(zip(ids, sizes[::2], sizes[1::2], strict=True))


def _broken(values: Sequence[bytes | None]) -> bool:
    try:
        for value in values:
            if value:
                json_of(value)
    except ValueError:
        return True
    return False
