"""Sources of jobs, and eyes behind their backs: the same questions for a ready list and for a ready stream."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from service.clock import ServerClock, SystemClock
from service.keys import Keys
from service.runner import Runner
from service.scripts import Scripts
from service.transport import Transport, connect
from service.worker.lists import ListSource
from service.worker.ready import ReadySource
from service.worker.source import Entry, Placed
from service.worker.streams import StreamSource
from storage_backends.reference import Reference, new_uuid
from tests.kit.servers import client_of, no_traces

QUEUE = "emails"
GROUP = "mailers"
KINDS = ("list", "stream")
_FAR_MS = 1_900_000_000_000


class Rig:
    """Sources on one queue of this kind."""

    def __init__(self, url: str, kind: str) -> None:
        self.kind = kind
        self.keys = Keys(streams={QUEUE: GROUP} if kind == "stream" else {})
        self.of = self.keys.queue(QUEUE)
        self.pool = connect(url, timeout_s=5, max_connections=8)
        self.redis = client_of(url)
        self.sources: list[ReadySource] = []
        self._runner = Runner(Transport(self.pool), self.keys, Scripts(), lambda *_: None)

    async def source(self, *, patience_ms: int = 60_000, block_s: float = 0.2) -> ReadySource:
        """Begun."""
        made = (StreamSource if self.kind == "stream" else ListSource)(
            QUEUE,
            runner=self._runner,
            transport=Transport(self.pool),
            pool=self.pool,
            keys=self.keys,
            clock=ServerClock(SystemClock()),
            patience_ms=patience_ms,
            block_s=block_s,
            stale_after_ms=60_000,
        )
        await made.begin()
        self.sources.append(made)
        return made

    async def push(self, *payloads: bytes) -> None:
        """As a dispatcher does."""
        if self.kind == "list":
            await self.redis.lpush(self.of.ready, *payloads)
            return
        for payload in payloads:
            fields = {"payload": payload, "reference": "redis::emails::1::…", "due": _FAR_MS}
            await self.redis.xadd(self.of.ready, fields)  # type: ignore[arg-type]  # redis-py's invariant dict

    async def put_in_hands(self, worker: str, *payloads: bytes) -> None:
        """As a blocking pop of this worker does, whatever became of it."""
        if self.kind == "list":
            await self.redis.rpush(self.of.inflight(worker), *payloads)
            return
        await self.push(*payloads)
        await self.redis.xreadgroup(GROUP, worker, {self.of.ready: ">"}, count=len(payloads))

    async def ready(self) -> list[bytes]:
        """What is taken next, the first first."""
        if self.kind == "list":
            return list(reversed(await self.redis.lrange(self.of.ready, 0, -1)))
        groups = await self.redis.xinfo_groups(self.of.ready) if await self.redis.exists(self.of.ready) else []
        last = next((group["last-delivered-id"] for group in groups if group["name"] == GROUP.encode()), b"0-0")
        new = await self.redis.xrange(self.of.ready, min=b"(" + last)
        return [*await self._pending("~returned"), *(fields[b"payload"] for _, fields in new)]

    async def held(self, source: ReadySource) -> list[bytes]:
        if self.kind == "list":
            return list(await self.redis.lrange(self.of.inflight(source.worker), 0, -1))
        return await self._pending(source.worker)

    async def overdue(self, source: ReadySource) -> None:
        """Its last heartbeat was long ago."""
        await self.redis.zadd(self.of.workers, {source.worker: 1})

    async def nothing_left(self, *besides: str) -> None:
        """No key; of a stream, an empty one whose group knows no worker any more."""
        if self.kind == "list":
            await no_traces(self.redis, besides=besides)
            return
        await no_traces(self.redis, besides=(self.of.ready, *besides))
        names = {each["name"] for each in await self.redis.xinfo_consumers(self.of.ready, GROUP)}
        assert names <= {b"~returned", b"~suspects"}
        if self.of.ready not in besides:
            assert await self.redis.xlen(self.of.ready) == 0

    async def _pending(self, name: str) -> list[bytes]:
        pending = await self.redis.xpending_range(self.of.ready, GROUP, "-", "+", 10_000, consumername=name)
        found = [await self.redis.xrange(self.of.ready, each["message_id"], each["message_id"]) for each in pending]
        return [fields[b"payload"] for [(_, fields)] in found]


@asynccontextmanager
async def rigged(url: str, kind: str) -> AsyncIterator[Rig]:
    rig = Rig(url, kind)
    try:
        yield rig
    finally:
        for source in rig.sources:
            await source.hang_up()
        await rig.redis.aclose()
        await rig.pool.disconnect()


async def taken(source: ReadySource, count: int, number: int = 1) -> list[Entry]:
    return list((await source.turn(number, [], count, suspect=False)).entries)


def payloads(entries: Any) -> list[bytes]:
    return [entry.payload for entry in entries]


def placed(body: bytes | None, backend: str = "redis", put_at_ms: int | None = None) -> Placed:
    return Placed(Reference(backend, QUEUE, _FAR_MS, new_uuid()), body, put_at_ms)
