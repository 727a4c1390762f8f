"""What is particular to ready streams: the group, who else reads from it, foreign entries, room, and due times."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from service.worker import Context, Worker
from service.worker.source import Finished
from tests.kit.processes import Process
from tests.kit.sources import GROUP, Rig, payloads, rigged, taken
from tests.kit.waiting import eventually
from tests.kit.workers import QUEUE, QUICK, Log, Workshop, a_workshop, both_kinds, envelope

streams = pytest.mark.parametrize("shop", ["stream"], indirect=True)


@pytest.fixture
async def rig(redis_url: str) -> AsyncIterator[Rig]:
    async with rigged(redis_url, "stream") as made:
        yield made


# ---- the group -------------------------------------------------------------------------------------------------------


async def test_the_first_worker_makes_the_group_from_the_oldest_entry_on_and_later_ones_leave_it_as_it_is(
    rig: Rig,
) -> None:
    """A dispatcher may feed the stream for hours before there is a worker."""
    await rig.push(b"1", b"2")
    one = await rig.source()
    assert payloads(await taken(one, 1)) == [b"1"]
    other = await rig.source()
    assert payloads(await taken(other, 9)) == [b"2"]


async def test_a_stream_that_somebody_deletes_is_one_to_begin_with(rig: Rig) -> None:
    """Or a Redis that lost its data: its workers go on with what comes then."""
    await rig.push(b"1")
    source = await rig.source()
    (gone,) = await taken(source, 1)
    await rig.redis.delete(rig.of.ready)
    assert (await source.beat(count=True)).held == 0
    assert await source.holdings() == []
    turn = await source.turn(2, [Finished(gone)], 5, suspect=True)
    assert (turn.status, turn.entries, turn.missing) == ("ok", [], 1)
    await rig.push(b"2")
    assert payloads(await taken(source, 1, number=3)) == [b"2"]
    await rig.redis.delete(rig.of.ready)
    assert await source.hand_back([gone]) == 0
    assert await source.leave() == 0


async def test_what_was_in_hand_when_the_ready_key_was_a_list_comes_back_to_the_stream(
    redis_url: str, log: Log
) -> None:
    """The list may be empty, all of it in the hands of workers, when a queue is configured anew and they are stopped.
    In their in-flight lists nobody looked, and their names were forgotten.
    """
    worker = Worker()

    @worker.task("note")
    async def note(context: Context) -> None:
        log.add(context.id)

    async with (
        rigged(redis_url, "list") as before,
        a_workshop(redis_url, streams=[QUEUE]) as shop,
        rigged(redis_url, "stream") as after,
    ):
        of = before.of
        await before.push(envelope("note", id="killed"), envelope("note", id="ended"))
        killed, ended = await before.source(), await before.source()
        await taken(killed, 1)
        await taken(ended, 1)
        reaper = await after.source()
        await ended.leave()
        await before.overdue(killed)
        assert (await reaper.reap()).returned == 2
        assert not await before.redis.exists(of.inflight(killed.worker), of.inflight(ended.worker))
        async with shop.at_work(worker, QUEUE):
            assert sorted(await log.has(2)) == ["ended", "killed"]
            await shop.idle(QUEUE)


async def test_what_other_consumers_of_the_group_have_in_hand_is_theirs(rig: Rig) -> None:
    """A stream may be read by programs that know nothing of our workers."""
    await rig.push(b"theirs", b"ours")
    source = await rig.source()
    [[_, [(their_id, _)]]] = await rig.redis.xreadgroup(GROUP, "somebody", {rig.of.ready: ">"}, count=1)
    (ours,) = await taken(source, 9)
    stolen = type(ours)(their_id, b"theirs", source.worker)
    turn = await source.turn(2, [Finished(stolen)], 0, suspect=False)
    assert turn.missing == 1
    assert await source.hand_back([stolen]) == 0
    await source.reap()
    (pending,) = await rig.redis.xpending_range(rig.of.ready, GROUP, "-", "+", 9, consumername="somebody")
    assert pending["message_id"] == their_id


async def test_what_another_consumer_claimed_meanwhile_is_not_acknowledged_for_it(rig: Rig) -> None:
    """XAUTOCLAIM takes whatever was long in anybody's hands."""
    await rig.push(b"1")
    source = await rig.source()
    (entry,) = await taken(source, 1)
    await rig.redis.xautoclaim(rig.of.ready, GROUP, "somebody", min_idle_time=0)
    assert (await source.turn(2, [Finished(entry)], 0, suspect=False)).missing == 1
    assert await rig.redis.xlen(rig.of.ready) == 1


