"""What a source of jobs promises, of a ready list and of a ready stream: each transition, once, by whoever may."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable

import pytest

from service.embedded import RedisServer
from service.worker.ready import ReadySource, fingerprint
from service.worker.source import Condemned, Finished, Postponed
from tests.kit.sources import KINDS, QUEUE, Rig, payloads, placed, rigged, taken
from tests.kit.waiting import eventually


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def rig(redis_url: str, kind: str) -> AsyncIterator[Rig]:
    async with rigged(redis_url, kind) as made:
        yield made


# ---- turns -----------------------------------------------------------------------------------------------------------


async def test_a_turn_takes_the_oldest_and_lets_go_of_what_is_finished(rig: Rig) -> None:
    await rig.push(b"1", b"2", b"3")
    source = await rig.source()
    first = await source.turn(1, [], 2, suspect=False)
    assert (payloads(first.entries), first.left) == ([b"1", b"2"], 1)
    second = await source.turn(2, [Finished(first.entries[0])], 5, suspect=False)
    assert (payloads(second.entries), second.left, second.missing) == ([b"3"], 0, 0)
    assert await rig.held(source) == [b"2", b"3"]


async def test_a_turn_that_is_repeated_has_its_effect_once(rig: Rig) -> None:
    """Its answer was lost. Of two equal payloads in hand, the second must not go with the first."""
    await rig.push(b"same", b"same")
    source = await rig.source()
    first, _ = await taken(source, 2)
    for status in ("ok", "repeated", "repeated"):
        assert (await source.turn(2, [Finished(first)], 0, suspect=False)).status == status
    assert await rig.held(source) == [b"same"]


async def test_a_late_copy_of_an_older_turn_has_no_effect(rig: Rig) -> None:
    """A request may hang in the network while its repetition overtakes it."""
    await rig.push(b"1", b"2")
    source = await rig.source()
    await taken(source, 1, number=1)
    await source.turn(2, [], 0, suspect=False)
    assert (await source.turn(1, [], 1, suspect=False)).status == "repeated"
    assert await rig.ready() == [b"2"]


async def test_a_turn_takes_no_more_than_a_mebibyte_but_always_one_job(rig: Rig) -> None:
    large = b"x" * 700_000
    await rig.push(large, large, large, b"y" * (16 * 2**20))
    source = await rig.source()
    assert payloads(await taken(source, 9, number=1)) == [large, large]
    assert payloads(await taken(source, 9, number=2))[0] == large
    assert [len(entry.payload) for entry in await source.holdings()][:3] == [700_000] * 3
    assert len(await source.holdings()) == 4


async def test_an_idle_source_is_handed_a_job_as_soon_as_there_is_one(rig: Rig) -> None:
    source = await rig.source(block_s=10)
    waiting = asyncio.create_task(source.wait())
    await eventually(lambda: _blocked(rig))
    await rig.push(b"1")
    entry = await waiting
    assert entry is not None
    assert (entry.payload, entry.worker) == (b"1", source.worker)
    assert await rig.held(source) == [b"1"]


async def test_an_idle_source_is_roused_and_sleeps_no_more(rig: Rig) -> None:
    source = await rig.source(block_s=10)
    waiting = asyncio.create_task(source.wait())
    await eventually(lambda: _blocked(rig))
    await source.rouse()
    assert await waiting is None
    assert await source.wait() is None
    await source.leave()
    await rig.nothing_left()


async def _blocked(rig: Rig) -> bool:
    return int((await rig.redis.info("clients"))["blocked_clients"]) == 1


# ---- taken for dead --------------------------------------------------------------------------------------------------


async def test_who_is_heard_of_keeps_its_jobs(rig: Rig) -> None:
    await rig.push(b"1")
    one, other = await rig.source(), await rig.source()
    await taken(one, 1)
    assert (await other.reap()).returned == 0
    assert await rig.held(one) == [b"1"]


async def test_jobs_of_a_dead_worker_are_the_next_to_be_taken_in_their_order(rig: Rig) -> None:
    await rig.push(*(f"{n}".encode() for n in range(6)))
    one, other = await rig.source(), await rig.source()
    await taken(one, 3)
    await rig.overdue(one)
    reaped = await other.reap()
    assert (reaped.workers, reaped.returned, reaped.suspected) == (1, 3, 0)
    assert await rig.ready() == [f"{n}".encode() for n in range(6)]


async def test_who_was_taken_for_dead_can_do_nothing_to_its_old_jobs(rig: Rig) -> None:
    """Were a slow worker's word still good, it would acknowledge a job that another is at, or repeat it."""
    await rig.push(b"1")
    one, other = await rig.source(), await rig.source()
    (entry,) = await taken(one, 1)
    await rig.overdue(one)
    await other.reap()
    (again,) = await taken(other, 1)
    assert not (await one.beat(count=False)).alive
    assert (await one.turn(2, [Finished(entry)], 5, suspect=False)).status == "lost"
    assert await one.postpone(3, [Postponed(entry, placed(b"1"))]) == [False]
    assert await one.condemn(4, [Condemned(entry, placed(b"1"), "{}")]) == [False]
    assert await one.hand_back([entry]) == 0
    assert await rig.held(other) == [again.payload]
    assert not await rig.redis.exists(rig.of.delayed, rig.of.dead, rig.of.bodies)
    assert await rig.ready() == []


