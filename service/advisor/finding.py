"""Which delayed sets a Redis holds: what registries and fixed names lead to, and what a bounded SCAN meets."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from redis.exceptions import ResponseError

from service.advisor.delayed import DelayedSet, Layout
from service.inspector.reading import SCANNED, OverBudget, ReadOnly
from service.members import text_of

SCANS: Final = 4000  #: calls of SCAN, each about 0.15 ms of Redis: some 2,000,000 keys


@dataclass(frozen=True, slots=True)
class Found:
    sets: Sequence[DelayedSet]
    all_scanned: bool  #: not: sets that no registry lists may be missing
    unreadable: Sequence[str]  #: keys that should be delayed sets and are of another type, or may not be read
    unasked: int = 0  #: keys that may be delayed sets, and were too many to be asked; the shortest, as far as is known


async def delayed_sets(reader: ReadOnly, layouts: Mapping[str, Layout], scans: int = SCANS) -> Found:
    """All of them, the longest first, or as many as the reader's budget lets. Raises what Transport does."""
    registered = [key for layout in layouts.values() for key in await layout.registered(reader)]
    scanned, all_scanned = await _sorted_sets(reader, layouts, scans)
    keys = list(dict.fromkeys([*registered, *scanned]))
    asked = keys[: reader.budget.commands // 2]
    lengths = dict(zip(asked, await reader.send([("ZCARD", key) for key in asked]), strict=True))
    unreadable = [key for key, jobs in lengths.items() if isinstance(jobs, Exception)]
    filled = sorted(((jobs, key) for key, jobs in lengths.items() if isinstance(jobs, int) and jobs), reverse=True)
    sets = list[DelayedSet]()
    left = len(keys) - len(asked) + len(filled)
    with suppress(OverBudget):
        for jobs, key in filled:
            try:
                owner = await _owner(reader, layouts, key)
            except ResponseError:
                unreadable.append(key)
            else:
                sets += [DelayedSet(*owner, key, jobs)] if owner else []
            left -= 1
    return Found(sets, all_scanned, unreadable, left)


async def _owner(reader: ReadOnly, layouts: Mapping[str, Layout], key: str) -> tuple[str, str] | None:
    """The first layout whose it is, and the queue."""
    for layout in layouts.values():
        queue = layout.queue_of(key)
        if queue is not None and await layout.owns(reader, key):
            return layout.name, queue
    return None


async def _sorted_sets(reader: ReadOnly, layouts: Mapping[str, Layout], scans: int) -> tuple[list[str], bool]:
    cursor, found = 0, list[str]()
    for _ in range(scans):
        (reply,) = await reader.send([("SCAN", cursor, "COUNT", SCANNED, "TYPE", "zset")], raising=True)
        cursor = int(reply[0])
        found += _known(layouts, map(text_of, reply[1]))
        if cursor == 0:
            return found, True
    return found, False


def _known(layouts: Mapping[str, Layout], keys: Iterable[str]) -> list[str]:
    return [key for key in keys if any(layout.queue_of(key) is not None for layout in layouts.values())]