async def test_a_finished_entry_is_acknowledged_and_deleted(rig: Rig) -> None:
    """XLEN does not fall when an entry is acknowledged: the stream would grow for ever."""
    await rig.push(b"1", b"2")
    source = await rig.source()
    first, _ = await taken(source, 2)
    await source.turn(2, [Finished(first)], 0, suspect=False)
    assert await rig.redis.xlen(rig.of.ready) == 1
    assert (await rig.redis.xpending(rig.of.ready, GROUP))["pending"] == 1


async def test_consumers_of_workers_that_are_gone_are_deleted_once_nothing_is_in_their_hands(rig: Rig) -> None:
    """Each worker has a name of its own: they would gather. To delete one earlier would lose its jobs."""
    await rig.push(b"1", b"2")
    dead, alive, leaving = [await rig.source() for _ in range(3)]
    await taken(dead, 1)
    await taken(leaving, 1)

    async def names() -> set[str]:
        return {each["name"].decode() for each in await rig.redis.xinfo_consumers(rig.of.ready, GROUP)}

    assert await leaving.leave() == 1
    assert await names() == {dead.worker}
    await rig.overdue(dead)
    await alive.reap()
    assert dead.worker in await names(), "its last request may still take something"
    await rig.put_in_hands(dead.worker, b"3")
    await rig.redis.zadd(rig.of.departed, {dead.worker: 1})
    assert (await alive.reap()).returned + (await alive.reap()).returned >= 1
    assert dead.worker not in await names()
    assert sorted(payloads(await taken(alive, 9))) == [b"1", b"2", b"3"]


async def test_what_somebody_deleted_by_hand_holds_nobody_up(rig: Rig) -> None:
    await rig.push(b"1", b"2", b"3")
    dead, alive = await rig.source(), await rig.source()
    first, second, _ = await taken(dead, 3)
    await rig.redis.xdel(rig.of.ready, first.handle)
    await rig.overdue(dead)
    await alive.reap()
    await rig.redis.xdel(rig.of.ready, second.handle)
    assert payloads(await taken(alive, 9)) == [b"3"]
    assert (await rig.redis.xpending(rig.of.ready, GROUP))["pending"] == 1


async def test_what_came_back_while_others_sleep_wakes_one_of_them(rig: Rig) -> None:
    """Entries that are pending under another name wake nobody."""
    await rig.push(b"1")
    full, idle = await rig.source(), await rig.source(block_s=10)
    (entry,) = await taken(full, 1)
    waiting = asyncio.create_task(idle.wait())

    async def asleep() -> bool:
        return int((await rig.redis.info("clients"))["blocked_clients"]) == 1

    await eventually(asleep)
    await full.hand_back([entry])
    woken = await waiting
    assert woken is not None
    assert (woken.payload, woken.due_ms) == (entry.payload, entry.due_ms)


async def test_what_is_returned_and_wakes_nobody_is_told_of_to_who_looks_for_the_dead(rig: Rig) -> None:
    """There was something new to take, so nobody slept; then a consumer that is no worker of ours took that."""
    await rig.push(b"1", b"2")
    full, idle = await rig.source(), await rig.source()
    (entry,) = await taken(full, 1)
    await full.hand_back([entry])
    await rig.redis.xreadgroup(GROUP, "somebody", {rig.of.ready: ">"})
    assert (await idle.reap()).suspects == 1
    assert payloads(await taken(idle, 9)) == [b"1"]


@streams
async def test_an_idle_worker_whose_stream_is_deleted_works_on_the_next(shop: Workshop, log: Log) -> None:
    """By a hand, or by a Redis that lost it: the pop that sleeps there ends with an error."""
    worker, ready = Worker(), shop.keys.queue(QUEUE).ready
    worker.task("note")(log.add)

    async def asleep() -> bool:
        return int((await shop.redis.info("clients"))["blocked_clients"]) == 1

    async with shop.at_work(worker):
        for number in range(2):
            await eventually(asleep)
            await shop.redis.delete(ready)
            await shop.push(QUEUE, envelope("note", number))
            assert len(await log.has(number + 1)) == number + 1
        await shop.idle()


