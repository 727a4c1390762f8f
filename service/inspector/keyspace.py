"""Which queues there are, from the names of keys: one SCAN for all layouts, as far as it may go.

A queue with many keys is met early, wherever the SCAN stops. A small one beside millions of keys may be missed, which
the answer says; libraries that keep a registry of their queues lose none.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from service.inspector.layout import Layout
from service.inspector.reading import SCANNED, Budget, ReadOnly
from service.members import text_of

KEYS: Final = 100_000  #: keys looked at unless told to look at all: 100 ms
_HINTS: Final = 10_000  #: queues of one layout at most


@dataclass(frozen=True, slots=True)
class Survey:
    """What key names tell."""

    hints: Mapping[str, set[str]]  #: by layout: queues that keys seem to belong to
    keys: int  #: names looked at
    total: int  #: keys that the database held at the end

    @property
    def complete(self) -> bool:
        return self.keys >= self.total


def budget(keys: int | None) -> Budget:
    """Enough for a survey of so many keys."""
    return Budget(commands=10 + 2 * (keys or 10**12) // SCANNED, reply_bytes=2**28 if keys else 2**50)


async def survey(reader: ReadOnly, layouts: Mapping[str, Layout], keys: int | None = KEYS) -> Survey:
    """Looks at the names of about so many keys, or of all."""
    hints: dict[str, set[str]] = {name: set() for name in layouts}
    cursor, looked, whole = b"0", 0, False
    while keys is None or looked < keys:
        cursor, names = await reader.ask("SCAN", cursor, "COUNT", SCANNED)
        looked += len(names)
        for key in map(text_of, names):
            for name, layout in layouts.items():
                queue = layout.hint(key)
                if queue is not None and len(hints[name]) < _HINTS:
                    hints[name].add(queue)
        if int(cursor) == 0:
            whole = True
            break
    total = int(await reader.ask("DBSIZE"))
    return Survey(hints, max(looked, total) if whole else min(looked, total), total)
