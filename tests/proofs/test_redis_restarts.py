"""Redis goes away in the middle of everything, and comes back with what its append-only file holds."""

import asyncio
import random
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from service.embedded import RedisServer
from tests.kit.callers import Answers, judge, send_all
from tests.kit.processes import running
from tests.kit.site import QUEUE, Consumer, Site, mixed, number_of
from tests.kit.waiting import eventually


@pytest.fixture
def server(own_redis: Callable[..., RedisServer]) -> RedisServer:
    """What it has answered is on disk: then a restart loses nothing, and whatever is lost is our doing."""
    return own_redis(appendonly=True, appendfsync="always")


@pytest.mark.timeout(180)
@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_a_redis_that_restarts_under_load_leaves_nothing_lost_and_nothing_to_repair(
    site: Site, server: RedisServer, how: str
) -> None:
    """Connections break, scripts are forgotten, answers are missing: everything goes on by itself where it was."""
    rng, answers, batch = random.Random(7), Answers(), 250
    environ = site.environ(QUEUES=f'{{"{QUEUE}": {{"max_ready": 100000}}}}')
    with ExitStack() as processes:
        pair = [processes.enter_context(running(environ)) for _ in range(2)]
        for process in pair:
            await process.is_ready()
        for at in range(0, 6 * batch, batch):
            numbers = range(at, at + batch)
            sending = asyncio.create_task(send_all(pair[at // batch % 2].url, mixed(numbers), answers))
            before = len(answers.accepted)
            wanted = before + rng.randrange(10, batch // 2)
            await eventually(lambda: len(answers.accepted) >= wanted, 60, "jobs are accepted")  # noqa: B023  # awaited within its round
            if how == "kill":
                server.kill()
            server.restart()
            await sending
        await site.redis.connection_pool.disconnect()  # they ended with the server that they led to
        for process in pair:
            await process.is_ready()
        ready = site.keys.queue(QUEUE).ready

        async def all_ready() -> bool:
            assert await site.redis.llen(ready) >= len(answers.accepted)
            return await site.delivered()

        await eventually(all_ready, 60, "everything is delivered")
        consumer = Consumer(site)
        consumer.got.update(map(number_of, await site.redis.lrange(ready, 0, -1)))
        await site.redis.delete(ready)
        judge(consumer, answers)
        await site.nothing_left(hurried=True, orphans=len(answers.refused) + len(answers.unknown))
        for process in pair:
            assert await process.metric("index_repairs_total") == 0
            assert await process.metric("buried_total") == 0
            await process.answers("/healthz")
        print(len(answers.accepted), "accepted,", len(answers.unknown), "unknown,", len(answers.refused), "refused")
