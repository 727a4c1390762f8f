"""Due jobs that the delayed set does not show as due: a claim put them back because their backend cannot be asked.

Each put-back is remembered until its jobs may be claimed again; the overdue gauges add what is remembered. Without it
an outage would look like an empty backlog.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from service.records import PutBack

#: Put-backs remembered a queue. A claim puts back up to 2,000 jobs at once, so that this is a backlog of 200,000; older
#: ones are merged, and leave the gauge together.
_REMEMBERED: Final = 100
#: From so many queues on, those whose jobs may all be claimed again are looked for and forgotten.
_QUEUES: Final = 1000


@dataclass(frozen=True, slots=True)
class _Group:
    count: int
    oldest_due_ms: int
    until_ms: int


class Overdue:
    """Times are Redis's, ms."""

    def __init__(self) -> None:
        self._groups: dict[str, list[_Group]] = {}
        self._forget_above = _QUEUES

    def put_back(self, queue: str, groups: Sequence[PutBack], now_ms: int) -> None:
        """A claim at `now_ms` put these back."""
        if not groups:
            return
        kept = [group for group in self._groups.get(queue, ()) if group.until_ms > now_ms]
        kept += [_Group(group.count, group.oldest_due_ms, group.until_ms) for group in groups]
        while len(kept) > _REMEMBERED:
            first, second, *rest = kept
            kept = [
                _Group(
                    first.count + second.count,
                    min(first.oldest_due_ms, second.oldest_due_ms),
                    max(first.until_ms, second.until_ms),
                ),
                *rest,
            ]
        self._groups[queue] = kept
        if len(self._groups) > self._forget_above:
            self._forget(now_ms)

    def _forget(self, now_ms: int) -> None:
        """Queues that nobody asks about must not stay for ever."""
        live = {name: kept for name, kept in self._groups.items() if any(group.until_ms > now_ms for group in kept)}
        self._groups, self._forget_above = live, max(_QUEUES, 2 * len(live))

    def of(self, queue: str, now_ms: int) -> tuple[int, int | None]:
        """How many jobs of this queue are put back, and when the oldest of them was due, ms."""
        kept = [group for group in self._groups.get(queue, ()) if group.until_ms > now_ms]
        if kept:
            self._groups[queue] = kept
        else:
            self._groups.pop(queue, None)
        return sum(group.count for group in kept), min((group.oldest_due_ms for group in kept), default=None)
