"""Durations and sizes as people write them.

    duration = ["-"] digits ["." digits] ("ms" | "s" | "m" | "h" | "d")     250ms  30s  1.5h  7d
    size     = digits ["KiB" | "MiB" | "GiB"]                               65536  16KiB  256MiB

A bare number is no duration: whoever reads it would have to guess the unit. A day has 24 hours. No spaces, and
neither `KB` nor `MB`, which mean two things each.
"""

import re
from decimal import Decimal
from functools import lru_cache
from typing import Final

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_UNITS_BYTES: Final = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}

# The number of digits is bounded, so that a text from a request is never turned into an integer of megabytes.
_duration = re.compile(r"(-?[0-9]{1,16}(?:\.[0-9]{1,9})?)(ms|s|m|h|d)")
_size = re.compile(r"([0-9]{1,18})(KiB|MiB|GiB|)")


@lru_cache(maxsize=1024)  # the same few delays come again and again; what is cached is at most 28 characters long
def parse_duration_ms(text: str) -> int:
    """The milliseconds that `text` says; less than 0 if it says so, which is for the caller to judge.

    Raises ValueError, fit to be shown and of bounded length: not the grammar above, or finer than a millisecond.
    """
    match = _duration.fullmatch(text)
    if match is None:
        raise ValueError(f"{_shown(text)} is not a duration: a number and its unit, as 250ms, 30s, 15m, 2h or 7d")
    number, unit = match.groups()
    ms = Decimal(number) * _UNITS_MS[unit]
    if ms != int(ms):
        raise ValueError(f"{_shown(text)} is finer than a millisecond")
    return int(ms)


def format_duration(ms: int) -> str:
    """The shortest spelling of `ms` that `parse_duration_ms` reads back as the same: `90000` -> `90s`."""
    fitting = [unit for unit, factor in _UNITS_MS.items() if ms % factor == 0]
    return min((f"{ms // _UNITS_MS[unit]}{unit}" for unit in reversed(fitting)), key=len) if ms else "0s"


def parse_size_bytes(text: str) -> int:
    """The bytes that `text` says, 0 or more. Raises ValueError, fit to be shown and of bounded length."""
    match = _size.fullmatch(text)
    if match is None:
        raise ValueError(f"{_shown(text)} is not a size: bytes as an integer, or as 16KiB, 16MiB or 1GiB")
    number, unit = match.groups()
    return int(number) * _UNITS_BYTES[unit]


def _shown(text: str) -> str:
    return repr(text if len(text) <= 50 else text[:50] + "…")
