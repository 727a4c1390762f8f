"""Moments that other programs wrote as numbers: ms, s or ns, and sometimes no time at all."""

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Final

from service.clock import rfc3339

#: What lies between is taken for a time in ms: 1973 to 2286. Below, ms were seconds; above, microseconds or a priority.
FIRST_MS: Final = 10**11
LAST_MS: Final = 10**13
_BEYOND: Final = 10**30
_DIGITS: Final = 64  #: a longer text is no number of ours
_integer: Final = re.compile(r"-?[0-9]{1,30}")
_STEPS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


@dataclass(frozen=True, slots=True, order=True)
class Moment:
    """A point in time, ms since the epoch, UTC."""

    ms: int

    def __str__(self) -> str:
        return rfc3339(self.ms)


def moment(value: object, per_ms: float = 1.0) -> Moment | None:
    """The moment that a score or a field says: bytes, text or a number, of which `per_ms` make a millisecond.

    Seconds have `per_ms=0.001`, nanoseconds 1_000_000. None for what is no plausible time: NaN, infinity, 0, seconds
    where ms belong.
    """
    number = _number(value)
    if number is None or not math.isfinite(number):
        return None
    ms = number * round(1 / per_ms) if per_ms < 1 else number // per_ms
    return Moment(math.floor(ms)) if FIRST_MS <= ms <= LAST_MS else None


def relative(moment_ms: int, now_ms: int) -> str:
    """`in 3 min 20 s`, `2 d 4 h ago`: the two largest units."""
    distance = abs(moment_ms - now_ms)
    text = lasting(distance)
    return "now" if distance < 1 else f"in {text}" if moment_ms > now_ms else f"{text} ago"


def lasting(ms: int) -> str:
    """`3 min 20 s`: the two largest units; below a second, ms."""
    if ms < 1_000:
        return f"{ms} ms"
    for at, (unit_ms, name) in enumerate(_STEPS):
        if ms >= unit_ms:
            whole, rest = divmod(ms, unit_ms)
            further = _STEPS[at + 1 : at + 2]
            more = "".join(f" {rest // next_ms} {next_name}" for next_ms, next_name in further if rest >= next_ms)
            return f"{whole} {name}{more}"
    raise AssertionError("a second is the last step")


def local(moment_ms: int, zone: tzinfo | None = None) -> str:
    """`2026-11-30 10:00:00.250 +0100`, in `zone` or the machine's own; UTC where that has no such time."""
    at = datetime.fromtimestamp(moment_ms / 1000, UTC)
    try:
        at = at.astimezone(zone)
    except (OverflowError, ValueError, OSError):
        return rfc3339(moment_ms)
    return f"{at:%Y-%m-%d %H:%M:%S}.{moment_ms % 1000:03d} {at:%z}"


def _number(value: object) -> int | float | None:
    """Exact, if it is an integer: nanoseconds have more digits than a float."""
    if isinstance(value, bytes):
        value = value[:_DIGITS].decode("latin-1")
    if isinstance(value, str):
        try:
            return int(value) if _integer.fullmatch(value) else float(value[:_DIGITS])
        except ValueError:
            return None
    return value if isinstance(value, int | float) and abs(value) < _BEYOND else None
