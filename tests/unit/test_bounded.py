"""Bounded: whatever a backend does, its caller goes on. `get` and `put` are tested with the breaker around them."""

import asyncio
from collections.abc import Sequence

import pytest

from service.bounded import Bounded
from storage_backends.base import StorageUnavailable
from storage_backends.reference import Reference, new_uuid

REFERENCES = [Reference("shelf", "emails", 1, new_uuid())]


class Shelf:
    """Of a backend, what a deletion needs."""

    name, inline, concurrency, inflight_bytes = "shelf", False, 4, 1_000

    def __init__(self, fault: Exception | None = None) -> None:
        self.fault = fault
        self.deleted: list[Reference] = []

    async def delete(self, references: Sequence[Reference]) -> None:
        if self.fault is not None:
            raise self.fault
        self.deleted += references


class Hanging(Shelf):
    async def delete(self, references: Sequence[Reference]) -> None:
        await asyncio.Event().wait()


def bounded(shelf: Shelf, delete_timeout_s: float = 60) -> Bounded:
    return Bounded(shelf, fetch_timeout_s=60, put_timeout_s=60, delete_timeout_s=delete_timeout_s)  # type: ignore[arg-type]  # no whole backend


async def test_a_deletion_reaches_the_backend() -> None:
    shelf = Shelf()
    await bounded(shelf).delete(REFERENCES)
    assert shelf.deleted == REFERENCES


async def test_a_deletion_that_hangs_is_given_up() -> None:
    """The trash of all backends is emptied by one loop: a plugin that hangs would end it for everyone."""
    with pytest.raises(StorageUnavailable, match="1 payloads were not deleted within") as given_up:
        await bounded(Hanging(), delete_timeout_s=0.01).delete(REFERENCES)
    assert given_up.value.maybe_done


async def test_a_timeout_of_the_backends_own_is_passed_on() -> None:
    with pytest.raises(TimeoutError, match="a socket's"):
        await bounded(Shelf(TimeoutError("a socket's"))).delete(REFERENCES)
