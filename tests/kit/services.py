"""A whole service in the test's own process: what `coatcheck serve` runs, without the HTTP server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from redis.asyncio import Redis

from service.keys import Keys
from service.settings import load
from service.wiring import Service
from tests.kit.s3_servers import S3Server
from tests.kit.servers import client_of


def settings_for(
    redis_url: str, store: S3Server | None = None, bucket: str | None = None, **more: str
) -> dict[str, str]:
    """An environment with this Redis and, if there is a store, backend `s3` in a new bucket for what is large or long.

    `more` are settings without their prefix: `DISPATCHER__LEASE="2s"`.
    """
    environ = {"REDIS__URL": redis_url, **more}
    if store is not None:
        options = store.options(store.new_bucket())
        environ |= {f"BACKENDS__S3__{name.upper()}": str(value) for name, value in options.items()}
        environ.setdefault("ROUTING__OFFLOAD_TO", "s3")
    return {f"COATCHECK_{name}": value for name, value in environ.items()}


@asynccontextmanager
async def started(service: Service) -> AsyncIterator[Service]:
    """Started, and stopped in order at the end."""
    try:
        await service.start()
        yield service
    finally:
        await service.stop_dispatching()
        await service.close()


@asynccontextmanager
async def running_service(environ: dict[str, str], role: str = "all") -> AsyncIterator[Service]:
    """The same, by its settings."""
    async with started(Service(load(environ), role)) as service:
        yield service


@asynccontextmanager
async def a_consumer(redis_url: str) -> AsyncIterator["Consumer"]:
    async with client_of(redis_url) as redis:
        yield Consumer(redis)


class Consumer:
    """Any program that can pop from a list."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def next(self, queue: str, within_s: float = 10) -> bytes | None:
        """The next payload, None if there is none in time."""
        popped = await self._redis.brpop([Keys().queue(queue).ready], timeout=within_s)
        return popped[1] if popped else None  # type: ignore[index,return-value]  # redis-py's types know no bytes
