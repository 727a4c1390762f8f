"""What is in a set may be anything."""

import pytest

from service.members import backend_of, reference_of, text_of
from service.transport import _packed
from storage_backends.reference import Reference

JOB = Reference("s3", "emails", 1_764_547_200_000, "0193f2a4-7c1e-7b3a-9d57-6f0a1c2b3d4e")


@pytest.mark.parametrize("member", [b"", b"\xff\x00", "ü".encode(), str(JOB).encode()])
def test_any_bytes_go_back_to_redis_as_the_same_ones(member):
    """Junk is purged by the name that a page gave it."""
    assert member in _packed([("ZREM", "key", text_of(member))])


@pytest.mark.parametrize("member", ["", "junk", "\udcff", str(JOB).upper(), f"{JOB} "])
def test_what_is_no_reference_is_none_and_has_no_backend(member):
    assert reference_of(member) is None
    assert backend_of(member) == ""


def test_a_reference_of_another_queue_is_none_of_this_one():
    assert reference_of(str(JOB)) == reference_of(str(JOB), "emails") == JOB
    assert reference_of(str(JOB), "texts") is None
    assert backend_of(str(JOB)) == "s3"
