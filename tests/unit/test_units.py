"""Durations and sizes: one grammar for settings and for the HTTP API's `delay`."""

import pytest
from hypothesis import given, strategies as st

from service.units import format_duration, parse_duration_ms, parse_size_bytes


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("250ms", 250),
        ("30s", 30_000),
        ("15m", 900_000),
        ("2h", 7_200_000),
        ("7d", 604_800_000),
        ("0s", 0),
        ("1.5h", 5_400_000),
        ("0.25s", 250),
        ("-5s", -5_000),
    ],
)
def test_a_duration_is_a_number_and_its_unit(text, ms):
    """A negative one is read: what is wrong with it, its user can say better."""
    assert parse_duration_ms(text) == ms


@pytest.mark.parametrize(
    "text", ["30", "", "s", "30 s", " 30s", "30S", "+30s", "1e3s", ".5s", "5.s", "٣s", "1h30m", "30s\n", "--1s"]
)
def test_everything_else_is_refused_by_name(text):
    """A bare number above all: 30 seconds and 30 ms look the same."""
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration_ms(text)


def test_finer_than_a_millisecond_is_refused_rather_than_rounded():
    with pytest.raises(ValueError, match="finer than a millisecond"):
        parse_duration_ms("0.5ms")


def test_a_decimal_is_exact():
    """In binary floating point, 1.001 s is 1000.9999999999999 ms."""
    assert parse_duration_ms("1.001s") == 1001


def test_a_huge_text_is_neither_computed_nor_echoed():
    """It may come from a request: neither time nor log lines may grow with it."""
    for parse in (parse_duration_ms, parse_size_bytes):
        with pytest.raises(ValueError, match="is not a") as caught:
            parse("9" * 1_000_000 + "d")
        assert len(str(caught.value)) < 200


@given(st.integers(min_value=-(2**53), max_value=2**53))
def test_what_is_formatted_is_read_back(ms):
    """`coatcheck config` prints what can be pasted back into the environment."""
    assert parse_duration_ms(format_duration(ms)) == ms


@pytest.mark.parametrize(
    ("ms", "text"), [(0, "0s"), (250, "250ms"), (1_000, "1s"), (90_000, "90s"), (86_400_000, "1d"), (7_200_000, "2h")]
)
def test_the_shortest_spelling_is_chosen(ms, text):
    assert format_duration(ms) == text


@pytest.mark.parametrize(
    ("text", "size"), [("0", 0), ("65536", 65536), ("16KiB", 16384), ("256MiB", 2**28), ("1GiB", 2**30)]
)
def test_a_size_is_bytes_or_binary_units(text, size):
    assert parse_size_bytes(text) == size


@pytest.mark.parametrize("text", ["", "16MB", "16kib", "16 MiB", "-1", "1.5MiB", "MiB", "1e6", "٣"])
def test_a_size_that_means_two_things_is_refused(text):
    """Is 16MB 16,000,000 or 16,777,216 bytes?"""
    with pytest.raises(ValueError, match="not a size"):
        parse_size_bytes(text)
