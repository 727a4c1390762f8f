"""Object keys: there and back, never outside the prefix."""

import pytest
from hypothesis import example, given, strategies as st

from storage_backends.reference import InvalidName, Reference
from storage_backends.s3_keys import SHARDS, S3Keys
from tests.kit.strategies import references, times_ms

UUID_TEXT = "0193f2a4-7c1e-7b3a-9d57-6f0a1c2b3d4e"
PREFIXES = st.sampled_from(["", "coats/", "a/b/c/", "v1/", "v1/s3/"])


@given(references(), PREFIXES)
def test_a_key_leads_back_to_its_reference(reference: Reference, prefix: str) -> None:
    """The delayed set can be rebuilt from the bucket alone."""
    keys = S3Keys(reference.backend, prefix)
    assert keys.reference_of(keys.key_of(reference)) == reference


@given(references(st.just("s3")), PREFIXES)
def test_a_key_stays_inside_its_backends_prefix(reference: Reference, prefix: str) -> None:
    """The member of a set never chooses where we read or delete (pitfall 31)."""
    key = S3Keys("s3", prefix).key_of(reference)
    assert key.startswith(f"{prefix}v1/s3/{reference.uuid[-1]}/")
    segments = key.removeprefix(prefix).split("/")
    assert len(segments) == 6
    assert not {"", ".", ".."} & set(segments)
    assert len(f"{'p' * 512}/{key}".encode()) <= 1_024


@given(references(st.just("s3")), references(st.just("s3")))
def test_two_references_never_share_a_key(one: Reference, other: Reference) -> None:
    keys = S3Keys("s3")
    assert (keys.key_of(one) == keys.key_of(other)) == (one == other)


@given(st.text())
@example(f"v1/s3/e/2025-12-01/q/01764547200000-{UUID_TEXT}")  # not canonical
@example(f"v1/s3/0/2025-12-01/q/1764547200000-{UUID_TEXT}")  # another shard
@example(f"v1/s3/e/2025-12-02/q/1764547200000-{UUID_TEXT}")  # another day
@example(f"v1/s3/e/2025-12-01/q/1764547200000-{UUID_TEXT.upper()}")
@example(f"v1/s3/e/2025-12-01/q/1764547200000-{UUID_TEXT}/")
@example(f"v1/s3/e/2025-12-01/q/x/1764547200000-{UUID_TEXT}")
@example(f"v1/s3_acme/e/2025-12-01/q/1764547200000-{UUID_TEXT}")
@example("v1/s3/INSTALLATION")
@example("v1/s3/e/")
def test_any_other_key_is_no_payloads(key: str) -> None:
    """One spelling only: a stray copy is not met twice, and is not swept."""
    keys = S3Keys("s3")
    reference = keys.reference_of(key)
    assert reference is None or keys.key_of(reference) == key


@given(references(st.just("s3_acme")))
def test_another_backends_reference_has_no_key_here(reference: Reference) -> None:
    with pytest.raises(ValueError, match="not a reference of backend"):
        S3Keys("s3").key_of(reference)


def test_the_key_is_as_documented() -> None:
    keys = S3Keys("s3", "coats/")
    reference = Reference("s3", "emails", 1_764_547_200_000, UUID_TEXT)
    assert keys.key_of(reference) == f"coats/v1/s3/e/2025-12-01/emails/1764547200000-{UUID_TEXT}"
    assert keys.installation == "coats/v1/s3/INSTALLATION"
    assert keys.prefix_of("e", "2025-12-01") == "coats/v1/s3/e/2025-12-01/"
    assert keys.prefix_of("e") == "coats/v1/s3/e/"


@given(times_ms())
def test_every_day_can_be_asked_for(ts_ms: int) -> None:
    day = Reference("s3", "q", ts_ms, UUID_TEXT).due_day
    assert S3Keys("s3").prefix_of("0", day) == f"v1/s3/0/{day}/"


@pytest.mark.parametrize("day", ["", "..", "2025-1-1", "2025-01-01/", "2025-01-01\n", "٢٠٢٥-01-01", "2025/01/01", "*"])
def test_what_is_no_day_is_refused(day: str) -> None:
    with pytest.raises(InvalidName):
        S3Keys("s3").prefix_of("0", day)


def test_there_is_a_shard_for_every_hex_digit() -> None:
    assert sorted(SHARDS) == sorted("0123456789abcdef")