async def test_an_entry_of_thousands_of_fields_comes_back_like_any_other(rig: Rig) -> None:
    """Lua unpacks no more than 8,000 values: an error in the midst of reaping would keep all others in dead hands."""
    dead, alive = await rig.source(), await rig.source()
    await rig.redis.xadd(rig.of.ready, {f"field {number}": number for number in range(10_000)})
    await rig.push(b"1")
    await taken(dead, 2)
    await rig.overdue(dead)
    assert (await alive.reap()).returned == 2
    entries = await taken(alive, 9)
    assert sorted(bool(entry.fault) for entry in entries) == [False, True]


# ---- entries ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("due", "told"), [(b"1764547200000", 1_764_547_200_000), (b"", None), (b"soon", None), (b"9" * 17, None)]
)
async def test_an_entry_says_when_its_job_was_due(rig: Rig, due: bytes, told: int | None) -> None:
    source = await rig.source()
    await rig.redis.xadd(rig.of.ready, {"payload": b"1", "due": due})
    (entry,) = await taken(source, 1)
    assert (entry.payload, entry.due_ms) == (b"1", told)
    assert [each.due_ms for each in await source.holdings()] == [told]


@streams
async def test_a_payload_that_is_no_envelope_says_how_long_it_waited_all_the_same(shop: Workshop, log: Log) -> None:
    worker = Worker()
    worker.raw(QUEUE)(log.add)
    async with shop.at_work(worker) as work:
        await shop.redis.xadd(shop.keys.queue(QUEUE).ready, {"payload": b"\x00", "due": 1})
        assert await log.has(1) == [b"\x00"]
        shown = work.service.metrics.render()[0].decode()
    assert 'coatcheck_worker_wait_seconds_count{queue="emails"} 1.0' in shown


@pytest.mark.parametrize("raw", [False, True], ids=["", "with a raw handler"])
@streams
async def test_an_entry_without_a_payload_is_dead_with_its_reason_and_holds_nobody_up(
    shop: Workshop, log: Log, raw: bool
) -> None:
    """Somebody else's, or a producer that misspelt a field."""
    worker = Worker()
    worker.task("note")(log.add)
    if raw:
        worker.raw(QUEUE)(log.add)
    async with shop.at_work(worker, concurrency=1):
        await shop.push(QUEUE, envelope("note", 1))
        await shop.redis.xadd(shop.keys.queue(QUEUE).ready, {"paylaod": b"x\xff", "due": 7})
        await shop.push(QUEUE, envelope("note", 2))
        assert await log.has(2) == [1, 2]
        (record,) = await shop.dead()
        await shop.idle()
    assert (record["reason"], record["error"]) == ("not_an_envelope", "the stream's entry has no field `payload`")
    assert json.loads(record["body"]) == ["paylaod", "x\\xff", "due", "7"]


@streams
async def test_any_program_can_work_on_a_stream_beside_our_workers(shop: Workshop, log: Log) -> None:
    """With three commands: XREADGROUP, and XACK and XDEL when it is done."""
    worker, ready = Worker(), shop.keys.queue(QUEUE).ready
    worker.task("note")(log.add)
    await shop.push(QUEUE, *(envelope("note", number) for number in range(10)))
    await shop.redis.execute_command("XGROUP", "CREATE", ready, "mailers", "0", "MKSTREAM")
    [[_, read]] = await shop.redis.execute_command(
        *("XREADGROUP", "GROUP", "mailers", "me", "COUNT", "4", "STREAMS", ready, ">")
    )
    async with shop.at_work(worker):
        assert sorted(await log.has(6)) == [4, 5, 6, 7, 8, 9]
        for id_, _ in read:
            await shop.redis.execute_command("XACK", ready, "mailers", id_)
            await shop.redis.execute_command("XDEL", ready, id_)
        await shop.idle()


# ---- with a dispatcher -----------------------------------------------------------------------------------------------


