"""What a lane has in hand, as far as it knows: until Redis has heard that it has not."""

from collections import Counter
from collections.abc import Sequence

from service.worker.source import Entry


class Held:
    """Entries, each itself: of two with the same payload, both."""

    def __init__(self) -> None:
        self._entries: set[Entry] = set()
        self.changes = 0  #: so far: whoever awaited something knows by them whether it is still as it was
        self.suspect: Entry | None = None  #: the one at most

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entries: Sequence[Entry]) -> None:
        self._entries.update(entries)
        self.changes += 1
        if entries and entries[0].deaths:
            self.suspect = entries[0]

    def remove(self, entries: Sequence[Entry]) -> None:
        self._entries.difference_update(entries)
        self.changes += 1
        if self.suspect in entries:
            self.suspect = None

    def clear(self) -> None:
        self._entries.clear()
        self.changes += 1
        self.suspect = None

    def unknown(self, found: Sequence[Entry]) -> list[Entry]:
        """Those of `found`, which Redis says are in our hands, that nobody told us of."""
        more = Counter(entry.handle for entry in found) - Counter(entry.handle for entry in self._entries)
        adopted = []
        for entry in found:
            if more[entry.handle] > 0:
                more[entry.handle] -= 1
                adopted.append(entry)
        return adopted
