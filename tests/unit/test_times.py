"""When a job is due, as callers say it. Mistakes are refused with a text that helps; nothing is guessed or early."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, strategies as st

from service.errors import InvalidTime
from service.times import MAX_AHEAD_MS, when

NOW_MS = 1_764_547_200_250  # 2025-12-01T00:00:00.250Z
DAY_MS = 86_400_000


def due(**said: Any) -> int:
    return when(**said).at(NOW_MS)


@pytest.mark.parametrize(
    ("delay", "ms"),
    [
        ("0s", 0),
        ("1ms", 1),
        ("250ms", 250),
        ("30s", 30_000),
        ("1.5h", 5_400_000),
        ("25d", 25 * DAY_MS),
        ("3652d", 3652 * DAY_MS),
        (timedelta(seconds=1, microseconds=1), 1001),
        (timedelta(0), 0),
    ],
)
def test_a_delay_counts_from_redis_now(delay, ms):
    assert due(delay=delay) == NOW_MS + ms


@pytest.mark.parametrize(
    ("delay", "says"),
    [
        ("30", "a number and its unit"),
        ("", "a number and its unit"),
        ("1 s", "a number and its unit"),
        ("1e3s", "a number and its unit"),
        ("1h30m", "a number and its unit"),
        ("٣s", "a number and its unit"),
        ("-1s", "negative"),
        (timedelta(microseconds=-1001), "negative"),
        ("0.5ms", "finer than a millisecond"),
        ("3654d", "more than 10 years"),
        ("99999999999999d", "more than 10 years"),
        (30, "not a duration"),
        (True, "not a duration"),
        pytest.param(10**5000, "not a duration", id="5,001 digits"),
        (["30s"], "not a duration"),
    ],
)
def test_a_delay_that_cannot_be_is_refused_and_says_why(delay, says):
    with pytest.raises(InvalidTime, match=says):
        when(delay=delay)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("2025-12-01T00:00:01Z", 1_764_547_201_000),
        ("2025-12-01T01:00:01+01:00", 1_764_547_201_000),
        ("2025-11-30T19:00:01.5-05:00", 1_764_547_201_500),
        ("2025-12-01t00:00:01.25z", 1_764_547_201_250),
        ("2025-12-01 00:00:01Z", 1_764_547_201_000),
        ("2035-11-29T00:00:00Z", 2_079_907_200_000),
        ("1764547201000", 1_764_547_201_000),
        (1_764_547_201_000, 1_764_547_201_000),
        (datetime(2025, 12, 1, 1, 0, 1, tzinfo=timezone(timedelta(hours=1))), 1_764_547_201_000),
    ],
)
def test_a_due_time_is_rfc_3339_with_an_offset_or_integer_ms(text, ms):
    assert due(due=text) == ms


@pytest.mark.parametrize(
    "past",
    ["2020-01-01T00:00:00Z", "0001-01-01T00:00:00+23:00", "100000000000", 10**11, datetime(1990, 1, 1, tzinfo=UTC)],
)
def test_a_due_time_in_the_past_is_now(past):
    assert due(due=past) == NOW_MS


@pytest.mark.parametrize(
    "text",
    ["2025-12-01T00:00:01.0001Z", "2025-12-01T00:00:01.000000001Z", datetime(2025, 12, 1, 0, 0, 1, 1, tzinfo=UTC)],
)
def test_what_is_finer_than_a_millisecond_is_rounded_up_so_that_nothing_is_early(text):
    assert due(due=text) == 1_764_547_201_001


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("2025-12-01T00:00:00", "has no offset"),
        (datetime(2025, 12, 1), "naive"),
        ("1764547200", "looks like seconds"),
        (1_764_547_200, "looks like seconds"),
        (0, "looks like seconds"),
        (10**11 - 1, "looks like seconds"),
        (-1, "negative"),
        ("-1764547200000", "negative"),
        (2**53, "no time in ms"),
        pytest.param(10**5000, "no time in ms", id="5,001 digits"),
        ("9" * 30, "neither RFC 3339"),
        ("tomorrow", "neither RFC 3339"),
        ("", "neither RFC 3339"),
        ("2025-12-01", "neither RFC 3339"),
        ("2025-W49-1T00:00:00Z", "neither RFC 3339"),
        ("2025-12-01T00:00Z", "neither RFC 3339"),
        ("2025-12-01T00:00:00+0100", "neither RFC 3339"),
        ("2025-12-01T00:00:00Z\n", "neither RFC 3339"),
        ("2025-02-30T00:00:00Z", "is no time"),
        ("2025-12-01T24:00:00Z", "is no time"),
        ("2025-12-01T00:00:60Z", "is no time"),
        ("2025-12-01T00:00:00+99:00", "is no time"),
        (1.7e12, "neither RFC 3339"),
        (True, "neither RFC 3339"),
        ({}, "neither RFC 3339"),
    ],
)
def test_a_due_time_that_cannot_be_is_refused_and_says_why(value, says):
    with pytest.raises(InvalidTime, match=says):
        due(due=value)


@pytest.mark.parametrize("value", [NOW_MS + MAX_AHEAD_MS + 1, "2036-01-01T00:00:00Z", "9999-12-31T23:59:59.999Z"])
def test_more_than_ten_years_ahead_is_a_mistake_in_the_unit(value):
    with pytest.raises(InvalidTime, match="10 years"):
        due(due=value)


def test_exactly_one_of_delay_and_due_is_needed():
    with pytest.raises(InvalidTime, match="neither"):
        when()
    with pytest.raises(InvalidTime, match="both"):
        when("1s", "2025-12-01T00:00:00Z")


def test_the_text_as_sent_is_kept_for_the_fingerprint():
    """Not the moment: `1h` sent again a minute later is the same request."""
    assert when("60m").text == "delay=60m"
    assert when(due=1_764_547_200_000).text == when(due="1764547200000").text == "due=1764547200000"
    assert when(timedelta(seconds=90)).text == "delay=90s"


@given(st.text() | st.integers() | st.floats() | st.datetimes() | st.booleans() | st.binary())
def test_whatever_is_said_is_a_time_within_ten_years_or_an_invalid_time_of_bounded_length(value):
    for said in ({"due": value}, {"delay": value}):
        try:
            due_ms, text = due(**said), ""
        except InvalidTime as refusal:
            due_ms, text = NOW_MS, str(refusal)
        assert NOW_MS <= due_ms <= NOW_MS + MAX_AHEAD_MS
        assert len(text) < 300


@given(st.datetimes(datetime(2026, 1, 1), datetime(2035, 1, 1), timezones=st.just(UTC)))
def test_a_datetime_and_its_rfc_3339_text_are_the_same_moment_and_never_early(moment):
    exactly_us = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    assert due(due=moment) == due(due=moment.isoformat()) == -(-exactly_us // 1000)
