"""How a worker ends: in time, whatever its handlers do, and with everything where others find it."""

import asyncio

from service.worker import Worker
from tests.kit.workers import QUEUE, Log, Workshop, envelope


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
