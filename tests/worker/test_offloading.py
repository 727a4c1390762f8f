"""A job that is tried again, or given up on, is kept where the router wants it, as any other job."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from service.worker import Context, Retry, Worker
from tests.kit.proxy import Proxy
from tests.kit.s3_servers import S3Server
from tests.kit.servers import no_traces
from tests.kit.services import settings_for
from tests.kit.waiting import eventually
from tests.kit.workers import QUEUE, Log, Workshop, a_workshop, envelope

LARGE = "x" * 20_000


@pytest.fixture
async def shop(redis_url: str, s3_server: S3Server) -> AsyncIterator[Workshop]:
    """With an S3 for what is large."""
    async with a_workshop(redis_url, **settings_for(redis_url, s3_server)) as made:
        yield made


async def objects(shop: Workshop, store: S3Server) -> list[str]:
    keys = await asyncio.to_thread(store.keys, shop.environ["COATCHECK_BACKENDS__S3__BUCKET"])
    return [key for key in keys if not key.endswith("INSTALLATION")]


async def backends(shop: Workshop, name: str) -> list[bytes]:
    """Of the members of `delayed` or `dead`."""
    members = await shop.redis.zrange(getattr(shop.keys.queue(QUEUE), name), 0, -1)
    return [member.partition(b"::")[0] for member in members]


async def test_a_large_job_waits_for_its_retry_in_s3_and_leaves_nothing_there(
    shop: Workshop, s3_server: S3Server, log: Log
) -> None:
    worker = Worker()

    @worker.task("later")
    async def later(payload: str, context: Context) -> None:
        log.add((payload == LARGE, context.id, context.attempt))
        if not context.attempt:
            raise Retry(after="1s")

    async with shop.dispatching(), shop.at_work(worker):
        await shop.push(QUEUE, envelope("later", LARGE, id="7"))
        await log.has(1)

        async def offloaded() -> bool:
            assert await backends(shop, "delayed") == [b"s3"]
            return len(await objects(shop, s3_server)) == 1

        await eventually(offloaded)
        assert not await shop.redis.exists(shop.keys.queue(QUEUE).bodies)
        assert await log.has(2) == [(True, "7", 0), (True, "7", 1)]

        async def empty() -> bool:
            await no_traces(shop.redis, besides=(shop.keys.meta, shop.keys.queue(QUEUE).workers, *await _living(shop)))
            return not await objects(shop, s3_server)

        await eventually(empty)


async def _living(shop: Workshop) -> list[str]:
    return [shop.keys.queue(QUEUE).turns]


async def test_a_small_job_that_waits_long_goes_to_s3_as_well(shop: Workshop, s3_server: S3Server) -> None:
    worker = Worker()

    @worker.task("later")
    async def later() -> None:
        raise Retry(after="1h")

    async with shop.at_work(worker):
        await shop.push(QUEUE, envelope("later", "x" * 1_000))
        await eventually(lambda: shop.redis.zcard(shop.keys.queue(QUEUE).delayed))
        assert await backends(shop, "delayed") == [b"s3"]


async def test_a_large_dead_job_is_kept_in_s3_and_can_be_revived(shop: Workshop, s3_server: S3Server, log: Log) -> None:
    """The dead set is kept for months; a Redis full of dead payloads would stop the living."""
    worker, fixed = Worker(), asyncio.Event()

    @worker.task("broken")
    async def broken(payload: str) -> None:
        if not fixed.is_set():
            raise ValueError("no")
        log.add(payload == LARGE)

    async with shop.dispatching() as service, shop.at_work(worker):
        await shop.push(QUEUE, envelope("broken", LARGE, max_retries=0))
        (record,) = await shop.dead()
        assert record["reference"].backend == "s3"
        fixed.set()
        await service.ledger.revive(QUEUE, [str(record["reference"])])
        assert await log.has(1) == [True]
        await eventually(lambda: _gone(shop, s3_server))


async def _gone(shop: Workshop, store: S3Server) -> bool:
    return not await objects(shop, store)


async def test_with_s3_away_a_job_stays_in_redis_and_is_tried_again(
    redis_url: str, s3_server: S3Server, log: Log
) -> None:
    """Its bytes are there anyway: to refuse it, as a new job would be, would be to lose it."""
    worker = Worker()

    @worker.task("flaky")
    async def flaky(context: Context) -> None:
        log.add(context.attempt)
        if not context.attempt:
            raise Retry(after="10ms")

    async with Proxy(s3_server.port) as proxy:
        environ = settings_for(redis_url, s3_server, ROUTING__WHEN_UNAVAILABLE="refuse", BACKENDS__S3__TIMEOUT="500ms")
        environ["COATCHECK_BACKENDS__S3__ENDPOINT_URL"] = proxy.http_url
        async with a_workshop(redis_url, **environ) as shop, shop.dispatching(), shop.at_work(worker):
            await proxy.refuse()
            await shop.push(QUEUE, envelope("flaky", "x" * 100_000))
            assert await log.has(2, within_s=30) == [0, 1]
            await shop.idle()