@streams
async def test_a_full_stream_has_room_again_as_jobs_end(shop: Workshop, log: Log) -> None:
    """Room is counted by what the group is not done with."""
    worker = Worker()
    worker.task("note")(log.add)
    queues = {QUEUE: {"ready_kind": "stream", "ready_group": GROUP, "max_ready": 5}}
    async with shop.dispatching(QUEUES=json.dumps(queues)) as service:
        for number in range(40):
            await service.producer.enqueue_task("note", number, queue=QUEUE)

        async def full() -> bool:
            return bool(await shop.redis.xlen(shop.keys.queue(QUEUE).ready) == 5)

        await eventually(full, 10, "there is room for no more")
        async with shop.at_work(worker):
            assert sorted(await log.has(40, within_s=30)) == list(range(40))
            await shop.idle()
    await shop.nothing_left()


APP = """
import os
import redis
from service.worker import Context, Worker

app = Worker()
client = redis.Redis.from_url(os.environ["COATCHECK_REDIS__URL"])

@app.task("note")
async def note(payload, context: Context):
    client.rpush("noted", f"{payload}:{context.attempt}")
    if not context.attempt and payload == "flaky":
        raise ValueError("no")
"""


@streams
async def test_a_worker_process_works_on_a_stream_that_a_dispatcher_feeds(shop: Workshop, tmp_path: Path) -> None:
    """By settings alone; what fails waits in the delayed set, and comes back by the stream."""
    (tmp_path / "app.py").write_text(APP)
    pace = {"COATCHECK_REDIS__URL": shop.redis_url, "COATCHECK_WORKER__BACKOFF_MIN": "10ms"}
    process = Process({**shop.environ, **pace}, "worker", "app:app", "--queue", QUEUE, cwd=tmp_path)
    try:
        await process.is_ready()
        async with shop.dispatching() as service:
            for payload in ("one", "two", "flaky"):
                await service.producer.enqueue_task("note", payload, queue=QUEUE, delay="10ms")

            async def all_noted() -> list[bytes]:
                seen = await shop.redis.lrange("noted", 0, -1)
                assert len(seen) >= 4, seen
                return list(seen)

            seen = await eventually(all_noted, 20, "all are done")
            assert sorted(seen) == [b"flaky:0", b"flaky:1", b"one:0", b"two:0"]
            await shop.idle()
        assert await process.metric("worker_wait_seconds_count", queue=QUEUE) == 4
        assert await process.stopped() == 0, process.log
    finally:
        process.child.close()
    await shop.nothing_left("noted")


async def test_a_list_and_a_stream_have_their_shares_of_one_worker(redis_url: str, log: Log) -> None:
    worker = Worker()

    @worker.task("note")
    async def note(payload: str) -> None:
        log.add(payload)

    async with a_workshop(redis_url, streams=("critical",)) as shop:
        for queue in ("critical", "default"):
            for _ in range(4):
                await shop.push(queue, *(envelope("note", queue) for _ in range(1_000)))
        async with shop.at_work(worker, weights={"critical": 3.0, "default": 1.0}):
            await log.has(4_000, within_s=60)
        seen = Counter(log.seen[:4_000])
        assert abs(seen["critical"] - 3_000) <= 60, seen


@both_kinds
async def test_a_group_s_jobs_come_back_from_a_worker_that_is_killed(shop: Workshop, log: Log, tmp_path: Path) -> None:
    """The whole way: a process that dies with jobs in hand, and another that is heard of."""
    (tmp_path / "app.py").write_text(
        "import os\nfrom service.worker import Worker\napp = Worker()\n"
        "@app.task('note')\ndef note(payload):\n    os.kill(os.getpid(), 9)\n"
    )
    await shop.push(QUEUE, *(envelope("note", number, id=f"{number}") for number in range(20)))
    environ = {**shop.environ, "COATCHECK_REDIS__URL": shop.redis_url}
    process = Process(environ, "worker", "app:app", "--queue", QUEUE, cwd=tmp_path)
    try:
        await process.ended()
    finally:
        process.child.close()
    assert await shop.inflight(), "it had nothing in hand"
    worker = Worker()
    worker.task("note")(log.add)
    await shop.redis.zadd(shop.keys.queue(QUEUE).workers, dict.fromkeys(await shop.inflight(), 1))
    async with shop.at_work(worker, **QUICK):
        assert sorted(await log.has(20)) == list(range(20))
        await shop.idle()
