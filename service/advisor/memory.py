"""What a job costs Redis, by its size; as measured on redis-server 7.0 with jemalloc (README, ops/bench/README.md).

A reference costs 176 bytes; a job that stays in Redis its payload and 266 more, in the allocator's size classes: with
1,000 bytes that makes 290 beside the payload, with 1,024 it makes 522.
"""

from typing import Final

ERROR: Final = (
    0.05  #: this model's share, at most: tests/inspector/test_advise.py holds it to what Redis says of itself
)
REFERENCE_BYTES: Final = 176  #: member of the delayed set, 63 characters
_INLINE_BYTES: Final = 266  #: the reference, and the payload's field and place in a hash
_MEMBER_BYTES: Final = 96  #: a member's place in a sorted set, beside its text
_FIELD_BYTES: Final = 90  #: a field with a UUID as its name, beside its value
_QUANTUM: Final = 16  #: of small size classes; from 128 bytes on each doubling has four
_DOUBLING: Final = 4


def inline_bytes(payload_bytes: int) -> int:
    """A job whose payload Coatcheck keeps in Redis."""
    return _INLINE_BYTES + text_bytes(payload_bytes)


def member_bytes(length: int) -> int:
    """A member of a large sorted set. Small sets are packed and cost less."""
    return _MEMBER_BYTES + text_bytes(length)


def field_bytes(value_bytes: int) -> int:
    """A field of a large hash, named by a UUID."""
    return _FIELD_BYTES + text_bytes(value_bytes)


def text_bytes(length: int) -> int:
    """What the allocator gives for a text: its header and its end go with it."""
    header = 1 if length < 32 else 3 if length < 256 else 5 if length < 65_536 else 9
    return _size_class(header + length + 1)


def _size_class(wanted_bytes: int) -> int:
    """The smallest of jemalloc's that holds so many: 16, 32, … 128, 160, 192, 224, 256, 320, …"""
    step = max(_QUANTUM, (1 << (max(1, wanted_bytes - 1).bit_length() - 1)) // _DOUBLING)
    return -(-wanted_bytes // step) * step
