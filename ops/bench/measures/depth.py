"""How much one claim costs when the delayed set is deep: a million jobs beside ten thousand.

Beside ours, the same of the bare script. What the two have in common is not the set's order (a search takes seven more
steps) but memory: of ten thousand jobs all is in the processor's cache, of a million nothing is.
"""

import ast
import asyncio
import time
from collections.abc import Awaitable, Callable

from bench import bare
from bench.figures import Figure, ratio_at_most
from bench.stage import Bystander, Stage
from service.records import ClaimRequest, Share

_CLAIMS = 15  #: of 500 jobs, alternating between the two sets; the smaller one has enough for twenty
_BATCH = 500
_SHALLOW = 10_000

Claim = Callable[[Bystander, str], Awaitable[int]]


def measure(stage: Stage) -> list[Figure]:
    deep = stage.scaled(1_000_000, 200_000)

    def figure(work: str, backend: str, claim: Claim, limit: float | None) -> Figure:
        ours, bound = asyncio.run(_claims(stage, deep, backend, claim))
        target = ratio_at_most(limit) if limit else None
        return Figure("depth", f"{work} among {deep:,}, beside one among {_SHALLOW:,}", "ms", ours, bound, target)

    return [
        figure("one claim of 500 offloaded jobs", "s3", _claim, 1.5),
        figure("one claim of 500 inline jobs", "redis", _claim, 1.5),
        figure("one call of the bare script for 500 inline jobs", "redis", _bare_claim, None),
    ]


async def _claims(stage: Stage, deep: int, backend: str, claim: Claim) -> tuple[list[float], list[float]]:
    async def took_ms(queue: str) -> float:
        began_s = time.perf_counter()
        moved = await claim(bystander, queue)
        ms = (time.perf_counter() - began_s) * 1000
        if moved != _BATCH:
            raise RuntimeError(f"{moved} jobs moved instead of {_BATCH}")
        return ms

    async with stage.bystander() as bystander:
        now_ms = int(time.time() * 1000)
        for queue, jobs in (("shallow", _SHALLOW), ("deep", deep)):
            await bystander.fill(queue, jobs, b"x" * 50, lambda number: now_ms - 5_000_000 + number, backend)
        pairs = [(await took_ms("deep"), await took_ms("shallow")) for _ in range(_CLAIMS)]
    return [deep_ms for deep_ms, _ in pairs], [shallow_ms for _, shallow_ms in pairs]


async def _claim(bystander: Bystander, queue: str) -> int:
    shares = {"s3": Share(_BATCH), "*": Share(0)}
    return (await bystander.ledger.claim(queue, ClaimRequest(_BATCH, 10**9, None, 60_000, shares))).took


async def _bare_claim(bystander: Bystander, queue: str) -> int:
    of = bystander.keys.queue(queue)
    moved: int = await bystander.client.eval(_bare_script(), 3, of.delayed, of.bodies, of.ready, 10**15, _BATCH)
    return moved


def _bare_script() -> str:
    """The script of bounds/bare_claim.py, which runs as a program and cannot be imported."""
    for statement in ast.parse((bare.FOLDER / "bare_claim.py").read_text()).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "MOVE":
            return str(ast.literal_eval(statement.value))
    raise RuntimeError("bounds/bare_claim.py has no MOVE")
