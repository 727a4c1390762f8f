"""What a process costs that has nothing to do: all roles, queues full of far-off jobs, nobody scraping."""

import asyncio
import time

from redis.asyncio import Redis

from bench.figures import Figure, at_most
from bench.stage import Stage

_SETTLE_S = 3.0
_FAR_MS = 30 * 86_400_000
_AT_ONCE = 8


def hundred(stage: Stage) -> list[Figure]:
    cpu, commands, memory = asyncio.run(_idle(stage, 100))
    work = "idle with 100 queues of far-off jobs"
    return [
        Figure("idle-100", f"{work}: CPU", "% of a core", [cpu], target=at_most(2)),
        Figure("idle-100", f"{work}: commands by INFO", "a second", [commands], target=at_most(20)),
        Figure("idle-100", f"{work}: memory (PSS)", "MiB", [memory]),
    ]


def ten_thousand(stage: Stage) -> list[Figure]:
    cpu, commands, memory = asyncio.run(_idle(stage, stage.scaled(10_000, 2_000)))
    work = f"idle with {stage.scaled(10_000, 2_000):,} queues of far-off jobs"
    return [
        Figure("idle-10k", f"{work}: CPU", "% of a core", [cpu], target=at_most(5)),
        Figure("idle-10k", f"{work}: commands by INFO", "a second", [commands]),
        Figure("idle-10k", f"{work}: memory (PSS)", "MiB", [memory]),
    ]


async def _idle(stage: Stage, queues: int) -> tuple[float, float, float]:
    """CPU in percent of a core, commands a second, MiB; averaged over two minutes, housekeeping included."""
    seconds = stage.scaled(120, 15)
    stage.told(f"idle for {seconds} s")
    async with stage.bystander() as bystander:
        far_ms, names = int(time.time() * 1000) + _FAR_MS, [f"far-{number}" for number in range(queues)]
        for start in range(0, queues, _AT_ONCE):
            some = names[start : start + _AT_ONCE]
            await asyncio.gather(
                *(bystander.fill(name, 10, b"x" * 50, lambda number: far_ms + number) for name in some)
            )
        with stage.service("all", stage.environment()) as process:
            await asyncio.sleep(_SETTLE_S)
            before, cpu_s, began_s = await _commands(bystander.client), process.cpu_s(), time.perf_counter()
            await asyncio.sleep(seconds)
            took_s, used_s = time.perf_counter() - began_s, process.cpu_s() - cpu_s
            commands = await _commands(bystander.client) - before - 1  # the first INFO is counted after it was answered
            return used_s / took_s * 100, commands / took_s, process.memory_mib()


async def _commands(client: Redis) -> int:
    return int((await client.info("stats"))["total_commands_processed"])
