"""Where workers work: jobs put before them by plain Redis commands, and eyes on what they do with them.

async with a_workshop(redis_url) as shop:
    worker = Worker()
    ...
    async with shop.at_work(worker, "emails"):
        await shop.push("emails", envelope("send_email", {"to": "me"}))
"""

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from service.keys import Keys, QueueKeys
from service.settings import Settings, load
from service.wiring import Service
from service.worker import Worker
from service.worker.opening import shift_of
from service.worker.shift import Shift
from storage_backends.reference import Reference
from tests.kit.servers import client_of, no_traces
from tests.kit.services import started
from tests.kit.waiting import eventually

QUEUE = "emails"
QUEUES = (QUEUE, "critical", "default", "low", "a", "b", "legacy")
GROUP = "mailers"
both_kinds = pytest.mark.parametrize("shop", ["list", "stream"], indirect=True)  #: of ready queues
#: Pauses short, and time limits long enough for a machine that is busy with other things.
PACE = {
    "WORKER__BACKOFF_MIN": "10ms",
    "WORKER__BACKOFF_MAX": "20ms",
    "WORKER__GRACE": "5s",
    "DISPATCHER__INTERVAL": "50ms",
}
#: For those who wait until a worker is taken for dead.
QUICK = {"WORKER__HEARTBEAT": "200ms", "WORKER__PATIENCE": "1s"}


def envelope(type_: str, payload: Any = None, **fields: Any) -> bytes:
    """One made by somebody else, who knows the format alone."""
    told = {"id": str(uuid4()), "task": {"type": type_, "payload": payload}, "queue": QUEUE, "max_retries": 3}
    return json.dumps(told | {"attempt": 0} | fields).encode()


def queues_environ(streams: Collection[str]) -> dict[str, str]:
    """The settings by which these are streams."""
    told = {queue: {"ready_kind": "stream", "ready_group": GROUP} for queue in streams}
    return {"COATCHECK_QUEUES": json.dumps(told)} if told else {}


async def put_ready(redis: Redis, of: QueueKeys, *payloads: bytes) -> None:
    """By plain Redis commands."""
    if of.group is None:
        await redis.lpush(of.ready, *payloads)
        return
    async with redis.pipeline(transaction=False) as adding:
        for payload in payloads:
            adding.xadd(of.ready, {"payload": payload})
        await adding.execute()


async def still_ready(redis: Redis, of: QueueKeys) -> int:
    """Entries of the ready queue, suspects included; of a stream, what somebody has in hand, too."""
    if of.group is not None:
        return int(await redis.xlen(of.ready))
    return int(await redis.llen(of.ready)) + int(await redis.llen(of.suspects))


async def in_hands(redis: Redis, of: QueueKeys) -> dict[str, list[bytes]]:
    """Worker -> payloads, of all that have something in hand."""
    if of.group is None:
        prefix = of.inflight("")
        keys = [key.decode() for key in await redis.keys(f"{prefix.replace('{', '[{]')}*")]
        return {key.removeprefix(prefix): await redis.lrange(key, 0, -1) for key in keys}
    held: dict[str, list[bytes]] = {}
    for entry in (
        await redis.xpending_range(of.ready, of.group, "-", "+", 10_000) if await redis.exists(of.ready) else []
    ):
        found = await redis.xrange(of.ready, entry["message_id"], entry["message_id"])
        held.setdefault(entry["consumer"].decode(), []).extend(fields[b"payload"] for _, fields in found)
    return held


class AtWork:
    """A shift, and the service under it."""

    def __init__(self, service: Service, shift: Shift) -> None:
        self.service = service
        self.shift = shift


