"""An idle worker process, for a minute, and then whatever its connections may suffer: at rest, and awake at once."""

import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from service.embedded import RedisServer
from tests.kit.crews import QUEUES, Crew, a_crew
from tests.kit.proxy import Proxy
from tests.kit.waiting import eventually

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def effects(own_redis: Callable[..., RedisServer]) -> RedisServer:
    return own_redis()


@pytest.fixture
async def crew(server: RedisServer, effects: RedisServer, tmp_path: Path) -> AsyncIterator[Crew]:
    """One worker, with the settings that people have."""
    async with a_crew(server, effects, tmp_path, once=False, size=1, pace={}) as made:
        yield made


async def asleep(crew: Crew) -> None:
    async def blocked() -> bool:
        return int((await crew.redis.info("clients"))["blocked_clients"]) == len(QUEUES)

    await eventually(blocked, 30, "a connection for each queue sleeps in Redis")


async def wakes(crew: Crew, within_s: float) -> None:
    """A job on each queue is done at once, each from sleep."""
    for queue in QUEUES:
        await asleep(crew)
        began_s = time.monotonic()
        await crew.one_more(queue)
        await crew.done(crew.count)
        assert time.monotonic() - began_s < within_s, queue


def cpu_s(crew: Crew) -> float:
    """Of the worker's process so far."""
    fields = Path(f"/proc/{crew.workers[0].child.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def test_a_minute_of_idleness_is_quiet_and_ends_at_once(crew: Crew) -> None:
    """No error, no busy loop. A blocking pop that times out is the usual case, and the one that nobody tries."""
    await wakes(crew, within_s=2)
    await asleep(crew)
    commands = (await crew.redis.info("stats"))["total_commands_processed"]
    before_s, began_s = cpu_s(crew), time.monotonic()
    await eventually(lambda: time.monotonic() - began_s > 60, 70)
    passed_s = time.monotonic() - began_s
    rate = ((await crew.redis.info("stats"))["total_commands_processed"] - commands) / passed_s
    share = (cpu_s(crew) - before_s) / passed_s
    print(f"{rate:.2f} commands a second, {share:.2%} of a core")
    assert rate < 3
    assert share < 0.05
    assert not crew.workers[0].log.strip(), crew.workers[0].log
    await wakes(crew, within_s=1)


async def test_it_wakes_whatever_happened_to_its_connections(crew: Crew, server: RedisServer) -> None:
    await wakes(crew, within_s=2)
    await crew.redis.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    await wakes(crew, within_s=1)
    server.restart()
    await crew.redis.connection_pool.disconnect()
    await wakes(crew, within_s=1)
    await crew.workers[0].answers("/healthz")


async def test_it_wakes_when_its_connections_died_without_a_word(
    server: RedisServer, effects: RedisServer, redis_faults: Proxy, tmp_path: Path
) -> None:
    """What is sent meanwhile is lost, both ways, and neither end is told."""
    async with a_crew(server, effects, tmp_path, once=False, size=1, pace={}, worker_url=redis_faults.url) as crew:
        await wakes(crew, within_s=2)
        await asleep(crew)
        redis_faults.blackhole()
        for queue in QUEUES:
            await crew.one_more(queue)
        redis_faults._deaf = False  # connections from now on pass; the old ones are never heard of again
        await crew.done(crew.count, within_s=30)
        await wakes(crew, within_s=1)
        await crew.settled()
