"""Offloaded jobs: leased, fetched from S3, delivered, their objects deleted."""

import asyncio
import os
import time

import uvloop

from bench import bare
from bench.figures import Figure, ratio_at_least
from bench.stage import BUCKET, Bystander, Stage
from service.intake import NewJob
from service.wiring import Service

_QUEUE = "offloaded"
_BYTES, _THREADS = 10_240, 16


def measure(stage: Stage) -> list[Figure]:
    jobs = stage.scaled(2000, 600)
    ours, bound = stage.interleaved(
        lambda: uvloop.run(_rates(stage, jobs)),
        lambda: bare.run("bare_s3", stage.s3_url, BUCKET, "--objects", jobs, "--bytes", _BYTES, "--threads", _THREADS),
    )
    bound_rates = [each["get_and_delete_per_s"] for each in bound]
    delivered, gone = [rate for rate, _ in ours], [rate for _, rate in ours]
    work = "offloaded jobs of 10 KB: fetched, delivered"
    return [
        Figure("offload", f"{work} and deleted", "jobs/s", gone, bound_rates, ratio_at_least(0.8)),
        Figure("offload", work, "jobs/s", delivered, [each["get_per_s"] for each in bound]),
    ]


async def _rates(stage: Stage, jobs: int) -> tuple[float, float]:
    """Jobs a second until all are delivered, and until their objects are deleted, too."""
    environment = stage.environment([_QUEUE], ROUTING__INLINE_MAX_BYTES=1024, BACKENDS__S3__CONCURRENCY=_THREADS)
    async with stage.bystander() as bystander:
        await bystander.paused([_QUEUE])
        await _stored(stage, jobs)
        with stage.service("dispatcher", environment):
            began_s = time.perf_counter()
            await bystander.resumed([_QUEUE])
            while (await bystander.ready([_QUEUE]))[0] < jobs:
                await asyncio.sleep(0.005)
            delivered_s = time.perf_counter() - began_s
            while await _left(bystander):
                await asyncio.sleep(0.005)
            gone_s = time.perf_counter() - began_s
    return jobs / delivered_s, jobs / gone_s


async def _left(bystander: Bystander) -> int:
    return int(await bystander.client.zcard(bystander.keys.queue(_QUEUE).trash))


async def _stored(stage: Stage, jobs: int) -> None:
    """Accepted by the producer, due now."""
    settings = stage.settings(ROUTING__INLINE_MAX_BYTES=1024, BACKENDS__S3__CONCURRENCY=_THREADS)
    service, body = Service(settings, "api"), os.urandom(_BYTES)
    try:
        await service.start()
        for answer in await service.producer.enqueue_many([NewJob(body, _QUEUE, delay="0s") for _ in range(jobs)]):
            if isinstance(answer, Exception):
                raise answer
    finally:
        await service.close()
