"""Figures and names as people read them: 1.4 GiB, 12,300, $0.42, and the interval beside the point."""

from collections.abc import Callable
from typing import Final

from service.advisor.distribution import Band
from service.advisor.estimates import Estimate
from service.units import format_duration

_BINARY: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def size(value: float) -> str:
    """Three digits at least."""
    for unit in _BINARY[:-1]:
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" or abs(value) >= 100 else f"{value:.3g} {unit}"
        value /= 1024
    return f"{value:,.0f} {_BINARY[-1]}"


def count(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == round(value) else f"{value:.2g}"


def money(value: float) -> str:
    sign, value = "-" if value < 0 else "", abs(value)
    return f"{sign}${value:,.0f}" if value >= 100 else f"{sign}${value:.2f}" if value >= 0.01 or not value else "$0.00"


def percent(share: float) -> str:
    return f"{share * 100:.3g}%"


def spread(estimate: Estimate, shown: Callable[[float], str]) -> str:
    """`1.4 GiB (1.3 GiB to 1.6 GiB)`; the point alone if it is exact."""
    point, low, high = (shown(value) for value in (estimate.point, estimate.low, estimate.high))
    return point if low == high else f"{point} ({low} to {high})"


def name(text: str) -> str:
    """Other people's keys may be any bytes: what is no printable character is shown by its code."""
    text = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(it if it.isprintable() else it.encode("unicode_escape").decode() for it in text)


def threshold(bytes_: int) -> str:
    """As the settings take it: 16KiB, 1MiB; what is no round number in bytes."""
    for power, unit in ((20, "MiB"), (10, "KiB")):
        if bytes_ and bytes_ % (1 << power) == 0:
            return f"{bytes_ >> power}{unit}"
    return str(bytes_)


def sizes(band: Band) -> str:
    """A column's head."""
    return f"over {threshold(band.over)}" if band.up_to is None else f"to {threshold(band.up_to)}"


def delays(band: Band) -> str:
    """A row's head."""
    return f"over {format_duration(band.over)}" if band.up_to is None else f"to {format_duration(band.up_to)}"
