"""How a worker lives and ends: heard on each queue by itself, and over in time, whatever its handlers do."""

import asyncio

import pytest

from service.worker import Worker
from tests.kit.proxy import Proxy
from tests.kit.waiting import eventually
from tests.kit.workers import QUEUE, QUICK, Log, Workshop, envelope


async def test_a_handler_that_is_deaf_to_cancellation_does_not_keep_its_worker_from_leaving(
    shop: Workshop, log: Log
) -> None:
    """`except BaseException` around a retry loop is enough. Killed in the end, such a worker would leave its jobs to
    be found only when it is taken for dead, and each would be a strike.
    """
    worker, end = Worker(), asyncio.Event()

    @worker.task("deaf")
    async def deaf() -> None:
        log.add(1)
        while not end.is_set():
            try:
                await end.wait()
            except asyncio.CancelledError:
                log.add("cancelled")

    raw = envelope("deaf")
    async with shop.at_work(worker, WORKER__GRACE="100ms") as work:
        await shop.push(QUEUE, raw)
        await log.has(1)
        async with asyncio.timeout(20):
            await work.shift.stop()
        assert log.seen == [1, "cancelled"]
        assert await shop.redis.lrange(shop.keys.queue(QUEUE).ready, 0, -1) == [raw]
        assert not await shop.redis.exists(shop.keys.queue(QUEUE).strikes)
        end.set()


async def test_a_queue_where_it_cannot_say_that_it_lives_silences_it_on_no_other(shop: Workshop, log: Log) -> None:
    """Each was taken for dead then, a queue after the other, by workers that fared no better."""
    worker = Worker()
    worker.task("note")(lambda: log.add(1))
    workers = shop.keys.queue(QUEUE).workers
    async with shop.at_work(worker, "spoiled", QUEUE, **QUICK):
        ((_, first),) = await shop.redis.zrange(workers, 0, -1, withscores=True)
        await shop.redis.set(shop.keys.queue("spoiled").workers, "scribble")

        async def heard() -> bool:
            ((_, score),) = await shop.redis.zrange(workers, 0, -1, withscores=True)
            return bool(score > first + 2_000)

        await eventually(heard, described="it is heard of for longer than the patience")
        await shop.push(QUEUE, envelope("note"))
        await log.has(1)
        await shop.idle()
    assert not await shop.redis.exists(workers), "it left the other in order"


@pytest.mark.parametrize("key", ["workers", "departed", "turns", "strikes", "suspects"])
async def test_a_queue_with_a_spoiled_key_keeps_no_other_from_its_jobs_and_is_worked_on_once_it_is_mended(
    shop: Workshop, log: Log, key: str
) -> None:
    """Its worker did not start, or the room that it was granted was nobody's until it was mended."""
    worker = Worker()
    worker.task("note")(lambda: log.add(1))
    spoiled = str(getattr(shop.keys.queue("a"), key))
    await shop.redis.set(spoiled, "scribble")
    async with shop.at_work(worker, "a", QUEUE, DISPATCHER__COOL_DOWN="1s", **QUICK) as work:
        for number in range(1, 4):
            await shop.push(QUEUE, envelope("note"))
            await log.has(number)
            await shop.idle()
        assert work.shift.alive().ok
        await shop.redis.delete(spoiled)
        await shop.push("a", envelope("note"))
        await log.has(4)
        await shop.idle("a")


async def test_jobs_under_suspicion_follow_one_another_at_once(shop: Workshop, log: Log) -> None:
    """A killer puts all that was in hand beside it under suspicion, often a hundred. They are taken one at a time; were
    the next one taken at the next heartbeat, they would wait for minutes.
    """
    worker = Worker()
    worker.task("note")(lambda: log.add(1))
    of = shop.keys.queue(QUEUE)
    await shop.redis.lpush(of.suspects, *(envelope("note", id=f"suspect-{number}") for number in range(20)))
    async with shop.at_work(worker, WORKER__HEARTBEAT="10m", WORKER__PATIENCE="1h"):
        await log.has(20)
        await shop.idle()


async def test_a_worker_of_many_queues_is_never_overdue_on_any_where_redis_is_slow_to_answer(
    shop: Workshop, redis_proxy: Proxy
) -> None:
    """One after the other, 40 signs of life of 100 ms each came later than the patience allows, again and again."""
    queues, overdue, ends_ms = [f"q{number}" for number in range(40)], set(), None
    redis_proxy.delay(reply_s=0.1)
    pace = {"WORKER__HEARTBEAT": "500ms", "WORKER__PATIENCE": "3s"}

    async def looked() -> bool:
        nonlocal ends_ms
        async with shop.redis.pipeline(transaction=False) as asking:
            asking.time()
            for queue in queues:
                asking.zrange(shop.keys.queue(queue).workers, 0, -1, withscores=True)
            (seconds, _), *workers = await asking.execute()
        ends_ms = ends_ms or seconds * 1000 + 8_000
        overdue.update(queue for queue, [(_, score)] in zip(queues, workers, strict=True) if score < seconds * 1000)
        return bool(seconds * 1000 > ends_ms)

    async with shop.at_work(Worker(), *queues, redis_url=redis_proxy.url, **pace):
        await eventually(looked, 30, "more than twice the patience has passed")
        redis_proxy.delay()
    assert not overdue