class Workshop:
    """Use `a_workshop`."""

    def __init__(self, redis_url: str, environ: Mapping[str, str], streams: Collection[str] = ()) -> None:
        self.redis_url = redis_url
        self.environ = {**environ, **queues_environ(streams)}
        self.keys = Keys(streams=dict.fromkeys(streams, GROUP))
        self.redis = client_of(redis_url)

    def settings(self, redis_url: str | None = None, **more: str) -> Settings:
        given = {**PACE, "REDIS__URL": redis_url or self.redis_url, **more}
        return load({**self.environ, **{f"COATCHECK_{name}": value for name, value in given.items()}})

    @asynccontextmanager
    async def at_work(
        self,
        worker: Worker,
        *queues: str,
        weights: Mapping[str, float] | None = None,
        concurrency: int = 10,
        strict: bool = False,
        redis_url: str | None = None,
        **more: str,
    ) -> AsyncIterator[AtWork]:
        """A worker in this process; stopped in order at the end. `more` are settings without their prefix."""
        chosen = weights or dict.fromkeys(queues or (QUEUE,), 1.0)
        service = Service(self.settings(redis_url, **more), "worker")
        try:
            await service.start()
            shift = shift_of(service, worker, chosen, concurrency=concurrency, strict=strict)
            await shift.start()
            try:
                yield AtWork(service, shift)
            finally:
                await shift.stop()
        finally:
            await service.close()

    @asynccontextmanager
    async def dispatching(self, **more: str) -> AsyncIterator[Service]:
        """What moves delayed jobs to ready queues when they are due, and accepts new ones."""
        async with started(Service(self.settings(**more), "all")) as service:
            yield service

    async def push(self, queue: str, *payloads: bytes) -> None:
        await put_ready(self.redis, self.keys.queue(queue), *payloads)

    async def inflight(self, queue: str = QUEUE) -> dict[str, list[bytes]]:
        """Worker -> what is in its hands, of all that have something."""
        return await in_hands(self.redis, self.keys.queue(queue))

    async def idle(self, queue: str = QUEUE, within_s: float = 10) -> None:
        """Waits until nothing is ready and nothing in anybody's hands."""

        async def nothing() -> bool:
            left = await still_ready(self.redis, self.keys.queue(queue))
            assert not left, f"{left} ready"
            assert not await self.inflight(queue), "in flight"
            return True

        await eventually(nothing, within_s, f"nothing is left to do in {queue}")

    async def nothing_left(self, *besides: str) -> None:
        """But for empty streams: their groups know where they are."""
        streams = [self.keys.queue(queue).ready for queue in QUEUES if self.keys.queue(queue).group is not None]
        for ready in streams:
            assert await self.redis.xlen(ready) == 0
        await no_traces(self.redis, besides=(self.keys.meta, *streams, *besides))

    async def dead(self, queue: str = QUEUE, count: int = 1, within_s: float = 10) -> list[dict[str, Any]]:
        """The records of the dead jobs, once there are so many, with their payload in `body` if that is in Redis."""
        of = self.keys.queue(queue)

        async def found() -> list[dict[str, Any]]:
            members = [Reference.parse(each.decode()) for each in await self.redis.zrange(of.dead, 0, -1)]
            assert len(members) == count, f"{len(members)} dead"
            records = [json.loads(await self.redis.hget(of.trouble, member.uuid)) for member in members]
            bodies = [await self.redis.hget(of.bodies, member.uuid) for member in members]
            return [
                {**record, "reference": member, "body": body}
                for record, member, body in zip(records, members, bodies, strict=True)
            ]

        return await eventually(found, within_s, f"{count} jobs are dead")


class Log:
    """What handlers did, in order."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def add(self, what: Any) -> None:
        self.seen.append(what)

    async def has(self, count: int, within_s: float = 10) -> list[Any]:
        def enough() -> bool:
            assert len(self.seen) >= count, f"{len(self.seen)} seen"
            return True

        await eventually(enough, within_s, f"{count} jobs were handled")
        return self.seen


class Gate:
    """Handlers wait here until it is opened."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self.waiting = 0

    async def passed(self) -> None:
        self.waiting += 1
        await self._open.wait()
        self.waiting -= 1

    def open(self) -> None:
        self._open.set()


@asynccontextmanager
async def a_workshop(redis_url: str, *, streams: Collection[str] = (), **environ: str) -> AsyncIterator[Workshop]:
    """`streams`: queues whose ready keys are streams."""
    shop = Workshop(redis_url, environ, streams)
    try:
        yield shop
    finally:
        await shop.redis.aclose()
