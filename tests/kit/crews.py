"""Worker processes by the handful, and a ledger of the effects that their handlers had, in a Redis of its own.

async with a_crew(server, effects, tmp_path, once=True) as crew:
    await crew.load(20_000)
    crew.workers[0].kill()
"""

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

from service.embedded import RedisServer
from service.keys import Keys
from tests.kit.processes import Process
from tests.kit.servers import client_of
from tests.kit.waiting import eventually
from tests.kit.workers import GROUP, in_hands, put_ready, queues_environ, still_ready

QUEUES = ("critical", "default")
_APP = """
import asyncio
import os
import redis.asyncio
from service.worker import Context, Worker

app = Worker()
ledger = redis.asyncio.Redis.from_url(os.environ["EFFECTS"])

@app.task("effect")
async def effect(payload, context: Context):
    await asyncio.sleep(payload["s"])
    await ledger.hincrby("effects", context.id, 1)

@app.task("effect once", once="1h")
async def effect_once(payload, context: Context):
    await asyncio.sleep(payload["s"])
    await ledger.hincrby("effects", context.id, 1)
"""
#: Others are taken for dead soon, but not because the machine is busy.
PACE = {"COATCHECK_WORKER__HEARTBEAT": "500ms", "COATCHECK_WORKER__PATIENCE": "3s"}


class Crew:
    """Use `a_crew`."""

    def __init__(
        self,
        server: RedisServer,
        effects: RedisServer,
        folder: Path,
        *,
        once: bool,
        size: int,
        streams: Collection[str],
        **environ: str,
    ) -> None:
        (folder / "proof_app.py").write_text(_APP)
        self._folder = folder
        self._environ = {
            "COATCHECK_REDIS__URL": server.url,
            "EFFECTS": effects.url,
            **queues_environ(streams),
            **environ,
        }
        self._once = once
        self._running = ExitStack()
        self._url = server.url
        self.keys = Keys(streams=dict.fromkeys(streams, GROUP))
        self.redis = client_of(server.url)
        self.effects = client_of(effects.url)
        self.workers = [self.another() for _ in range(size)]
        self.count = 0  #: of jobs

    def another(self) -> Process:
        options = [option for queue in QUEUES for option in ("--queue", queue)]
        process = Process(self._environ, "worker", "proof_app:app", *options, cwd=self._folder)
        self._running.callback(process.child.close)
        return process

    async def aclose(self) -> None:
        self._running.close()
        await self.redis.aclose()
        await self.effects.aclose()

    async def load(self, count: int, *, takes_s: float = 0) -> None:
        """So many jobs that take so long, half in each queue, by plain Redis commands."""
        self.count = count
        type_ = "effect once" if self._once else "effect"
        for at in range(0, count, 1_000):
            for n, queue in enumerate(QUEUES):
                jobs = [self._job(type_, queue, number, takes_s) for number in range(at, at + 1_000) if number % 2 == n]
                await put_ready(self.redis, self.keys.queue(queue), *jobs)

    async def one_more(self, queue: str) -> None:
        await put_ready(self.redis, self.keys.queue(queue), self._job("effect", queue, self.count, 0))
        self.count += 1

    async def done(self, count: int, within_s: float = 120) -> None:
        """Waits until so many different jobs have had their effect."""

        async def enough() -> bool:
            found = await self.effects.hlen("effects")
            assert found >= count, f"{found} effects"
            return True

        await eventually(enough, within_s, f"{count} jobs have had their effect")

    async def held_by(self, process: Process) -> set[str]:
        """Ids of the jobs in this process's hands, once they do not change any more: it is dead, or stands still."""
        before, held = None, await self.now_held_by(process)
        while held != before:
            await asyncio.sleep(0.05)
            before, held = held, await self.now_held_by(process)
        return held

    async def settled(self, within_s: float = 60) -> None:
        """Waits until nothing is ready, in anybody's hands, suspected or delayed; and fails if a job is dead."""

        async def nothing() -> bool:
            for queue in QUEUES:
                of = self.keys.queue(queue)
                assert not await still_ready(self.redis, of), "ready"
                assert not await self.redis.llen(of.suspects), "suspects"
                assert not await in_hands(self.redis, of), "in flight"
                assert not await self.redis.zcard(of.delayed), "delayed"
            return True

        await eventually(nothing, within_s, "nothing is left to do")
        for queue in QUEUES:
            assert not await self.redis.zcard(self.keys.queue(queue).dead), "dead jobs"

    async def repeated(self) -> set[str]:
        """Ids of jobs that had their effect more than once. Fails if one has had none."""
        seen = {job.decode(): int(times) for job, times in (await self.effects.hgetall("effects")).items()}
        missing = {f"{number}" for number in range(self.count)} - set(seen)
        assert not missing, f"{len(missing)} jobs were lost: {sorted(missing)[:10]}"
        assert len(seen) == self.count
        return {job for job, times in seen.items() if times > 1}

    async def now_held_by(self, process: Process) -> set[str]:
        held: set[str] = set()
        for queue in QUEUES:
            for worker, payloads in (await in_hands(self.redis, self.keys.queue(queue))).items():
                if f"-{process.child.pid}-" in worker:
                    held |= {json.loads(payload)["id"] for payload in payloads}
        return held

    @staticmethod
    def _job(type_: str, queue: str, number: int, takes_s: float) -> bytes:
        task = {"type": type_, "payload": {"s": takes_s}}
        return json.dumps({"id": f"{number}", "task": task, "queue": queue, "max_retries": 3, "attempt": 0}).encode()


@asynccontextmanager
async def a_crew(
    server: RedisServer,
    effects: RedisServer,
    folder: Path,
    *,
    once: bool,
    size: int = 4,
    pace: Mapping[str, str] = PACE,
    worker_url: str | None = None,
    streams: Collection[str] = (),
) -> AsyncIterator[Crew]:
    """`worker_url` may lead the workers through a proxy. `streams`: queues whose ready keys are streams."""
    environ = {"COATCHECK_REDIS__URL": worker_url or server.url, "COATCHECK_LOG__LEVEL": "warning", **pace}
    crew = Crew(server, effects, folder, once=once, size=size, streams=streams, **environ)
    try:
        for worker in crew.workers:
            await worker.is_ready()
        yield crew
    finally:
        await crew.aclose()
