"""The index of queues, the trash, and counts: what tells the loops where to look, and what looking may cost."""

import pytest

from tests.kit.ledgers import QUEUE, T0, rigged


async def test_due_tells_the_most_urgent_queues_and_when_the_next_one_will_be(rig):
    """One command, whatever their number."""
    rig.queues = {"late", "now", "soon", "later"}
    for queue, due_ms in (("now", T0), ("later", T0 + 90), ("late", T0 - 60), ("soon", T0 + 30)):
        await rig.inline(queue=queue, due_ms=due_ms)
    due = await rig.ledger.due(10)
    assert (due.now_ms, due.queues, due.next_look_ms) == (T0, [("late", T0 - 60), ("now", T0)], T0 + 30)
    assert (await rig.ledger.due(1)).queues == [("late", T0 - 60)]


async def test_an_empty_index_has_no_next_look(rig):
    due = await rig.ledger.due(10)
    assert (due.queues, due.next_look_ms) == ([], None)


async def test_queues_with_dead_jobs_only_need_no_look(rig):
    await rig.dead()
    assert (await rig.dump()).look == float("inf")
    due = await rig.ledger.due(10)
    assert (due.queues, due.next_look_ms) == ([], None)


async def test_a_lease_that_runs_out_asks_for_a_look_neither_early_nor_late(rig):
    """Woken a fraction of a millisecond early, the loop would find nothing and look again."""
    await rig.leased()
    due = await rig.ledger.due(10)
    assert due.queues == []
    rig.now_ms = due.next_look_ms
    assert len((await rig.ledger.due(10)).queues) == 1
    assert (await rig.claim()).leases_expired


@pytest.mark.parametrize("spoilt", ["absent", "too late", "too early"])
async def test_a_spoilt_index_is_repaired(rig, spoilt):
    """What somebody's hand, or a lost write, put out of step."""
    await rig.inline()
    match spoilt:
        case "absent":
            await rig.redis.delete(rig.keys.queues)
        case "too late":
            await rig.redis.zadd(rig.keys.queues, {QUEUE: T0 + 10**9})
        case "too early":
            await rig.redis.zadd(rig.keys.queues, {QUEUE: 0})
    assert await rig.ledger.repair([QUEUE, "nothing-here"]) == 1
    assert await rig.ledger.repair([QUEUE, "nothing-here"]) == 0
    assert (await rig.ledger.due(10)).queues == [(QUEUE, T0)]


async def test_a_queue_that_is_only_in_the_index_leaves_it(rig):
    rig.queues = set()
    await rig.redis.zadd(rig.keys.queues, {"ghost": 0, b"\xff": 1})
    assert [queue for queue, _ in (await rig.ledger.due(10)).queues] == ["ghost", "\udcff"]
    assert await rig.ledger.repair(["ghost", "\udcff"]) == 2
    assert (await rig.ledger.due(10)).queues == []


@pytest.mark.parametrize("name", ["delayed", "leases", "trash"])
async def test_a_member_at_minus_infinity_ends_nobodys_dispatching(rig, name):
    """A hand can write such a score, and `due` raised at each round for as long as it stood in the index."""
    await rig.redis.execute_command("ZADD", getattr(rig.keys.queue(QUEUE), name), "-inf", "junk")
    assert await rig.ledger.repair([QUEUE]) == 1
    assert (await rig.dump()).look == 0
    assert (await rig.ledger.due(10)).queues == [(QUEUE, 0)]
    assert (await rig.claim()).next_look_ms in {0, None}
    await rig.redis.delete(getattr(rig.keys.queue(QUEUE), name))


async def test_an_index_at_minus_infinity_is_read_as_now(rig):
    rig.queues = set()
    await rig.redis.execute_command("ZADD", rig.keys.queues, "-inf", "ghost")
    assert (await rig.ledger.due(10)).queues == [("ghost", 0)]
    await rig.ledger.repair(["ghost"])


async def test_many_queues_are_repaired_in_bounded_calls(rig):
    rig.queues = set()
    names = [f"queue-{i}" for i in range(250)]
    for name in names:
        await rig.redis.zadd(rig.keys.queue(name).delayed, {"junk": T0})
    assert await rig.ledger.repair(names) == 250
    assert len((await rig.ledger.due(1_000)).queues) == 250


# ---- trash -----------------------------------------------------------------------------------------------------------


async def test_trash_is_handed_out_once_until_its_time_is_over(rig):
    """Several processes share the work, and one that dies leaves it to the others."""
    jobs = [await rig.dead() for _ in range(3)]
    await rig.ledger.purge(QUEUE, [str(job) for job in jobs])
    first = await rig.ledger.collect_trash(QUEUE, 2, put_off_ms=5_000)
    second = await rig.ledger.collect_trash(QUEUE, 2, put_off_ms=5_000)
    assert (len(first), len(second)) == (2, 1)
    assert await rig.ledger.collect_trash(QUEUE, 2, put_off_ms=5_000) == []
    rig.now_ms += 5_000
    assert len(await rig.ledger.collect_trash(QUEUE, 10, put_off_ms=5_000)) == 3


async def test_confirmed_deletions_leave_nothing(rig):
    job = await rig.dead()
    await rig.ledger.purge(QUEUE, [str(job)])
    assert [await rig.ledger.empty_trash(QUEUE, [str(job)]) for _ in range(2)] == [1, 0]
    await rig.nothing_left()


async def test_a_failed_deletion_is_put_off(rig):
    job = await rig.dead()
    await rig.ledger.purge(QUEUE, [str(job)])
    await rig.ledger.discard(QUEUE, [job], wait_ms=60_000)
    assert await rig.ledger.collect_trash(QUEUE, 10, put_off_ms=1) == []
    assert (await rig.dump()).look == T0 + 60_000


async def test_junk_in_the_trash_can_be_collected_and_emptied(rig):
    await rig.redis.zadd(rig.keys.queue(QUEUE).trash, {b"\xff\n": T0})
    assert await rig.ledger.collect_trash(QUEUE, 10, put_off_ms=1) == ["\udcff\n"]
    assert await rig.ledger.empty_trash(QUEUE, ["\udcff\n"]) == 1
    await rig.nothing_left()


# ---- other key names -------------------------------------------------------------------------------------------------


async def test_a_configured_ready_key_and_prefix_are_used(redis_url):
    """Consumers that exist already keep reading where they read."""
    from service.keys import Keys

    async with rigged(redis_url, keys=Keys("acme", {QUEUE: "resque:queue:mail"})) as rig:
        await rig.inline(b"here")
        await rig.deliver(await rig.leased(), payload=b"there")
        await rig.claim()
        assert set(await rig.redis.lrange("resque:queue:mail", 0, -1)) == {b"here", b"there"}
        assert await rig.redis.keys("coatcheck*") == []
