"""Time, passed in. Wall clock for what is stored, monotonic for what is measured; between processes Redis's own."""

import math
import time
from datetime import UTC, datetime
from typing import Final, Protocol


class Clock(Protocol):
    """What a component may ask about time. Tests pass one that stands still."""

    def now_ms(self) -> int:
        """Wall clock, ms since the epoch, UTC. May step; good for what people read, never for durations."""

    def monotonic_s(self) -> float:
        """Seconds since some fixed point; never steps back. For durations and deadlines within this process."""


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()


#: A reply that is so much behind the others was not slow on its way: Redis's clock was stepped back.
STEP_MS: Final = 50
#: A monotonic clock that disagrees with the wall clock by more stood still while the machine slept, or the wall clock
#: was stepped; which of the two cannot be told, and asking Redis once too often costs nothing.
_DISAGREE_MS: Final = 1000


class ServerClock:
    """Redis's clock as this process knows it: what its replies said, carried on by a monotonic clock.

    A reply names a whole millisecond that is over when it arrives, so that the best of the last replies counts: jobs
    are late by what this clock is behind. It is behind by at most the last reply's way back, and never ahead by more
    than Redis's own clock was stepped back within 2 s, at most STEP_MS. After the machine was suspended it is behind by
    as long, until the next reply; `known_for_s` tells.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead_ms: float | None = None  # of our monotonic clock: the best of this second's replies and the last's
        self._best_ms = self._older_ms = -math.inf
        self._second = -1
        self._learned_s = 0.0
        self._learned_wall_ms = 0

    def learn(self, now_ms: int) -> None:
        """Redis's time in a reply that just arrived."""
        self._learned_s, self._learned_wall_ms = self._clock.monotonic_s(), self._clock.now_ms()
        ahead_ms = now_ms - self._learned_s * 1000
        if self._ahead_ms is None or ahead_ms < self._ahead_ms - STEP_MS:
            self._best_ms = self._older_ms = ahead_ms
        elif int(self._learned_s) != self._second:
            self._older_ms, self._best_ms = self._best_ms, ahead_ms
        else:
            self._best_ms = max(self._best_ms, ahead_ms)
        self._second = int(self._learned_s)
        self._ahead_ms = max(self._best_ms, self._older_ms)

    def known_for_s(self) -> float:
        """How long ago Redis last told its time; infinite if it never did, or if this machine slept since."""
        if self._ahead_ms is None:
            return math.inf
        passed_s = self._clock.monotonic_s() - self._learned_s
        passed_wall_ms = self._clock.now_ms() - self._learned_wall_ms
        return math.inf if abs(passed_wall_ms - passed_s * 1000) > _DISAGREE_MS else passed_s

    def now_ms(self) -> int:
        """Redis's time, ms. Before Redis told it for the first time, this machine's."""
        return int(self.exact_ms())

    def exact_ms(self) -> float:
        """The same with its fraction, for who sleeps until a moment."""
        if self._ahead_ms is None:
            return self._clock.now_ms()
        return self._clock.monotonic_s() * 1000 + self._ahead_ms


_LAST_MS = 253_402_300_799_999  #: the last that four digits of a year can say


def rfc3339(ms: int) -> str:
    """`2026-11-30T10:00:00.250Z`: UTC with milliseconds, as every answer of ours spells a time.

    What is later than the year 9999 is shown as its end: a made-up reference must not keep a page from being shown.
    """
    whole, rest = divmod(min(ms, _LAST_MS), 1000)
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%dT%H:%M:%S}.{rest:03d}Z"