async def test_a_new_name_owns_nothing_of_the_old_one_not_even_the_same_job(rig: Rig) -> None:
    await rig.push(b"1")
    one, other = await rig.source(), await rig.source()
    (old,) = await taken(one, 1)
    await rig.overdue(one)
    await other.reap()
    await one.begin()
    (new,) = await taken(one, 1)
    assert (old.payload, old.worker != new.worker) == (new.payload, True)
    assert (await one.turn(2, [Finished(old)], 0, suspect=False)).status == "ok"
    assert await rig.held(one) == [b"1"], "the old life finished the new one's job"


async def test_what_a_dead_worker_s_last_request_still_takes_comes_back_too(rig: Rig) -> None:
    """A blocking pop hears nothing of its worker's death: it sleeps in Redis."""
    one, other = await rig.source(), await rig.source()
    await rig.overdue(one)
    await other.reap()
    await rig.put_in_hands(one.worker, b"late")
    assert (await other.reap()).returned == 1
    assert await rig.ready() == [b"late"]
    assert not await rig.redis.exists(rig.of.strikes), "nobody had begun it"


async def test_what_was_taken_under_a_name_that_redis_has_lost_comes_back_too(rig: Rig) -> None:
    """A Redis that restarts may have lost its last second: then a pop takes jobs for somebody unknown."""
    one, other = await rig.source(), await rig.source()
    await rig.redis.delete(rig.of.workers)
    await rig.put_in_hands(one.worker, b"orphan")
    assert (await one.turn(1, [], 1, suspect=False)).status == "lost"
    await one.begin()
    assert (await other.reap()).returned == 1
    assert await rig.ready() == [b"orphan"]


async def test_a_dead_worker_is_forgotten_when_nothing_of_it_can_come_any_more(rig: Rig) -> None:
    one, other = await rig.source(), await rig.source()
    await rig.overdue(one)
    await other.reap()
    await rig.redis.zadd(rig.of.departed, {one.worker: 1})
    await other.reap()
    await other.leave()
    await rig.nothing_left()


async def test_reaping_is_bounded(rig: Rig) -> None:
    one, other = await rig.source(), await rig.source()
    await rig.put_in_hands(one.worker, *(f"{n}".encode() for n in range(1500)))
    await rig.overdue(one)
    assert (await other.reap()).returned == 1000
    assert (await other.reap()).returned == 500
    assert sorted(await rig.ready()) == sorted(f"{n}".encode() for n in range(1500))


async def test_all_that_a_dead_worker_may_have_begun_is_a_strike_however_large(rig: Rig) -> None:
    """Returned in several calls, what was taken first comes last: were that the poison, it would never be suspected."""
    large = [bytes([letter]) * 700_000 for letter in b"pab"]
    survivor = await rig.source()
    await rig.push(*large)
    for deaths in (1, 2):
        victim = await rig.source()
        for number in (1, 2):
            await victim.turn(number, [], 9, suspect=False)
        assert len(await rig.held(victim)) == 3
        await rig.overdue(victim)
        reaped = [await survivor.reap() for _ in range(2)]
        assert [each.returned + each.suspected for each in reaped] == [2, 1]
        strikes = await rig.redis.hgetall(rig.of.strikes)
        assert strikes == {fingerprint(payload).encode(): f"{deaths}".encode() for payload in large}
    assert await rig.ready() == []


