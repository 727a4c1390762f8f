"""A simple random sample of every delayed set, drawn by rank, within bounds.

Each set is a stratum of its own, so that a short one with large jobs is not lost beside a long one; only beyond STRATA
of them the shortest share one. Each gives LEAST jobs, or fewer if little is wanted, and its part of what is left.

Ranks are drawn without replacement and read in the order drawn, so that whatever ends the reading early (the bytes that
members hold, who are the payload themselves in some layouts) leaves a random sample still; the piece that went over is
part of it, or large jobs would be the ones left out.
"""

import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from service.advisor.delayed import DelayedSet, Job, Layout, Member
from service.inspector.reading import OverBudget, ReadOnly
from service.inspector.times import moment

STRATA: Final = 64
LEAST: Final = 200
_FEWEST: Final = 20
_PIECE: Final = 100  #: jobs in one go: 100 ranks, then up to three commands for each
_FIRST_PIECE: Final = 10  #: before it is known how large they are
_PIECE_BYTES: Final = 2**22


@dataclass(frozen=True, slots=True)
class Read:
    """What was read of one stratum."""

    size: int  #: jobs that it holds
    jobs: Sequence[Job]


@dataclass(frozen=True, slots=True)
class Sample:
    """What was read of all strata, and how many jobs of each set."""

    strata: Sequence[Read]
    read: Mapping[DelayedSet, int]
    faults: Mapping[tuple[str, str], int]  #: jobs of the sample that do not fit, by layout and fault
    cut_short: bool  #: by the bound on bytes

    @property
    def size(self) -> int:
        return sum(len(it.jobs) for it in self.strata)

    @property
    def population(self) -> int:
        return sum(it.size for it in self.strata)


def strata_of(sets: Sequence[DelayedSet], most: int = STRATA) -> list[list[DelayedSet]]:
    """Each set alone, the longest first; from the `most`th on together."""
    ordered = sorted((it for it in sets if it.jobs), key=lambda it: -it.jobs)
    alone, rest = ordered[: most - 1], ordered[most - 1 :]
    return [[it] for it in alone] + ([rest] if rest else [])


def allotted(sizes: Sequence[int], wanted: int) -> list[int]:
    """How many to draw of each stratum: `wanted` in all, but _FEWEST of each whatever is wanted."""
    least = [min(size, LEAST, max(_FEWEST, wanted // len(sizes))) for size in sizes]
    left, spare = sum(sizes) - sum(least), max(0, wanted - sum(least))
    if left <= spare:
        return list(sizes)
    return [few + (size - few) * spare // left for few, size in zip(least, sizes, strict=True)]


def drawn(sets: Sequence[DelayedSet], count: int, chance: random.Random) -> Iterator[tuple[DelayedSet, int]]:
    """So many jobs of these sets, as set and rank, in random order, each once."""
    ends = list(accumulate(it.jobs for it in sets))
    for place in chance.sample(range(ends[-1]), count):
        at = bisect_right(ends, place)
        yield sets[at], place - (ends[at] - sets[at].jobs)


class Sampler:
    """Reads samples. `reader`'s budget bounds all of it; `most_bytes` what replies may hold, shared out by stratum."""

    def __init__(self, reader: ReadOnly, layouts: Mapping[str, Layout], now_ms: int, chance: random.Random) -> None:
        self._reader = reader
        self._layouts = layouts
        self._now_ms = now_ms
        self._chance = chance

    async def sample(self, sets: Sequence[DelayedSet], wanted: int, most_bytes: int) -> Sample:
        """Raises what Transport does when Redis is away."""
        strata = strata_of(sets)
        counts = allotted([sum(it.jobs for it in stratum) for stratum in strata], wanted)
        every, found, cut_short = list[Read](), list[tuple[DelayedSet, Job]](), False
        ends_at, to_draw = self._reader.budget.reply_bytes - most_bytes, sum(counts)
        for stratum, count in zip(strata, counts, strict=True):
            share = max(0, self._reader.budget.reply_bytes - ends_at) * count // to_draw
            some, whole = await self._of(list(drawn(stratum, count, self._chance)), share)
            to_draw -= count
            cut_short = cut_short or not whole
            found += some
            every.append(Read(sum(it.jobs for it in stratum), [job for _, job in some]))
        faults = Counter((each.layout, job.fault) for each, job in found if job.fault)
        return Sample(every, Counter(each for each, _ in found), faults, cut_short)

    async def _of(
        self, draws: Sequence[tuple[DelayedSet, int]], most_bytes: int
    ) -> tuple[list[tuple[DelayedSet, Job]], bool]:
        """The jobs of one stratum, and whether all that were drawn have been asked for."""
        began_at, piece, done = self._reader.budget.reply_bytes, _FIRST_PIECE, 0
        found = list[tuple[DelayedSet, Job]]()
        while done < len(draws):
            spent = began_at - self._reader.budget.reply_bytes
            if spent > most_bytes:
                return found, False
            if done:
                piece = max(1, min(_PIECE, _PIECE_BYTES * done // max(1, spent)))
            try:
                found += await self._piece(draws[done : done + piece])
            except OverBudget:
                return found, False
            done += piece
        return found, True

    async def _piece(self, draws: Sequence[tuple[DelayedSet, int]]) -> list[tuple[DelayedSet, Job]]:
        replies = await self._reader.send([("ZRANGE", it.key, rank, rank, "WITHSCORES") for it, rank in draws])
        members: dict[DelayedSet, list[Member]] = {}
        for (each, _), reply in zip(draws, replies, strict=True):
            if isinstance(reply, list) and reply:  # else the set has become shorter
                per_ms = self._layouts[each.layout].per_ms
                members.setdefault(each, []).append(Member(reply[0], moment(reply[1], per_ms)))
        found = list[tuple[DelayedSet, Job]]()
        for each, some in members.items():
            jobs = await self._layouts[each.layout].jobs(self._reader, each.key, some, self._now_ms)
            found += [(each, job) for job in jobs]
        return found
