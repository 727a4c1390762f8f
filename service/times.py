"""When a job is due, as callers say it, and what we refuse to guess.

    delay = duration, 0 or more             250ms  30s  1.5h  7d         never a bare number
    due   = RFC 3339 with an offset         2026-11-30T10:00:00.25+01:00
          | integer                         1764547200000                ms since the epoch; seconds are refused

Exactly one of them. A past due means now. Nothing is due more than 10 years ahead: that is a mistake in the unit.
"""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from service.errors import InvalidTime
from service.units import format_duration, parse_duration_ms
from storage_backends.reference import MAX_TS_MS

Delay = str | timedelta
Due = datetime | int | str

MAX_AHEAD_MS: Final = 3653 * 86_400_000  #: ten years, leap days included
#: As ms since the epoch this is March 1973, as seconds the year 5138: what is below was meant as seconds.
MIN_DUE_MS: Final = 10**11

_EPOCH: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
_MS: Final = timedelta(milliseconds=1)
_integer = re.compile(r"-?[0-9]{1,20}")
_rfc3339 = re.compile(
    r"(?P<seconds>[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2})"
    r"(?:\.(?P<fraction>[0-9]{1,12}))?"
    r"(?P<offset>[Zz]|[+-][0-9]{2}:[0-9]{2})?"
)


@dataclass(frozen=True, slots=True)
class When:
    """A due time as it was said, before it is known what time it is. One of the two numbers is set; made by `when`."""

    text: str  #: as it was sent, for the request's fingerprint: `delay=30s`
    delay_ms: int | None = None
    due_ms: int | None = None

    def at(self, now_ms: int) -> int:
        """Due, ms, if it is `now_ms` by Redis's clock. Raises InvalidTime if that is too far ahead."""
        if self.delay_ms is not None:
            return now_ms + self.delay_ms
        due_ms = self.due_ms or 0
        if due_ms - now_ms > MAX_AHEAD_MS:
            raise InvalidTime(f"due: {due_ms} ms is more than 10 years ahead; an integer is ms since the epoch")
        return max(due_ms, now_ms)


def when(delay: Delay | None = None, due: Due | None = None) -> When:
    """What the caller said. Raises InvalidTime, fit to be shown: both or neither, or a value that cannot be."""
    if (delay is None) == (due is None):
        raise InvalidTime(f"{'both' if delay is not None else 'neither'} of delay and due given: exactly one is needed")
    if delay is None:
        due_ms = _due_ms(due)
        return When(f"due={due.isoformat() if isinstance(due, datetime) else due}", due_ms=due_ms)
    ms = _delay_ms(delay)
    if ms < 0:
        raise InvalidTime(f"delay: {_shown(delay)} is negative; for a job that is due now say 0s")
    if ms > MAX_AHEAD_MS:
        raise InvalidTime(f"delay: {_shown(delay)} is more than 10 years")
    return When(f"delay={delay if isinstance(delay, str) else format_duration(ms)}", delay_ms=ms)


def _delay_ms(delay: object) -> int:
    if isinstance(delay, timedelta):
        return _up_to_ms(delay)
    if not isinstance(delay, str):
        raise InvalidTime(f"delay: {_shown(delay)} is not a duration: a number and its unit, as in 250ms, 30s or 7d")
    try:
        return parse_duration_ms(delay)
    except ValueError as error:
        raise InvalidTime(f"delay: {error}") from error


def _due_ms(due: object) -> int:
    if isinstance(due, datetime):
        if due.tzinfo is None or due.utcoffset() is None:
            raise InvalidTime("due: a naive datetime says no time; give it a timezone")
        return _up_to_ms(due - _EPOCH)
    if isinstance(due, int) and not isinstance(due, bool):
        return _plausible(due)
    if not isinstance(due, str):
        raise InvalidTime(f"due: {_shown(due)} is neither RFC 3339 with an offset nor an integer, ms since the epoch")
    return _plausible(int(due)) if _integer.fullmatch(due) else _rfc3339_ms(due)


def _plausible(due_ms: int) -> int:
    if abs(due_ms) > MAX_TS_MS:
        raise InvalidTime("due: an integer beyond 2^53 is no time in ms")
    if due_ms < 0:
        raise InvalidTime(f"due: {due_ms} is negative; an integer is ms since the epoch")
    if due_ms < MIN_DUE_MS:
        raise InvalidTime(f"due: {due_ms} looks like seconds; an integer is ms since the epoch")
    return due_ms


def _rfc3339_ms(text: str) -> int:
    match = _rfc3339.fullmatch(text)
    if match is None:
        raise InvalidTime(
            f"due: {_shown(text)} is neither RFC 3339, as in 2026-11-30T10:00:00Z, nor an integer, ms since the epoch"
        )
    seconds, fraction, offset = match.group("seconds", "fraction", "offset")
    if offset is None:
        raise InvalidTime(f"due: {_shown(text)} has no offset; end it in Z or as in +01:00")
    try:
        whole = datetime.fromisoformat(seconds.upper() + offset.upper()) - _EPOCH
    except (ValueError, OverflowError) as error:
        raise InvalidTime(f"due: {_shown(text)} is no time: {error}") from error
    return _up_to_ms(whole) + _ceiling(fraction)


def _ceiling(fraction: str | None) -> int:
    """Of a second, in ms."""
    return -(-int(fraction) * 1000 // 10 ** len(fraction)) if fraction else 0


def _up_to_ms(duration: timedelta) -> int:
    """Rounded up: a job is never early, not by a microsecond."""
    return -(-duration // _MS)


def _shown(value: object) -> str:
    if isinstance(value, int) and abs(value) > MAX_TS_MS:
        return "an integer beyond 2^53"  # Python refuses to spell very long ones
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else text[:60] + "…"
