"""Which queue is next: true shares by weight, or strict priority. Pure."""

from collections.abc import Collection, Sequence
from typing import Final

LEAST: Final = 1e-6


class Shares:
    """Stride scheduling. Each queue has a pass that advances by 1/weight with each job; the lowest pass is next.

    So the shares are true over any stretch in which the same queues have jobs, whatever the batches, and none starves.
    A queue that comes back has no claim on what it did not want meanwhile.
    """

    def __init__(self, weights: Sequence[float], *, strict: bool = False) -> None:
        """By queue, in order. `strict`: the first queue that has jobs gets everything. Raises ValueError."""
        if not weights or any(not LEAST <= weight <= 1 / LEAST for weight in weights):
            raise ValueError("a weight is a number above 0")
        self._strides = [1 / weight for weight in weights]
        self._passes = list(self._strides)  # so that of the first jobs the heaviest queue has one
        self._now = 0.0  # the pass of the job that was granted last
        self._present: frozenset[int] = frozenset()
        self._strict = strict

    def grant(self, count: int, candidates: Collection[int]) -> dict[int, int]:
        """Queue -> how many of the next `count` jobs are its, among `candidates`, which have jobs or may have."""
        if not candidates or count <= 0:
            return {}
        if self._strict:
            return {min(candidates): count}
        passes, strides = self._passes, self._strides
        present = frozenset(candidates)
        for queue in present - self._present:
            passes[queue] = max(passes[queue], self._now)
        self._present = present
        granted: dict[int, int] = {}
        for _ in range(count):
            queue = min(candidates, key=passes.__getitem__)
            self._now = passes[queue]
            passes[queue] += strides[queue]
            granted[queue] = granted.get(queue, 0) + 1
        return granted

    def refund(self, queue: int, count: int) -> None:
        """It had fewer jobs than it was granted, by `count`."""
        if not self._strict:
            self._passes[queue] -= count * self._strides[queue]