async def test_what_comes_after_a_large_dead_hand_was_found_is_no_strike(rig: Rig) -> None:
    await rig.push(b"x" * 700_000, b"y" * 700_000)
    one, other = await rig.source(), await rig.source()
    await taken(one, 2)
    await rig.redis.zadd(rig.of.workers, {one.worker: 1})
    await rig.put_in_hands(one.worker, b"z" * 700_000)
    await other.reap()
    await rig.put_in_hands(one.worker, b"late")
    assert (await other.reap()).returned == 2
    assert await rig.redis.hget(rig.of.strikes, fingerprint(b"late")) is None
    assert await rig.redis.hlen(rig.of.strikes) == 3


async def test_who_ends_with_more_than_a_call_takes_leaves_the_rest_to_others(rig: Rig) -> None:
    one, other = await rig.source(), await rig.source()
    await rig.put_in_hands(one.worker, *(f"{n}".encode() for n in range(1500)))
    assert await one.leave() == 1000
    assert (await other.reap()).returned == 500
    assert not await rig.redis.exists(rig.of.strikes), "nobody died"
    assert sorted(await rig.ready()) == sorted(f"{n}".encode() for n in range(1500))


async def test_a_ready_key_of_another_type_loses_no_dead_worker_s_job(rig: Rig) -> None:
    await rig.push(b"1")
    one, other = await rig.source(), await rig.source()
    await taken(one, 1)
    await rig.overdue(one)
    if rig.kind == "stream":
        await rig.redis.rename(rig.of.ready, "aside")
    await rig.redis.set(rig.of.ready, "scribble")
    assert (await other.reap()).returned == 0
    assert (await other.turn(1, [], 1, suspect=True)).status == "unusable"
    assert (await other.beat(count=False)).alive
    await rig.redis.delete(rig.of.ready)
    if rig.kind == "stream":
        await rig.redis.rename("aside", rig.of.ready)
    assert (await other.reap()).returned == 1


# ---- suspects --------------------------------------------------------------------------------------------------------


async def died(rig: Rig, survivor: ReadySource, *, suspect: bool = False) -> list[bytes]:
    """What another worker had in hand when it died."""
    victim = await rig.source()
    turn = await victim.turn(1, [], 9, suspect=suspect)
    await rig.overdue(victim)
    await survivor.reap()
    return payloads(turn.entries)


async def test_a_payload_with_which_two_workers_died_is_taken_alone(rig: Rig) -> None:
    """One of them may be what killed them; the others must not die with it again and again."""
    survivor = await rig.source()
    await rig.push(b"poison", b"a", b"b")
    assert await died(rig, survivor) == [b"poison", b"a", b"b"]
    assert await rig.ready() == [b"poison", b"a", b"b"]
    assert await died(rig, survivor) == [b"poison", b"a", b"b"]
    assert await rig.ready() == []
    await rig.push(b"c")
    turn = await survivor.turn(1, [], 9, suspect=True)
    assert [(entry.payload, entry.deaths) for entry in turn.entries] == [(b"poison", 2), (b"c", 0)]
    assert turn.suspects == 2
    assert (await survivor.turn(2, [], 9, suspect=False)).entries == []


async def test_a_payload_that_got_somewhere_is_suspected_no_more(rig: Rig) -> None:
    survivor = await rig.source()
    await rig.push(b"innocent")
    await died(rig, survivor)
    (entry,) = await taken(survivor, 1)
    await survivor.turn(2, [Finished(entry)], 0, suspect=False)
    assert not await rig.redis.exists(rig.of.strikes)


async def test_a_worker_that_ends_in_order_leaves_no_strike_and_no_trace(rig: Rig) -> None:
    await rig.push(b"1", b"2", b"3")
    source = await rig.source()
    await taken(source, 2)
    assert await source.leave() == 2
    assert await rig.ready() == [b"1", b"2", b"3"]
    await rig.nothing_left(rig.of.ready)


