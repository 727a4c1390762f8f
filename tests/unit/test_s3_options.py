"""S3Options: mistakes are found before the store is asked, all at once."""

from typing import Any

import pytest

from storage_backends.s3_options import MAX_PREFIX_LENGTH, S3Options


@pytest.mark.parametrize(
    ("given", "kept"),
    [("", ""), ("coats", "coats/"), ("coats/", "coats/"), ("a/b_(1)!", "a/b_(1)!/"), ("..a/b..", "..a/b../")],
)
def test_a_prefix_ends_in_a_slash_or_is_empty(given: str, kept: str) -> None:
    assert S3Options("payloads", prefix=given).prefix == kept


@pytest.mark.parametrize(
    "prefix", ["/", "/a", "a//b", "..", "../a", "a/../b", "a/.", "a b", "a%2e", "é", "a\n", "a\\b", "a?b"]
)
def test_a_prefix_cannot_walk_or_be_spelt_twice(prefix: str) -> None:
    with pytest.raises(ValueError, match="prefix"):
        S3Options("payloads", prefix=prefix)


def test_a_prefix_leaves_room_for_the_longest_key() -> None:
    S3Options("payloads", prefix="p" * (MAX_PREFIX_LENGTH - 1))
    with pytest.raises(ValueError, match="prefix"):
        S3Options("payloads", prefix="p" * MAX_PREFIX_LENGTH)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("bucket", ""),
        ("bucket", "a/b"),
        ("bucket", "arn:aws:s3:::payloads"),
        ("addressing", "vhost"),
        ("concurrency", 0),
        ("concurrency", 257),
        ("timeout", 0.0),
        ("timeout", float("nan")),
        ("timeout", 301.0),
        ("inflight_bytes", 0),
        ("sse", "aes"),
        ("kms_key_id", "alias/coats"),
        ("endpoint_url", "localhost:9000"),
        ("endpoint_url", "ftp://localhost"),
        ("endpoint_url", "http://key:secret@localhost"),
        ("endpoint_url", "http://[::1"),
    ],
)
def test_what_cannot_be_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field) as caught:
        S3Options(**{"bucket": "payloads", field: value})
    assert "secret" not in str(caught.value)


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(ValueError, match="bucket") as caught:
        S3Options("", prefix="/", concurrency=0)
    assert "prefix" in str(caught.value)
    assert "concurrency" in str(caught.value)


@pytest.mark.parametrize("sse", [None, "AES256", "aws:kms", "aws:kms:dsse"])
def test_encryption_is_as_s3_spells_it(sse: str | None) -> None:
    assert S3Options("payloads", sse=sse).sse == sse
    assert S3Options("payloads", sse="aws:kms", kms_key_id="alias/coats").kms_key_id == "alias/coats"
