"""An idle worker is the normal state: it sleeps in Redis, and wakes whatever happened meanwhile."""

import asyncio
import time
from collections.abc import Callable

import pytest

from service.embedded import RedisServer
from service.worker import Context, Worker
from tests.kit.proxy import Proxy
from tests.kit.servers import client_of
from tests.kit.waiting import eventually
from tests.kit.workers import QUEUES as STREAMS, Log, Workshop, a_workshop, both_kinds, envelope

QUEUES = ("critical", "default", "low")


def noting(log: Log) -> Worker:
    worker = Worker()

    @worker.task("note")
    async def note(context: Context) -> None:
        log.add((context.queue, time.perf_counter()))

    return worker


async def asleep(shop: Workshop, count: int = len(QUEUES)) -> None:
    """So many connections sleep in Redis."""

    async def blocked() -> bool:
        found = (await shop.redis.info("clients"))["blocked_clients"]
        assert found == count, f"{found} asleep"
        return True

    await eventually(blocked, 20, f"{count} connections sleep in Redis")


async def each_queue_wakes_it(shop: Workshop, log: Log) -> list[float]:
    """Pushes to each queue in turn. How long it took until the handler ran, s."""
    took = []
    for queue in QUEUES:
        await asleep(shop)
        before, began_s = len(log.seen), time.perf_counter()
        await shop.push(queue, envelope("note"))
        await log.has(before + 1)
        assert log.seen[before][0] == queue
        took.append(log.seen[before][1] - began_s)
    return took


@both_kinds
async def test_a_job_on_any_queue_wakes_it_within_milliseconds(shop: Workshop, log: Log) -> None:
    """Not only on the first: a worker that asks one queue after another makes the others wait."""
    async with shop.at_work(noting(log), *QUEUES):
        took = [await each_queue_wakes_it(shop, log) for _ in range(5)]
    best = [min(each) for each in zip(*took, strict=True)]
    assert max(best) < 0.02, f"{best} s"


async def commands(shop: Workshop) -> int:
    return int((await shop.redis.info("stats"))["total_commands_processed"])


@both_kinds
async def test_an_idle_worker_costs_redis_less_than_3_commands_a_second(shop: Workshop, log: Log) -> None:
    """With heartbeats, the looks for dead workers, and everything else that the process does."""
    async with shop.at_work(noting(log), *QUEUES):
        await asleep(shop)
        before, began_s = await commands(shop), time.monotonic()
        await eventually(lambda: time.monotonic() - began_s > 12, 30)
        rate = (await commands(shop) - before - 1) / (time.monotonic() - began_s)
    print(f"{rate:.2f} commands a second")
    assert rate < 3


async def kill_connections(shop: Workshop) -> None:
    await shop.redis.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


@both_kinds
async def test_it_wakes_after_its_connections_were_killed(shop: Workshop, log: Log) -> None:
    async with shop.at_work(noting(log), *QUEUES) as work:
        await asleep(shop)
        await kill_connections(shop)
        await each_queue_wakes_it(shop, log)
        assert work.shift.alive().ok


@pytest.mark.parametrize("streams", [(), STREAMS], ids=["list", "stream"])
@pytest.mark.parametrize("how", ["restart", "kill"])
async def test_it_wakes_after_redis_was_restarted(
    own_redis: Callable[..., RedisServer], log: Log, how: str, streams: tuple[str, ...]
) -> None:
    """Which forgets the scripts, the connections, and here the worker itself, for nothing is on disk."""
    server = own_redis()
    async with a_workshop(server.url, streams=streams) as shop, shop.at_work(noting(log), *QUEUES) as work:
        await asleep(shop)
        if how == "kill":
            server.kill()
        server.restart()
        await shop.redis.aclose()
        shop.redis = client_of(server.url)
        await each_queue_wakes_it(shop, log)
        assert work.shift.alive().ok


@both_kinds
async def test_it_wakes_after_its_connections_died_without_a_word(shop: Workshop, log: Log, redis_proxy: Proxy) -> None:
    """A firewall that forgets a connection tells neither end."""
    async with shop.at_work(
        noting(log), *QUEUES, redis_url=redis_proxy.url, WORKER__BLOCK="300ms", REDIS__TIMEOUT="500ms"
    ) as work:
        await asleep(shop)
        redis_proxy.blackhole()
        await asleep(shop, 0)
        redis_proxy._deaf = False  # new connections pass; the old ones are never heard of again
        for queue in QUEUES:
            await shop.push(queue, envelope("note"))
        await log.has(3, within_s=20)
        await each_queue_wakes_it(shop, log)
        assert work.shift.alive().ok


@both_kinds
async def test_a_worker_that_is_full_leaves_jobs_to_others(shop: Workshop, log: Log) -> None:
    """Its sleeping connection may pop a job that it has no hand free for: that goes back at once."""
    gate, full = asyncio.Event(), Worker()

    @full.task("wait")
    async def wait() -> None:
        log.add("waits")
        await gate.wait()

    full.task("note")(lambda: log.add("the full one"))
    free = Worker()
    free.task("note")(lambda: log.add("the free one"))
    async with shop.at_work(full, "a", "b", concurrency=1):
        await asleep(shop, 2)
        await shop.push("a", envelope("wait"))
        await log.has(1)
        async with shop.at_work(free, "b", concurrency=1):
            await shop.push("b", envelope("note"), envelope("note"))
            assert await log.has(3) == ["waits", "the free one", "the free one"]
            gate.set()