async def test_what_is_handed_back_is_the_next_to_be_taken_in_its_order(rig: Rig) -> None:
    await rig.push(b"1", b"2", b"3")
    source = await rig.source()
    entries = await taken(source, 2)
    assert await source.hand_back(entries) == 2
    assert await source.hand_back(entries) == 0
    assert await rig.ready() == [b"1", b"2", b"3"]


# ---- leaving for other sets ------------------------------------------------------------------------------------------


async def test_a_postponed_job_is_in_the_delayed_set_once_however_often_that_is_said(rig: Rig) -> None:
    await rig.push(b"1")
    source = await rig.source()
    (entry,) = await taken(source, 1)
    job = Postponed(entry, placed(b"again"))
    for _ in range(3):
        assert await source.postpone(2, [job]) == [True]
    assert await rig.redis.zrange(rig.of.delayed, 0, -1, withscores=True) == [
        (str(job.placed.reference).encode(), 1_900_000_000_000.0)
    ]
    assert await rig.redis.hget(rig.of.bodies, job.placed.reference.uuid) == b"again"
    assert await rig.redis.zscore(rig.keys.queues, QUEUE) == 1_900_000_000_000.0
    assert await rig.held(source) == []


async def test_an_upload_whose_job_is_no_longer_ours_is_in_the_trash(rig: Rig) -> None:
    await rig.push(b"1", b"2")
    one, other = await rig.source(), await rig.source()
    first, second = await taken(one, 2)
    await rig.overdue(one)
    await other.reap()
    now_ms = int((await rig.redis.time())[0]) * 1000
    later = placed(None, "s3", now_ms)
    dying = placed(None, "s3", now_ms)
    assert await one.postpone(2, [Postponed(first, later)]) == [False]
    assert await one.condemn(3, [Condemned(second, dying, "{}")]) == [False]
    trash = set(await rig.redis.zrange(rig.of.trash, 0, -1))
    assert trash == {str(each.reference).encode() for each in (later, dying)}


async def test_an_upload_that_the_sweeper_may_have_found_is_not_relied_on(rig: Rig) -> None:
    await rig.push(b"1")
    source = await rig.source()
    (entry,) = await taken(source, 1)
    assert await source.postpone(2, [Postponed(entry, placed(None, "s3", 1_000))]) == [False]
    assert payloads(await source.holdings()) == [b"1"]


async def test_a_condemned_job_is_dead_once_with_its_record(rig: Rig) -> None:
    await rig.push(b"1")
    source = await rig.source()
    (entry,) = await taken(source, 1)
    job = Condemned(entry, placed(b"1"), json.dumps({"reason": "unknown_task"}))
    for _ in range(3):
        assert await source.condemn(2, [job]) == [True]
    assert await rig.redis.zcard(rig.of.dead) == 1
    assert await rig.redis.hget(rig.of.trouble, job.placed.reference.uuid) == b'{"reason": "unknown_task"}'
    assert await rig.held(source) == []


async def test_finished_is_finished_also_for_who_was_taken_for_dead(rig: Rig) -> None:
    """The handler has had its effect; whoever has the job now must not have it again."""
    await rig.push(b"1")
    one, other = await rig.source(), await rig.source()
    (entry,) = await taken(one, 1)
    await rig.overdue(one)
    await other.reap()
    turn = await one.turn(2, [Finished(entry, rig.of.once("7"), 60_000)], 0, suspect=False)
    assert turn.status == "lost"
    assert 0 < await rig.redis.pttl(rig.of.once("7")) <= 60_000


async def test_workers_go_on_when_redis_is_full(own_redis: Callable[..., RedisServer], kind: str) -> None:
    """They are who empties it: everything that they do moves or frees."""
    server = own_redis(maxmemory="20mb")
    async with rigged(server.url, kind) as rig:
        payload = b"x" * 10_000
        await rig.push(*[payload] * 900)
        source = await rig.source()
        await rig.redis.config_set("maxmemory", "5mb")
        entries = await taken(source, 4)
        assert len(entries) == 4
        assert await source.postpone(2, [Postponed(entries[0], placed(payload))]) == [True]
        assert await source.condemn(3, [Condemned(entries[1], placed(payload), "{}")]) == [True]
        turn = await source.turn(4, [Finished(entries[2])], 1, suspect=False)
        assert len(turn.entries) == 1
        assert await source.hand_back([entries[3]]) == 1
        assert await source.leave() == 1
