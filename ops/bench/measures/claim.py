"""Moving due inline jobs by one dispatcher process, from when their queues are resumed until all are in ready lists."""

import asyncio
import os
import time
from collections.abc import Sequence

from bench import bare
from bench.figures import Figure, Target, at_most, ratio_at_least
from bench.stage import Bystander, Stage

_LOOK_S = 0.005  #: between two looks at the ready lists: a hundredth of a run
_SLICE_JOBS = 2000  #: the dispatcher's: four batches of 500


def small(stage: Stage) -> list[Figure]:
    return _one_queue(stage, "claim-200", 200)


def kilobyte(stage: Stage) -> list[Figure]:
    return _one_queue(stage, "claim-1k", 1024)


def many_queues(stage: Stage) -> list[Figure]:
    jobs = 64 * stage.scaled(5000, 2500)
    ours, bound = stage.interleaved(lambda: asyncio.run(_moved(stage, 64, jobs, 200)), lambda: _bound(stage, jobs, 200))
    rates, spreads = [rate for rate, _ in ours], [float(spread) for _, spread in ours]
    work = "moving due inline jobs of 200 bytes, 64 queues"
    return [
        Figure("claim-64", work, "jobs/s", rates, [rate for rate, _ in bound], ratio_at_least(0.6)),
        Figure(
            "claim-64",
            "64 queues: most minus least served, until the first is empty",
            "jobs",
            [max(spreads)],
            target=at_most(2 * _SLICE_JOBS),
            note="two slices are 4,000",
        ),
    ]


def _one_queue(stage: Stage, name: str, payload_bytes: int) -> list[Figure]:
    jobs = stage.scaled(200_000, 50_000)
    target: Target = ratio_at_least(0.75)
    ours, bound = stage.interleaved(
        lambda: asyncio.run(_moved(stage, 1, jobs, payload_bytes)), lambda: _bound(stage, jobs, payload_bytes)
    )
    work = f"moving due inline jobs of {payload_bytes:,} bytes, one queue"
    return [Figure(name, work, "jobs/s", [rate for rate, _ in ours], [rate for rate, _ in bound], target)]


def _bound(stage: Stage, jobs: int, payload_bytes: int) -> tuple[float, int]:
    measured = bare.run("bare_claim", stage.bound_url, "--jobs", jobs, "--payload-bytes", payload_bytes)
    return measured["jobs_per_s"], 0


async def _moved(stage: Stage, queues: int, jobs: int, payload_bytes: int) -> tuple[float, int]:
    """Jobs a second, and how far the queues were apart at most before the first was empty."""
    names = [f"bench-{number}" for number in range(queues)]
    each = jobs // queues
    async with stage.bystander() as bystander:
        await bystander.paused(names)
        now_ms, body = int(time.time() * 1000), os.urandom(payload_bytes)
        for name in names:
            await bystander.fill(name, each, body, lambda number: now_ms - each + number)
        with stage.service("dispatcher", stage.environment(names)):
            return await _timed(bystander, names, each)


async def _timed(bystander: Bystander, names: Sequence[str], each: int) -> tuple[float, int]:
    apart = 0
    began_s = time.perf_counter()
    await bystander.resumed(names)
    already = await bystander.ready(names)  # who was resumed first was served first; that is our doing
    while True:
        served = await bystander.ready(names)
        if sum(served) == each * len(names):
            return sum(served) / (time.perf_counter() - began_s), apart
        if max(served) < each:
            since = [now - before for now, before in zip(served, already, strict=True)]
            apart = max(apart, max(since) - min(since))
        await asyncio.sleep(_LOOK_S)
