"""Time, passed in. Wall clock for what is stored, monotonic for what is measured; between processes Redis's own."""

import math
import time
from datetime import UTC, datetime
from typing import Protocol


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


class ServerClock:
    """Redis's clock as this process knows it: what its replies said, carried on by a monotonic clock.

    Never ahead of Redis by more than Redis's own clock was stepped since the last reply; behind by at most that reply's
    way back.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead_ms: float | None = None
        self._learned_s = 0.0

    def learn(self, now_ms: int) -> None:
        """Redis's time in a reply that just arrived."""
        self._learned_s = self._clock.monotonic_s()
        self._ahead_ms = now_ms - self._learned_s * 1000

    def known_for_s(self) -> float:
        """How long ago Redis last told its time; infinite if it never did."""
        return math.inf if self._ahead_ms is None else self._clock.monotonic_s() - self._learned_s

    def now_ms(self) -> int:
        """Redis's time, ms. Before Redis told it for the first time, this machine's."""
        if self._ahead_ms is None:
            return self._clock.now_ms()
        return int(self._clock.monotonic_s() * 1000 + self._ahead_ms)


_LAST_MS = 253_402_300_799_999  #: the last that four digits of a year can say


def rfc3339(ms: int) -> str:
    """`2026-11-30T10:00:00.250Z`: UTC with milliseconds, as every answer of ours spells a time.

    What is later than the year 9999 is shown as its end: a made-up reference must not keep a page from being shown.
    """
    whole, rest = divmod(min(ms, _LAST_MS), 1000)
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%dT%H:%M:%S}.{rest:03d}Z"
