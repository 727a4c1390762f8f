"""Hypothesis strategies for names and references: all that is legal, the edges often."""

import string
import uuid
from collections.abc import Callable

from hypothesis import strategies as st

from storage_backends.reference import MAX_TS_MS, InvalidName, Reference, check_backend, check_queue

_ALNUM = string.ascii_letters + string.digits
_DAY_MS = 86_400_000


def uuids() -> st.SearchStrategy[str]:
    """Of any version: parsing takes them all."""
    return st.uuids().map(str) | st.integers(0, 2**128 - 1).map(lambda number: str(uuid.UUID(int=number)))


def queues() -> st.SearchStrategy[str]:
    rest = st.text(_ALNUM + "._:-", max_size=127)
    made = st.tuples(st.sampled_from(_ALNUM), rest).map("".join).filter(_is(check_queue))
    return made | st.sampled_from(["a..b", "a:b", "0" * 128, "a.", "a-1-2", "INSTALLATION", "v1"])


def backends() -> st.SearchStrategy[str]:
    rest = st.text(string.ascii_lowercase + string.digits + "_", max_size=31)
    made = st.tuples(st.sampled_from(string.ascii_lowercase), rest).map("".join).filter(_is(check_backend))
    return made | st.sampled_from(["s3", "s3_acme", "redis", "b" * 32])


def times_ms() -> st.SearchStrategy[int]:
    """Both ends, and both sides of midnights."""
    midnights = st.builds(
        lambda day, off: day * _DAY_MS + off, st.integers(1, MAX_TS_MS // _DAY_MS), st.integers(-1, 0)
    )
    return (
        st.integers(0, MAX_TS_MS)
        | midnights
        | st.sampled_from([0, 1, MAX_TS_MS, 253_402_300_799_999, 253_402_300_800_000])
    )


def references(backend: st.SearchStrategy[str] | None = None) -> st.SearchStrategy[Reference]:
    return st.builds(Reference, backends() if backend is None else backend, queues(), times_ms(), uuids())


def _is(check: Callable[[str], str]) -> Callable[[str], bool]:
    def passes(name: str) -> bool:
        try:
            check(name)
        except InvalidName:
            return False
        return True

    return passes
