"""An id in a list, without reading the list; what was not looked at is said, and never taken for absent."""

import pytest
from redis.exceptions import ResponseError

from service.inspector.seeking import seek


async def fill(inspected, count: int) -> None:
    for at in range(0, count, 5000):
        await inspected.redis.rpush("k", *(f"id-{n}" for n in range(at, min(at + 5000, count))))


@pytest.mark.parametrize("at", [0, 1, 49, 50, 98, 99])
async def test_an_id_is_found_wherever_it_is_in_a_short_list(inspected, at):
    await fill(inspected, 100)
    sought = await seek(inspected.reader, "k", f"id-{at}")
    assert (sought.found_at, sought.total) == (at, 100)
    assert sought.unsought("wait", "k") is None


@pytest.mark.parametrize(("at", "found"), [(0, True), (29, True), (30, False), (69, False), (70, True), (99, True)])
async def test_a_long_list_is_sought_from_both_ends(inspected, at, found):
    await fill(inspected, 100)
    sought = await seek(inspected.reader, "k", f"id-{at}", each_end=30)
    assert (sought.found_at == at) == found
    if not found:
        assert str(sought.unsought("wait", "k")) == "not in the first and last 30 of 100"


async def test_absent_is_said_only_of_a_list_that_was_sought_through(inspected):
    await fill(inspected, 2500)
    for key in ("k", "empty"):
        sought = await seek(inspected.reader, key, "nobody")
        assert sought.found_at is None
        assert sought.unsought("wait", "k") is None


async def test_a_key_that_is_no_list_is_the_callers_to_tell(inspected):
    await inspected.redis.set("k", "v")
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        await seek(inspected.reader, "k", "x")
