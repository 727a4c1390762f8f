"""How much one claim costs when the delayed set is deep: a million jobs beside ten thousand."""

import asyncio
import time

from bench.figures import Figure, ratio_at_most
from bench.stage import Bystander, Stage
from service.records import ClaimRequest, Share

_CLAIMS = 15  #: of 500 jobs, alternating between the two sets; the smaller one has enough for twenty


def measure(stage: Stage) -> list[Figure]:
    deep = stage.scaled(1_000_000, 200_000)
    ours, bound = asyncio.run(_claims(stage, deep))
    work = f"one claim of 500 jobs among {deep:,}, beside one among 10,000"
    return [Figure("depth", work, "ms", ours, bound, ratio_at_most(1.5))]


async def _claims(stage: Stage, deep: int) -> tuple[list[float], list[float]]:
    async with stage.bystander() as bystander:
        now_ms = int(time.time() * 1000)
        for queue, jobs in (("shallow", 10_000), ("deep", deep)):
            await bystander.fill(queue, jobs, b"x" * 50, lambda number: now_ms - 5_000_000 + number)
        pairs = [(await _claim(bystander, "deep"), await _claim(bystander, "shallow")) for _ in range(_CLAIMS)]
    return [deep_ms for deep_ms, _ in pairs], [shallow_ms for _, shallow_ms in pairs]


async def _claim(bystander: Bystander, queue: str) -> float:
    request = ClaimRequest(500, 10**9, None, 60_000, {"*": Share(0)})
    began_s = time.perf_counter()
    claimed = await bystander.ledger.claim(queue, request)
    took_ms = (time.perf_counter() - began_s) * 1000
    if claimed.moved != request.batch:
        raise RuntimeError(f"{claimed.moved} jobs moved instead of {request.batch}")
    return took_ms
