"""An id in a list, without reading the list; what was not looked at is said, and never taken for absent."""

import pytest
from redis.exceptions import ResponseError

from service.inspector.reading import Budget, ReadOnly
from service.inspector.seeking import seek, seek_by


async def fill(inspected, count: int) -> None:
    for at in range(0, count, 5000):
        await inspected.redis.rpush("k", *(f"id-{n}" for n in range(at, min(at + 5000, count))))


@pytest.mark.parametrize("at", [0, 1, 49, 50, 98, 99])
async def test_an_id_is_found_wherever_it_is_in_a_short_list(inspected, at):
    await fill(inspected, 100)
    for sought in (
        await seek(inspected.reader, "k", f"id-{at}"),
        await seek_by(inspected.reader, "k", f"id-{at}".encode().__eq__),
    ):
        assert (sought.found_at, sought.total) == (at, 100)
        assert sought.unsought("wait", "k") is None


@pytest.mark.parametrize(("at", "found"), [(0, True), (29, True), (30, False), (69, False), (70, True), (99, True)])
async def test_a_long_list_is_sought_from_both_ends(inspected, at, found):
    await fill(inspected, 100)
    sought = await seek(inspected.reader, "k", f"id-{at}", each_end=30)
    assert (sought.found_at == at) == found
    if not found:
        assert str(sought.unsought("wait", "k")) == "not in the first and last 30 of 100"


@pytest.mark.parametrize(("at", "found"), [(0, True), (1999, True), (2000, False), (2999, False), (3000, True)])
async def test_entries_that_are_looked_into_are_read_in_pages_from_both_ends(inspected, at, found):
    await fill(inspected, 5000)
    sought = await seek_by(inspected.reader, "k", f"id-{at}".encode().__eq__, pages=2)
    assert (sought.found_at == at) == found
    assert (sought.unsought("wait", "k") is None) == found


async def test_absent_is_said_only_of_a_list_that_was_sought_through(inspected):
    await fill(inspected, 2500)
    for sought in (
        await seek(inspected.reader, "k", "nobody"),
        await seek_by(inspected.reader, "k", b"nobody".__eq__),
        await seek(inspected.reader, "empty", "nobody"),
        await seek_by(inspected.reader, "empty", b"nobody".__eq__),
    ):
        assert sought.found_at is None
        assert sought.unsought("wait", "k") is None


async def test_seeking_ends_with_the_budget_and_says_how_far_it_came(inspected):
    await fill(inspected, 10_000)
    reader = ReadOnly(inspected.transport, Budget(commands=5))
    sought = await seek_by(reader, "k", b"nobody".__eq__)
    assert str(sought.unsought("wait", "k")) == "not in the first and last 2,000 of 10,000"


async def test_a_key_that_is_no_list_is_the_callers_to_tell(inspected):
    await inspected.redis.set("k", "v")
    for seeking in (seek(inspected.reader, "k", "x"), seek_by(inspected.reader, "k", b"x".__eq__)):
        with pytest.raises(ResponseError, match="WRONGTYPE"):
            await seeking
