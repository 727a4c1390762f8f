"""A producer for asyncio, with all that it needs and nothing of a dispatcher."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from service.logs import into_applications_own
from service.producer import Producer
from service.settings import Settings, load
from service.wiring import Service

START_WITHIN_S: Final = 10.0  #: for Redis: long enough for a failover, short enough for somebody who waits for a page


@asynccontextmanager
async def open_producer(
    settings: Settings | Mapping[str, str] | None = None, *, within_s: float = START_WITHIN_S
) -> AsyncIterator[Producer]:
    """A `Producer` that is ready to accept. For one event loop, whose coroutines may share it: one is enough.

    `settings`, or an environment to read them from; the process's own if there is neither. Raises SettingsError;
    CannotStart for a Redis or a backend that would lose jobs; RedisUnavailable if Redis is not there `within_s`. If it
    goes away later, calls raise RedisUnavailable until it is back. A backend that does not answer is waited for 3 s and
    counts as away until it does. Log lines go to the application's `logging`.
    """
    into_applications_own()
    chosen = settings if isinstance(settings, Settings) else load() if settings is None else load(settings)
    service = Service(chosen, "api")
    try:
        await service.start(within_s)
        yield service.producer
    finally:
        await service.close()
