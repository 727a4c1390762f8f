"""What was taken and has not begun: a few jobs of each queue, and whose is next."""

from collections import deque
from collections.abc import Sequence

from service.worker.source import Entry
from service.worker.weights import Shares


class Waiting:
    """Jobs come in batches, a queue's at a time; they begin in the order of the shares all the same."""

    def __init__(self, weights: Sequence[float], *, strict: bool) -> None:
        self._shares = Shares(weights, strict=strict)
        self._entries: list[deque[Entry]] = [deque() for _ in weights]
        self._filled: list[int] = []  # queues that have some

    def __len__(self) -> int:
        return sum(map(len, self._entries))

    def add(self, queue: int, entries: Sequence[Entry]) -> None:
        if entries:
            if not self._entries[queue]:
                self._filled.append(queue)
            self._entries[queue] += entries

    def next(self) -> tuple[int, Entry] | None:
        """Whose it is, and the job."""
        filled = self._filled
        if not filled:
            return None
        (queue,) = filled if len(self._entries) == 1 else self._shares.grant(1, filled)
        entry = self._entries[queue].popleft()
        if not self._entries[queue]:
            filled.remove(queue)
        return queue, entry

    def drop(self, queue: int) -> list[Entry]:
        """All of one queue's, which are not waiting any more."""
        dropped = list(self._entries[queue])
        if dropped:
            self._entries[queue].clear()
            self._filled.remove(queue)
        return dropped
