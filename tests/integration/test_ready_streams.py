"""Ready queues that are streams: the same guarantees as lists, and room counted by what a group is not done with."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from service.census import Census
from service.clock import ServerClock, SystemClock
from service.keys import Keys
from service.records import ClaimStatus, Counts, Delivery, Share
from tests.kit.ledgers import QUEUE, T0, Rig, rigged
from tests.kit.waiting import eventually
from tests.kit.yards import Yard, a_yard

GROUP = "mailers"


@pytest.fixture
async def rig(redis_url):
    async with rigged(redis_url, keys=Keys(streams={QUEUE: GROUP}), lateness_bounds_ms=(10, 1_000)) as rig:
        yield rig


@pytest.fixture
async def yard(redis_url, s3_server):
    async with a_yard(redis_url, s3_server) as yard:
        yield yard


async def entries(rig: Rig) -> list[dict[bytes, bytes]]:
    return [fields for _, fields in await rig.redis.xrange(rig.keys.queue(QUEUE).ready)]


async def read(rig: Rig, count: int) -> list[bytes]:
    """Ids of the next entries, now pending in the group."""
    key = rig.keys.queue(QUEUE).ready
    [[_, read]] = await rig.redis.xreadgroup(GROUP, "somebody", {key: ">"}, count=count)
    return [entry_id for entry_id, _ in read]


def entry(payload: bytes, reference: Any, due_ms: int) -> dict[bytes, bytes]:
    return {b"payload": payload, b"reference": str(reference).encode(), b"due": str(due_ms).encode()}


# ---- what an entry holds ---------------------------------------------------------------------------------------------


async def test_entries_say_whose_payload_they_hold_and_when_it_was_due(rig):
    """A consumer of a stream can tell repeated jobs apart, and say how late it is."""
    inline = await rig.inline(b"small", due_ms=T0 - 5)
    leased = await rig.leased(due_ms=T0 - 3)
    assert (await rig.deliver(leased, payload=b"large")).outcomes == [Delivery.DELIVERED]
    assert await entries(rig) == [entry(b"small", inline, T0 - 5), entry(b"large", leased.reference, T0 - 3)]


async def test_the_due_time_is_the_owners_latest(rig):
    """Not the one in the reference, which a reschedule does not change."""
    inline, offloaded = await rig.inline(b"a", due_ms=T0 + 9_000), await rig.offloaded(due_ms=T0 + 9_000)
    for reference in (inline, offloaded):
        await rig.ledger.reschedule(reference, T0 - 7)
    [leased] = (await rig.claim()).leased
    await rig.deliver(leased, payload=b"b")
    assert await entries(rig) == [entry(b"a", inline, T0 - 7), entry(b"b", offloaded, T0 - 7)]


async def test_entries_are_in_the_order_of_their_due_times(rig):
    for late in (1, 3, 2):
        await rig.inline(b"late by %d" % late, due_ms=T0 - late)
    assert (await rig.claim()).moved == 3
    assert [each[b"payload"] for each in await entries(rig)] == [b"late by 3", b"late by 2", b"late by 1"]
    await rig.nothing_left()


async def test_a_job_without_a_payload_is_dead_and_holds_up_no_other(rig):
    first, lost, last = [await rig.inline(name, due_ms=T0 - at) for at, name in ((3, b"1"), (2, b"2"), (1, b"3"))]
    rig.transport.after = None
    await rig.redis.hdel(rig.keys.queue(QUEUE).bodies, lost.uuid)
    claimed = await rig.claim()
    assert [(each.member, each.reason) for each in claimed.buried] == [(str(lost), "payload_missing")]
    assert await entries(rig) == [entry(b"1", first, T0 - 3), entry(b"3", last, T0 - 1)]


# ---- room ------------------------------------------------------------------------------------------------------------


async def test_what_the_group_has_acknowledged_makes_room_although_the_entry_stays(rig):
    """XLEN does not fall when an entry is acknowledged: counted by it, a queue would stand still for ever."""
    key = rig.keys.queue(QUEUE).ready
    await rig.redis.xgroup_create(key, GROUP, "0", mkstream=True)
    for at in range(4):
        await rig.inline(b"%d" % at, due_ms=T0 - 4 + at)
    assert (await rig.claim(max_ready=2)).moved == 2
    assert (await rig.claim(max_ready=2)).status is ClaimStatus.FULL

    ids = await read(rig, 2)
    assert (await rig.claim(max_ready=2)).status is ClaimStatus.FULL  # read, and nobody is done with them
    await rig.redis.xack(key, GROUP, ids[0])
    assert (await rig.claim(max_ready=2)).moved == 1
    await rig.redis.xack(key, GROUP, ids[1])
    await rig.redis.xdel(key, *ids)
    assert (await rig.claim(max_ready=2)).moved == 1
    assert len(await entries(rig)) == 2


async def test_without_its_group_a_stream_is_as_long_as_it_is(rig):
    """Nobody reads it yet, or a group of another name: it must not grow without bound."""
    await rig.inline(b"1")
    assert (await rig.claim(max_ready=1)).moved == 1
    await rig.redis.xgroup_create(rig.keys.queue(QUEUE).ready, "others", "$")
    await rig.inline(b"2")
    assert (await rig.claim(max_ready=1)).status is ClaimStatus.FULL


async def test_entries_deleted_in_the_midst_do_not_hide_the_length(rig):
    """Redis then does not know the group's lag, and says nil."""
    key = rig.keys.queue(QUEUE).ready
    await rig.redis.xgroup_create(key, GROUP, "0", mkstream=True)
    for at in range(4):
        await rig.inline(b"%d" % at, due_ms=T0 - 4 + at)
    await rig.claim()
    await read(rig, 1)
    ids = [entry_id for entry_id, _ in await rig.redis.xrange(key)]
    await rig.redis.xdel(key, ids[2])
    await rig.inline(b"5")
    assert (await rig.claim(max_ready=3)).status is ClaimStatus.FULL
    assert (await rig.claim(max_ready=4)).moved == 1


