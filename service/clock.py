"""Time, passed in. Wall clock for what is stored, monotonic for what is measured; between processes Redis's own counts."""

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


def rfc3339(ms: int) -> str:
    """`2026-11-30T10:00:00.250Z`: UTC with milliseconds, as every answer of ours spells a time."""
    whole, rest = divmod(ms, 1000)
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%dT%H:%M:%S}.{rest:03d}Z"
