"""The reference: one spelling, nothing smuggled in, nothing lost."""

import string
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import example, given, strategies as st

from storage_backends.reference import MAX_TS_MS, InvalidName, Reference, check_backend, check_queue, new_uuid
from tests.kit.strategies import backends, queues, references, times_ms, uuids

UUID_TEXT = "0193f2a4-7c1e-7b3a-9d57-6f0a1c2b3d4e"


@given(references())
def test_what_is_written_is_read_back(reference: Reference) -> None:
    assert Reference.parse(str(reference)) == reference


@given(st.text(max_size=300))
@example(f"s3::q::01::{UUID_TEXT}")
@example(f"s3::q::+1::{UUID_TEXT}")
@example(f"s3::q::\uff11::{UUID_TEXT}")  # a full-width digit, which int() would read
@example(f"s3::q::1::{UUID_TEXT.upper()}")
@example(f"s3::q::1::{UUID_TEXT}\n")
@example(f"s3::q::1::{UUID_TEXT}::")
def test_any_text_is_refused_or_is_its_own_spelling(text: str) -> None:
    """Two texts for one job would be two members of the delayed set (pitfall 8)."""
    try:
        reference = Reference.parse(text)
    except InvalidName:
        return
    assert str(reference) == text


@given(references(), st.data())
def test_no_edit_of_a_reference_reads_as_the_same_job(reference: Reference, data: st.DataObject) -> None:
    text = str(reference)
    at = data.draw(st.integers(0, len(text) - 1))
    letter = data.draw(st.sampled_from(string.ascii_letters + string.digits + ":._-{}/\0 "))
    edited = text[:at] + letter + text[at + 1 :]
    try:
        assert (Reference.parse(edited) == reference) == (edited == text)
    except InvalidName:
        assert edited != text


@given(st.text(alphabet=st.characters(), min_size=1))
def test_names_are_ascii_and_hold_nothing_that_separates(name: str) -> None:
    """Braces would break the cluster's hash slot, slashes and dots would walk through a bucket."""
    try:
        check_queue(name)
    except InvalidName:
        return
    assert name.isascii()
    assert not set(name) & set("{}/\\ \0\n*?[]%")
    assert "::" not in name
    assert name not in (".", "..")


@pytest.mark.parametrize(
    "name", ["", ".", "..", ":", "a:", "a::b", ":a", "_a", "-a", "a b", "é", "a\n", "a" * 129, "\uff41"]
)
def test_what_is_no_queue_name(name: str) -> None:
    with pytest.raises(InvalidName):
        check_queue(name)


@pytest.mark.parametrize("name", ["", "S3", "3s", "s3_", "s__3", "_s", "a" * 33, "s-3", "s:3", "é", "s3\n"])
def test_what_is_no_backend_name(name: str) -> None:
    """Two underscores separate levels in the environment's spelling of settings."""
    with pytest.raises(InvalidName):
        check_backend(name)


@given(backends(), queues(), uuids())
def test_the_last_millisecond_is_that_below_two_to_the_53rd(backend: str, queue: str, uuid: str) -> None:
    assert Reference.parse(f"{backend}::{queue}::{MAX_TS_MS}::{uuid}").ts_ms == 2**53 - 1
    for beyond in (2**53, 10**16, -1):
        with pytest.raises(InvalidName):
            Reference.parse(f"{backend}::{queue}::{beyond}::{uuid}")
        with pytest.raises(InvalidName):
            Reference(backend, queue, beyond, uuid)


@given(times_ms().filter(lambda ms: ms < 253_402_300_800_000))
def test_a_day_is_that_of_the_calendar(ts_ms: int) -> None:
    assert due_day_of(ts_ms) == (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ts_ms)).date().isoformat()


def test_days_go_on_after_the_year_9999() -> None:
    """2^53 ms: by hand, 9007199254740991 ms are 104249991 days and a bit; the calendar repeats every 146097."""
    assert due_day_of(253_402_300_799_999) == "9999-12-31"
    assert due_day_of(253_402_300_800_000) == "10000-01-01"
    assert due_day_of(MAX_TS_MS) == "287396-10-12"


def due_day_of(ts_ms: int) -> str:
    return Reference("s3", "q", ts_ms, UUID_TEXT).due_day


def test_the_longest_reference_is_read() -> None:
    longest = Reference("b" * 32, "q" * 128, MAX_TS_MS, UUID_TEXT)
    assert Reference.parse(str(longest)) == longest


def test_an_error_shows_no_more_than_a_line_of_what_it_refuses() -> None:
    """It goes into logs and answers."""
    with pytest.raises(InvalidName) as caught:
        Reference.parse("x" * 100_000)
    assert len(str(caught.value)) < 300


def test_new_uuids_are_of_version_7_and_only_grow() -> None:
    """Jobs of one producer that are due in the same millisecond keep their order by it."""
    made = [new_uuid() for _ in range(2_000)]
    assert made == sorted(set(made))
    assert all(UUID(text).version == 7 and str(UUID(text)) == text for text in made)
