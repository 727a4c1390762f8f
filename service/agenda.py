"""When this dispatcher wants to look at a queue again although the index says now: the queue waits for something.

    for a fetch slot, for room in its ready queue       50 ms, doubling up to the loop's interval
    for people (a ready key of another type, an error)   the cool-down

Kept in this process's memory, so that an overdue head never makes the loop spin. Bounded by the number of queues with
due jobs.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

Cause = Literal["slots", "ready_full", "redis_full", "ready_unusable", "error"]

FIRST_WAIT_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class _Wait:
    until_s: float
    wait_s: float
    cause: Cause


class Agenda:
    """Times are monotonic seconds, handed in."""

    def __init__(self, *, longest_wait_s: float, cool_down_s: float) -> None:
        self._longest_wait_s = longest_wait_s
        self._cool_down_s = cool_down_s
        self._waits: dict[str, _Wait] = {}

    def wait(self, queue: str, cause: Cause, now_s: float) -> None:
        """Nothing could be taken: look again later, and later still if that happens again for the same cause."""
        before = self._waits.get(queue)
        if cause in ("ready_unusable", "error"):
            wait_s = self._cool_down_s
        elif before is not None and before.cause == cause:
            wait_s = min(before.wait_s * 2, self._longest_wait_s)
        else:
            wait_s = min(FIRST_WAIT_S, self._longest_wait_s)
        self._waits[queue] = _Wait(now_s + wait_s, wait_s, cause)

    def go_on(self, queue: str) -> None:
        """Something could be taken: no reason to wait any more."""
        self._waits.pop(queue, None)

    def slots_freed(self) -> bool:
        """Whoever waits for a slot may look at once. Returns whether anybody does."""
        waiting = [queue for queue, wait in self._waits.items() if wait.cause == "slots"]
        for queue in waiting:
            self._waits[queue] = _Wait(0.0, FIRST_WAIT_S / 2, "slots")
        return bool(waiting)

    def ready(self, queue: str, now_s: float) -> bool:
        wait = self._waits.get(queue)
        return wait is None or wait.until_s <= now_s

    def starved(self, queue: str) -> bool:
        """Whether the queue got nothing at its last turn because others held all slots: its turn comes first."""
        wait = self._waits.get(queue)
        return wait is not None and wait.cause == "slots"

    def waits_for(self, queue: str, cause: Cause, now_s: float) -> bool:
        wait = self._waits.get(queue)
        return wait is not None and wait.cause == cause and wait.until_s > now_s

    def keep(self, due: Iterable[str]) -> None:
        """Forget all queues but these."""
        self._waits = {queue: self._waits[queue] for queue in due if queue in self._waits}

    def first_look_s(self, now_s: float) -> float:
        """Seconds until the first of the waiting queues may be looked at; infinite if none waits."""
        return min((max(0.0, wait.until_s - now_s) for wait in self._waits.values()), default=math.inf)

    def causes(self) -> dict[str, int]:
        """How many queues wait, by cause."""
        counts: dict[str, int] = {}
        for wait in self._waits.values():
            counts[wait.cause] = counts.get(wait.cause, 0) + 1
        return counts

    def __len__(self) -> int:
        return len(self._waits)
