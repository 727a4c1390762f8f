"""Times and payloads of other people's: what they are taken for, and that nothing in them harms who looks."""

import json
from datetime import timedelta, timezone

import pytest
from hypothesis import given, strategies as st

from service.inspector.payloads import json_of, rendered, text_cut
from service.inspector.times import Moment, lasting, local, moment, relative

NOW_MS = 1_764_547_200_250


# ---- times -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "per_ms"),
    [
        (NOW_MS, 1),
        (str(NOW_MS), 1),
        (str(NOW_MS).encode(), 1),
        (float(NOW_MS), 1),
        ("1.76454720025e+12", 1),
        (NOW_MS / 1000, 0.001),
        (NOW_MS * 1_000_000, 1_000_000),
    ],
)
def test_a_time_is_read_in_every_unit_that_libraries_write(value, per_ms):
    assert moment(value, per_ms) == Moment(NOW_MS)


@pytest.mark.parametrize(
    "value",
    [0, -1, "inf", "-inf", "nan", "", b"\xff", "soon", None, [], NOW_MS // 1000, NOW_MS * 1000, 10**400, "1e999"],
)
def test_what_is_no_time_is_none(value):
    """A priority, a sequence, seconds where ms belong: shown as 1970, it would send people the wrong way."""
    assert moment(value) is None


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1_000, "1 s"),
        (61_000, "1 min 1 s"),
        (3_600_000, "1 h"),
        (3_661_000, "1 h 1 min"),
        (90_000_000, "1 d 1 h"),
    ],
)
def test_a_duration_has_its_two_largest_units(ms, text):
    assert lasting(ms) == text


def test_a_time_is_told_by_the_clock_on_the_wall_and_by_its_distance():
    berlin = timezone(timedelta(hours=1))
    assert local(NOW_MS, berlin) == "2025-12-01 01:00:00.250 +0100"
    assert relative(NOW_MS + 200_000, NOW_MS) == "in 3 min 20 s"
    assert relative(NOW_MS - 200_000, NOW_MS) == "3 min 20 s ago"
    assert relative(NOW_MS, NOW_MS) == "now"
    assert str(Moment(NOW_MS)) == "2025-12-01T00:00:00.250Z"


@given(st.binary() | st.text() | st.floats() | st.integers() | st.none(), st.sampled_from([1, 0.001, 1_000_000]))
def test_every_value_is_a_moment_that_can_be_told_or_none(value, per_ms):
    at = moment(value, per_ms)
    assert at is None or (str(at) and local(at.ms) and relative(at.ms, NOW_MS))


# ---- payloads --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b'{"a": [1, null]}', "json"),
        (b"12", "json"),
        ("zoë\n".encode(), "text"),
        (b'{"a": NaN}', "text"),
        (b"[" * 100_000, "text"),
        (b"\x80abc", "binary"),
        (b"a\x00b", "binary"),
        (b"\x1b[2J", "binary"),
        (b"", "empty"),
    ],
)
def test_a_payload_is_shown_as_what_it_is(data, kind):
    """What a terminal would obey is not shown to it."""
    assert rendered(data).kind == kind


def test_a_cut_falls_between_characters():
    shown = rendered("ë".encode() * 100, 11)
    assert (shown.shown, shown.cut, shown.size_bytes) == ("ë" * 5, True, 200)
    assert rendered(b"\xff" * 100, 10).shown == "ff" * 5
    assert rendered("aë".encode()[:2], 100, size_bytes=500).kind == "text", "its end was not read"


@given(st.binary(max_size=300), st.integers(0, 100), st.integers(0, 1000))
def test_no_payload_is_shown_beyond_its_bound_or_as_more_than_it_is(data, max_bytes, more):
    shown = rendered(data, max_bytes, len(data) + more)
    assert len(shown.shown.encode()) <= max_bytes
    assert shown.cut or shown.size_bytes == 0 or not more
    assert shown.size_bytes == len(data) + more
    assert all(each.isprintable() or each in "\n\r\t" for each in shown.shown)


@given(st.binary() | st.text(st.characters()), st.integers(1, 50))
def test_every_name_becomes_one_short_printable_line(name, most):
    shown = text_cut(name, most)
    assert len(shown) <= most
    assert shown.isprintable()


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", "[" * 100_000, "{", b"\xff", ""])
def test_what_is_no_json_is_a_value_error(text):
    with pytest.raises(ValueError):  # noqa: PT011  of json's, and ours
        json_of(text)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3)))
def test_json_is_what_json_says(value):
    assert json_of(json.dumps(value)) == value
