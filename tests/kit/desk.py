"""The desk where jobs are accepted: a producer as in the service, on a real Redis and S3, with a hook at each put.

async with a_desk(url, s3_server) as desk:
    accepted = await desk.enqueue(LARGE, delay="1h")
    assert await desk.where(accepted.reference) == {"delayed"}
"""

import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Any

from service.clock import Clock, ServerClock, SystemClock
from service.guarded import Guarded
from service.intake import Intake
from service.keys import Keys
from service.ledger import Ledger
from service.metrics import Metrics
from service.producer import Accepted, Producer
from service.records import ClaimRequest, Share
from service.router import Resolved, StorageRouter
from service.scripts import Scripts
from service.storage import Decorator, Metered
from service.transport import Transport, connect
from service.uploads import Uploads
from storage_backends.base import StorageBackend
from storage_backends.reference import Reference
from storage_backends.s3 import S3Backend
from storage_backends.s3_options import S3Options
from tests.kit.s3_servers import S3Server
from tests.kit.servers import client_of

QUEUE = "emails"
SMALL, LARGE = b"hello", b"x" * 20_000
MAX_PAYLOAD_BYTES = 100_000
RULES = Resolved(offload_to="s3")

Hook = Callable[[Reference], Awaitable[None]]


async def nothing(_: Reference) -> None:
    pass


class Hooked(Decorator):
    """The real backend, with something that happens before and after each put; and how many are under way."""

    def __init__(self, inner: StorageBackend) -> None:
        super().__init__(inner)
        self.before: Hook = nothing
        self.after: Hook = nothing
        self.puts: list[Reference] = []
        self.at_once = 0
        self.most_at_once = 0

    async def put(self, reference: Reference, payload: bytes) -> None:
        self.puts.append(reference)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self.before(reference)
            await self._inner.put(reference, payload)
            await self.after(reference)
        finally:
            self.at_once -= 1


class Desk:
    """One producer, and eyes to look behind its back. Use `a_desk`."""

    def __init__(
        self,
        url: str,
        direct_url: str,
        backend: StorageBackend,
        rules: Resolved,
        clock: Clock,
        **ledger: Any,
    ) -> None:
        self.keys = Keys()
        self.pool = connect(url, timeout_s=10, max_connections=64)
        self.transport = Transport(self.pool)
        self.ledger = Ledger(self.transport, self.keys, Scripts(), ServerClock(clock), **ledger)
        self.metrics = Metrics("0", backends=("redis", "s3"))
        self.memory_ratio = 0.0
        self.store = Hooked(backend)
        self.guarded = Guarded(Metered(self.store, self.metrics, clock), clock)
        self.producer = Producer(
            self.ledger,
            Intake(self.keys, lambda tenant: tenant in ("acme", "globex"), MAX_PAYLOAD_BYTES),
            StorageRouter(rules),
            Uploads(self.ledger, {"s3": self.guarded}, self.metrics),
            metrics=self.metrics,
            clock=clock,
            memory_ratio=lambda: self.memory_ratio,
        )
        self.redis = client_of(direct_url)

    async def aclose(self) -> None:
        await self.producer.aclose()
        await self.guarded.aclose()
        await self.pool.disconnect()
        await self.redis.aclose()

    async def enqueue(self, payload: bytes = SMALL, queue: str = QUEUE, **options: Any) -> Accepted:
        if not {"delay", "due"} & options.keys():
            options["delay"] = "1h"
        return await self.producer.enqueue(payload, queue=queue, **options)

    async def deliver_inline(self, queue: str = QUEUE) -> int:
        """One claim; returns how many jobs it moved to the ready list."""
        request = ClaimRequest(500, 10_000, None, 60_000, {"*": Share(0)})
        return (await self.ledger.claim(queue, request)).moved

    async def where(self, reference: Reference) -> set[str]:
        """The sets that hold this reference."""
        of = self.keys.queue(reference.queue)
        sets = {"delayed": of.delayed, "leases": of.leases, "dead": of.dead, "trash": of.trash}
        return {name for name, key in sets.items() if await self.redis.zscore(key, str(reference)) is not None}

    async def delayed(self, queue: str = QUEUE) -> list[Reference]:
        return [Reference.parse(it.decode()) for it in await self.redis.zrange(self.keys.queue(queue).delayed, 0, -1)]

    async def trash(self, queue: str = QUEUE) -> dict[Reference, int]:
        """What is to be deleted, and in how many ms from now."""
        members = await self.redis.zrange(self.keys.queue(queue).trash, 0, -1, withscores=True)
        seconds, micros = await self.redis.time()
        now_ms = seconds * 1000 + micros // 1000
        return {Reference.parse(member.decode()): int(score) - now_ms for member, score in members}

    async def stored(self, reference: Reference) -> bytes:
        return await self.store.get(reference)

    def counted(self, name: str, **labels: str) -> float:
        """The sum of the samples with these labels, as a scrape sees them."""
        lines = [line for line in self.metrics.render()[0].decode().splitlines() if not line.startswith("#")]
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        found = [
            line for line in lines if re.match(rf"coatcheck_{name}[{{ ]", line) and all(it in line for it in wanted)
        ]
        return sum(float(line.rsplit(" ", 1)[1]) for line in found)


@asynccontextmanager
async def a_desk(
    url: str,
    server: S3Server,
    *,
    through: str | None = None,
    rules: Resolved = RULES,
    clock: Clock | None = None,
    concurrency: int = 16,
    **ledger: Any,
) -> AsyncIterator[Desk]:
    """A desk with an empty place in S3; Redis by way of `through`, if that is given."""
    options = server.options(_bucket(server), prefix=uuid.uuid4().hex, concurrency=concurrency)
    desk = Desk(through or url, url, S3Backend("s3", S3Options(**options)), rules, clock or SystemClock(), **ledger)
    try:
        yield desk
    finally:
        await desk.aclose()


@lru_cache
def _bucket(server: S3Server) -> str:
    """One for all: making one costs more than most tests."""
    return server.new_bucket()
