"""A worker at work, with all that it needs: a service that dispatches nothing, and a shift on some queues."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from service.errors import CannotStart
from service.settings import Settings
from service.uploads import Uploads
from service.wiring import Service, hangs_after_s
from service.worker.crew import Crew
from service.worker.handling import Handling
from service.worker.lane import Lane
from service.worker.lists import ListSource
from service.worker.once import Once
from service.worker.placing import Placing
from service.worker.shift import Shift
from service.worker.source import Source
from service.worker.streams import StreamSource
from service.worker.tasks import Backoff
from service.worker.weights import LEAST
from service.worker.worker import Worker
from storage_backends.reference import InvalidName, check_queue

#: So that an idle worker with many queues sends Redis no more commands than one with few.
_REAP_S: Final = 3.0
_BLOCK_A_QUEUE_S: Final = 2.0
_LONG_BLOCK_S: Final = 30.0


def shift_of(
    service: Service,
    worker: Worker,
    queues: Mapping[str, float],
    *,
    concurrency: int | None = None,
    strict: bool = False,
) -> Shift:
    """`queues`: name -> weight, in order. `concurrency`: in place of the setting. Raises CannotStart."""
    chosen = service.settings.worker
    at_once = chosen.concurrency if concurrency is None else concurrency
    if not queues or at_once < 1 or any(not LEAST <= weight <= 1 / LEAST for weight in queues.values()):
        raise CannotStart("a worker needs a queue, weights of 0.000001 to 1000000, and a concurrency of at least 1")
    lanes = [
        Lane(
            index,
            _source(service, queue, len(queues)),
            service.metrics,
            patience_s=chosen.patience_s,
            cool_down_s=service.settings.dispatcher.cool_down_s,
        )
        for index, queue in enumerate(queues)
    ]
    handling = Handling(
        worker,
        Once(service.runner, service.keys),
        service.ledger.clock,
        service.metrics,
        threads=at_once,
        backoff=Backoff(round(chosen.backoff_min_s * 1000), round(chosen.backoff_max_s * 1000)),
        max_retries=chosen.max_retries,
        max_deaths=chosen.max_deaths,
    )
    uploads = Uploads(service.ledger, service.offloading, service.metrics)
    crew = Crew(
        lanes,
        list(queues.values()),
        handling,
        Placing(service.ledger, service.router, uploads, lambda: service.memory.ratio),
        service.metrics,
        concurrency=at_once,
        prefetch=chosen.prefetch,
        dead_kept_ms=round(service.settings.dead.max_age_s * 1000),
        strict=strict,
    )
    return Shift(
        lanes,
        crew,
        handling,
        service.metrics,
        service.clock,
        heartbeat_s=chosen.heartbeat_s,
        reap_s=max(chosen.patience_s / 2 / len(lanes), min(_REAP_S, chosen.patience_s / 2)),
        grace_s=chosen.grace_s,
        hangs_after_s=hangs_after_s(service.settings.redis.timeout_s),
    )


@asynccontextmanager
async def at_work(
    worker: Worker,
    queues: Mapping[str, float],
    settings: Settings,
    *,
    concurrency: int | None = None,
    strict: bool = False,
    within_s: float = 10.0,
) -> AsyncIterator[Shift]:
    """A worker within an application's own event loop, stopped in order at the end. Raises as open_producer does."""
    service = Service(settings, "worker")
    try:
        await service.start(within_s)
        shift = shift_of(service, worker, queues, concurrency=concurrency, strict=strict)
        async with asyncio.timeout(within_s):
            await shift.start()
        try:
            yield shift
        finally:
            await shift.stop()
    finally:
        await service.close()


def _source(service: Service, queue: str, queues: int) -> Source:
    chosen = service.settings.worker
    try:
        check_queue(queue)
    except InvalidName as error:
        raise CannotStart(str(error)) from error
    kind = ListSource if service.keys.queue(queue).group is None else StreamSource
    return kind(
        queue,
        runner=service.runner,
        transport=service.transport,
        pool=service.pool,
        keys=service.keys,
        clock=service.ledger.clock,
        patience_ms=round(chosen.patience_s * 1000),
        block_s=max(chosen.block_s, min(_LONG_BLOCK_S, queues * _BLOCK_A_QUEUE_S)),
        stale_after_ms=round(service.settings.sweeper.grace_s * 1000 / 2),
    )
