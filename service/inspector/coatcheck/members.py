"""Members of Coatcheck's sorted sets, by pages and samples, whatever a hand put there."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from service.inspector.findings import Findings
from service.inspector.payloads import json_of, text_cut
from service.inspector.reading import PAGE, Command, ReadOnly
from service.inspector.weighing import afford, affordable, weighed
from service.members import reference_of, text_of
from service.router import INLINE as INLINE_BACKEND
from storage_backends.reference import Reference

INLINE: Final = INLINE_BACKEND
AT_ONCE: Final = 200  #: members asked about by one command: below half a millisecond among 2,000,000


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a set, and what can be told of it by itself."""

    text: str
    score: float
    reference: Reference | None  #: None: a stranger
    id: str  #: under which the hashes keep what they have of it: its uuid, or a stranger's sha1

    @property
    def backend(self) -> str | None:
        return self.reference.backend if self.reference else None


def member_of(member: bytes, score: float) -> Member:
    """Never raises."""
    text = text_of(member)
    reference = reference_of(text)
    id_ = reference.uuid if reference else hashlib.sha1(member, usedforsecurity=False).hexdigest()
    return Member(text, score, reference, id_)


@dataclass(frozen=True, slots=True)
class Members:
    """The sets of one queue."""

    reader: ReadOnly
    queue: str

    async def ends(
        self, key: str, each_end: int, found: Findings
    ) -> tuple[list[tuple[bytes, float]], list[tuple[bytes, float]], int | None]:
        """The first and the last members with their scores, none twice, and how many there are."""
        weight = await self.reader.send(weighed(key, "ZCARD"))
        total, most = found.told(weight[1], key, None), affordable(weight, each_end)
        if not most:
            found.add("value-too-large", f"{text_cut(key)}: its members are too large to be shown")
        if not total or not most:
            return [], [], total
        rest = min(most, total - most)
        ends: list[Command] = [("ZRANGE", key, 0, most - 1, "WITHSCORES")]
        if rest > 0:
            ends.append(("ZRANGE", key, -rest, -1, "WITHSCORES"))
        replies = [*await self.reader.send(ends), []]
        return pairs(found.told(replies[0], key, [])), pairs(found.told(replies[1], key, [])), total

    async def sample(self, key: str, found: Findings) -> list[bytes]:
        """All members of a small set, as many at random of a large one: each has the same chance."""
        most = await afford(self.reader, key, "ZCARD", PAGE)
        [reply] = await self.reader.send([("ZRANDMEMBER", key, most)]) if most else [[]]
        return list(found.told(reply, key, []))

    async def scores(self, keys: Sequence[str], members: Sequence[str], found: Findings) -> list[list[float | None]]:
        """Of each key: the scores of these members, None where it has none. All keys are asked in one write."""
        asked: list[list[float | None]] = [[] for _ in keys]
        for at in range(0, len(members), AT_ONCE):
            some = members[at : at + AT_ONCE]
            commands: list[Command] = [("ZMSCORE", key, *some) for key in keys]
            for scores, reply, key in zip(asked, await self.reader.send(commands), keys, strict=True):
                told = found.told(reply, key, [None] * len(some))
                scores += [None if score is None else float(score) for score in told]
        return asked

    def reason(self, record: Any) -> str:
        """Why a job is dead, as its record has it."""
        told = record_of(record)
        return str(told.get("reason") or "no reason recorded")[:100] if told is not None else "no record"


def record_of(record: bytes | None) -> dict[str, Any] | None:
    """What `trouble` keeps of a job; None if that is nothing, or not what Coatcheck writes."""
    try:
        told = json_of(record) if record is not None else None
    except ValueError:
        return None
    return told if isinstance(told, dict) else None


def pairs(flat: Sequence[bytes]) -> list[tuple[bytes, float]]:
    """Members with their scores."""
    return [(member, float(score)) for member, score in zip(flat[::2], flat[1::2], strict=True)]