async def test_a_heavy_stream_waits_for_its_consumers(rig):
    await rig.inline(b"x" * 50_000)
    await rig.claim()
    await rig.inline(b"y")
    assert (await rig.claim(max_ready_bytes=40_000)).status is ClaimStatus.FULL
    assert (await rig.claim(max_ready_bytes=400_000)).moved == 1


# ---- another type ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [("LPUSH", "a list"), ("SET", "no list")], ids=["list", "string"])
async def test_a_ready_key_that_is_no_stream_changes_nothing(rig, command):
    """A queue was a list, and is configured as a stream while its consumers have not emptied the list."""
    leased, inline = await rig.leased(), await rig.inline()
    name, value = command
    await rig.redis.execute_command(name, rig.keys.queue(QUEUE).ready, value)
    assert (await rig.claim()).status is ClaimStatus.UNUSABLE
    assert (await rig.deliver(leased)).outcomes == [Delivery.UNUSABLE]
    assert await rig.where(inline) == await rig.where(leased.reference) == {"delayed"}


async def test_a_stream_where_a_list_is_configured_is_left_alone(redis_url):
    async with rigged(redis_url) as rig:
        await rig.inline()
        await rig.redis.xadd(rig.keys.queue(QUEUE).ready, {"a": "b"})
        assert (await rig.claim()).status is ClaimStatus.UNUSABLE


# ---- gauges, and the service -----------------------------------------------------------------------------------------


async def test_the_census_counts_what_the_group_is_not_done_with(rig):
    key = rig.keys.queue(QUEUE).ready
    census = Census(rig.transport, rig.keys, ServerClock(SystemClock()))

    async def ready() -> int:
        [counts] = await census.counts([QUEUE])
        assert isinstance(counts, Counts), counts
        return counts.ready

    assert await ready() == 0
    for _ in range(3):
        await rig.inline()
    await rig.claim()
    assert await ready() == 3
    await rig.redis.xgroup_create(key, GROUP, "0")
    assert await ready() == 3
    await rig.redis.xack(key, GROUP, *await read(rig, 2))
    assert await ready() == 1


async def test_a_dispatcher_feeds_a_stream(yard: Yard):
    """Both ways, inline and fetched, by settings alone."""
    settings = {"QUEUES": json.dumps({QUEUE: {"ready_kind": "stream", "ready_group": GROUP}})}
    inline = await yard.inline([b"small"])
    offloaded = await yard.offloaded([b"large"])
    key = yard.keys.queue(QUEUE).ready

    async def delivered() -> Sequence[Any]:
        return [fields for _, fields in await yard.redis.xrange(key)]

    async with yard.dispatcher(**settings):

        async def both() -> bool:
            return len(await delivered()) == 2

        await eventually(both, 10, "both jobs are on the stream")
    got = {fields[b"reference"].decode(): fields[b"payload"] for fields in await delivered()}
    assert got == {str(inline[0]): b"small", str(offloaded[0]): b"large"}
    await yard.redis.delete(key)


async def test_a_full_redis_still_takes_what_the_overdraft_allows(rig):
    """Entries, not XLEN, count there too: see scripts/lib/ready.lua."""
    job = await rig.leased()
    await rig.claim(shares={"*": Share(0)})
    await rig.redis.config_set("maxmemory", 1)
    try:
        outcome = (await rig.deliver(job)).outcomes
    finally:
        await rig.redis.config_set("maxmemory", 0)
    assert outcome == [Delivery.NO_ROOM]  # far above 1.1 x maxmemory
    assert await rig.where(job.reference) == {"leases"}
