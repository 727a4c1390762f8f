"""Punctuality: from due until a consumer's BRPOP returns, as bounds/bare_lateness.py measures it."""

import asyncio
import random
import time
from collections.abc import Sequence

from redis.asyncio import Redis

from bench import bare
from bench.figures import Figure, Target, at_least, at_most, ratio_at_most
from bench.stage import Bystander, Stage

_RATE = 200  #: jobs a second
_QUEUE, _BACKLOG = "punctual", "backlog"


def alone(stage: Stage) -> list[Figure]:
    seconds = stage.scaled(10, 4)
    ours, bound = stage.interleaved(
        lambda: asyncio.run(_late(stage, seconds)),
        lambda: bare.run("bare_lateness", stage.bound_url, "--rate", _RATE, "--seconds", seconds),
    )

    def figure(which: str, target: Target | None) -> Figure:
        return Figure(
            "lateness",
            f"lateness at {_RATE} inline jobs/s, {which}",
            "ms",
            [late[which] for late in ours],
            [late[f"{which}_ms"] for late in bound],
            target,
        )

    earliest = Figure("lateness", "the earliest of them", "ms", [min(late["min"] for late in ours)], target=at_least(0))
    return [figure("p50", ratio_at_most(1.6)), figure("p90", None), figure("p99", ratio_at_most(2.0)), earliest]


def beside_a_backlog(stage: Stage) -> list[Figure]:
    seconds = stage.scaled(6, 4)
    backlog = stage.scaled(100_000, 50_000)
    ours = [asyncio.run(_late(stage, seconds, backlog)) for _ in range(stage.runs)]
    work = f"lateness while another queue drains {backlog:,} due jobs"
    return [
        Figure("lateness-busy", f"{work}, p50", "ms", [late["p50"] for late in ours]),
        Figure("lateness-busy", f"{work}, p99", "ms", [late["p99"] for late in ours], target=at_most(25)),
        Figure("lateness-busy", "the earliest of them", "ms", [min(late["min"] for late in ours)], target=at_least(0)),
    ]


async def _late(stage: Stage, seconds: int, backlog: int = 0) -> dict[str, float]:
    """Percentiles over all jobs; with a backlog, over those that were due while it drained."""
    async with stage.bystander() as bystander:
        if backlog:
            await bystander.paused([_BACKLOG])
            now_ms = int(time.time() * 1000)
            await bystander.fill(_BACKLOG, backlog, b"x" * 200, lambda number: now_ms - backlog + number)
        with stage.service("dispatcher", stage.environment([_QUEUE, _BACKLOG])):
            begin_s = time.time() + 1.5
            dues = sorted(int((begin_s + random.random() * seconds) * 1000) for _ in range(_RATE * seconds))
            await bystander.schedule(_QUEUE, [(due, str(due).encode()) for due in dues])
            draining = asyncio.create_task(_drained(bystander, backlog, begin_s))
            late = await asyncio.wait_for(_consumed(stage, bystander, len(dues)), seconds + 60)
            began_ms, ended_ms = await draining
    counted = [lateness for due, lateness in late if began_ms <= due <= ended_ms] if backlog else [x for _, x in late]
    return _percentiles(sorted(counted))


async def _consumed(stage: Stage, bystander: Bystander, jobs: int) -> list[tuple[int, float]]:
    """Due and lateness of each job, ms."""
    ready, late = bystander.keys.queue(_QUEUE).ready, []
    async with Redis.from_url(stage.redis.url) as consumer:
        while len(late) < jobs:
            if got := await consumer.brpop([ready], timeout=2):
                late.append((int(got[1]), time.time() * 1000 - int(got[1])))
    return late


async def _drained(bystander: Bystander, backlog: int, begin_s: float) -> tuple[float, float]:
    """When the backlog's draining began and ended, ms. It begins half a second after the first job is due."""
    if not backlog:
        return 0, 0
    await asyncio.sleep(begin_s + 0.5 - time.time())
    began_ms = time.time() * 1000
    await bystander.resumed([_BACKLOG])
    while (await bystander.ready([_BACKLOG]))[0] < backlog:
        await asyncio.sleep(0.02)
    return began_ms, time.time() * 1000


def _percentiles(late: Sequence[float]) -> dict[str, float]:
    n = len(late)
    return {f"p{q}": late[min(n - 1, n * q // 100)] for q in (50, 90, 99)} | {"min": late[0]}
