"""Where dispatchers work: whole services on a real Redis and a real S3, jobs put before them, and eyes on what they do.

async with a_yard(redis_url, s3_server) as yard, yard.dispatcher() as dispatcher:
    [job] = await yard.offloaded([b"payload"])
    await yard.delivers([b"payload"])
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from service.clock import ServerClock, SystemClock
from service.keys import Keys
from service.ledger import Ledger
from service.records import Entry, Job, Scheduled
from service.scripts import Scripts
from service.settings import load
from service.storage import Decorator
from service.transport import Transport, connect
from service.wiring import Service
from storage_backends.base import Admit, StorageBackend
from storage_backends.reference import Reference, new_uuid
from storage_backends.s3 import S3Backend
from storage_backends.s3_keys import S3Keys
from storage_backends.s3_options import S3Options
from tests.kit.s3_servers import S3Server
from tests.kit.servers import client_of
from tests.kit.services import started
from tests.kit.waiting import eventually

QUEUE = "emails"

#: Pauses as short as the settings allow, so that failures and outages take moments; time limits long enough for a
#: machine that is busy with other things.
PACE = {
    "DISPATCHER__INTERVAL": "100ms",
    "DISPATCHER__LEASE": "10s",
    "DISPATCHER__FETCH_TIMEOUT": "5s",
    "DISPATCHER__GRACE": "2s",
    "DISPATCHER__COOL_DOWN": "300ms",
    "RETRY__BACKOFF_MIN": "10ms",
    "RETRY__BACKOFF_MAX": "50ms",
    "BREAKER__OPEN": "200ms",
}

Hook = Callable[[Reference], Awaitable[None]]


async def nothing(_: Reference) -> None:
    pass


class Hanging:
    """A hook that lets nothing on until `end`."""

    def __init__(self) -> None:
        self._ended = asyncio.Event()

    async def __call__(self, _: Reference) -> None:
        await self._ended.wait()

    def end(self) -> None:
        self._ended.set()


class Hooked(Decorator):
    """The real backend, with something that may happen before each get and each deletion."""

    def __init__(self, inner: StorageBackend) -> None:
        super().__init__(inner)
        self.before_get: Hook = nothing
        self.before_delete: Hook = nothing
        self.gets: list[Reference] = []
        self.deletes: list[list[Reference]] = []
        self.at_once = 0
        self.most_at_once = 0

    async def get(self, reference: Reference, admit: Admit | None = None) -> bytes:
        self.gets.append(reference)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self.before_get(reference)
            return await super().get(reference, admit)
        finally:
            self.at_once -= 1

    async def delete(self, references: Sequence[Reference]) -> None:
        self.deletes.append(list(references))
        for reference in references:
            await self.before_delete(reference)
        await super().delete(references)


def hooked(service: Service, backend: str = "s3") -> Hooked:
    """Puts hooks next to the backend itself, below what measures, bounds and guards it. Before the service starts."""
    decorator: Any = service.offloading[backend]
    while isinstance(decorator._inner, Decorator):
        decorator = decorator._inner
    decorator._inner = Hooked(decorator._inner)
    return decorator._inner  # type: ignore[no-any-return]  # just made


class Yard:
    """Use `a_yard`. `s3_url` leads dispatchers to the store, perhaps by way of a proxy; what looks goes directly."""

    def __init__(self, redis_url: str, store: S3Server, **more: str) -> None:
        self.redis_url, self.store, self.s3_url = redis_url, store, store.url
        self._more = more
        self.bucket = store.new_bucket()
        self.keys = Keys()
        self.redis = client_of(redis_url)
        self.pool = connect(redis_url, timeout_s=10, max_connections=16)
        self.ledger = Ledger(Transport(self.pool), self.keys, Scripts(), ServerClock(SystemClock()))
        self.shelf = S3Backend("s3", S3Options(**store.options(self.bucket)))

    async def aclose(self) -> None:
        await self.shelf.aclose()
        await self.pool.disconnect()
        await self.redis.aclose()

    # -- dispatchers ---------------------------------------------------------------------------------------------------

    def service(self, role: str = "dispatcher", *, redis_url: str | None = None, **more: str) -> Service:
        """Not started. `more` are settings without their prefix."""
        options = {**self.store.options(self.bucket), "endpoint_url": self.s3_url}
        backend = {f"BACKENDS__S3__{name.upper()}": str(value) for name, value in options.items()}
        given = {**PACE, "REDIS__URL": redis_url or self.redis_url, **backend, **self._more, **more}
        return Service(load({f"COATCHECK_{name}": value for name, value in given.items()}), role)

    @asynccontextmanager
    async def dispatcher(self, service: Service | None = None, **more: str) -> AsyncIterator[Service]:
        """Started, and stopped in order at the end."""
        async with started(service or self.service(**more)) as running:
            yield running

    # -- jobs ----------------------------------------------------------------------------------------------------------

    async def now_ms(self) -> int:
        seconds, micros = await self.redis.time()
        return int(seconds * 1000 + micros // 1000)

    async def inline(
        self, payloads: Sequence[bytes], queue: str = QUEUE, *, in_ms: int = 0, apart_ms: int = 0
    ) -> list[Reference]:
        """Jobs whose payloads are in Redis, the first one due `in_ms` from now and each next `apart_ms` later."""
        due_ms = await self.now_ms() + in_ms
        entries = [
            Entry(Reference("redis", queue, due_ms + at * apart_ms, new_uuid()), "why", body)
            for at, body in enumerate(payloads)
        ]
        return await self._schedule(queue, entries)

    async def offloaded(
        self, payloads: Sequence[bytes], queue: str = QUEUE, *, in_ms: int = 0, backend: str = "s3", stored: bool = True
    ) -> list[Reference]:
        """Jobs whose payloads are in S3, or, unless `stored`, nowhere."""
        due_ms = await self.now_ms() + in_ms
        references = [Reference(backend, queue, due_ms, new_uuid()) for _ in payloads]
        if stored:
            await asyncio.gather(*map(self.shelf.put, references, payloads))
        put_at_ms = await self.now_ms()
        return await self._schedule(queue, [Entry(each, "why", put_at_ms=put_at_ms) for each in references])

    async def _schedule(self, queue: str, entries: list[Entry]) -> list[Reference]:
        for answer in await self.ledger.schedule(queue, entries):
            assert isinstance(answer, Scheduled), repr(answer)
        return [entry.reference for entry in entries]

    # -- looking -------------------------------------------------------------------------------------------------------

    def key_of(self, reference: Reference) -> str:
        """Where its object is in the bucket."""
        return S3Keys("s3", "").key_of(reference)

    async def objects(self) -> list[str]:
        """Keys of all payloads in the bucket."""
        keys = await asyncio.to_thread(self.store.keys, self.bucket)
        return [key for key in keys if not key.endswith("INSTALLATION")]

    async def job(self, reference: Reference) -> Job | None:
        return await self.ledger.lookup(reference)

    async def ready(self, queue: str = QUEUE) -> list[bytes]:
        """The ready list, oldest first."""
        return list(reversed(await self.redis.lrange(self.keys.queue(queue).ready, 0, -1)))

    async def size(self, name: str, queue: str = QUEUE) -> int:
        """Members of `delayed`, `leases`, `dead` or `trash`."""
        return int(await self.redis.zcard(getattr(self.keys.queue(queue), name)))

    async def delivers(self, payloads: Iterable[bytes], queue: str = QUEUE, within_s: float = 10) -> None:
        """Waits until the ready list holds exactly these, in any order."""
        wanted = sorted(payloads)

        async def arrived() -> bool:
            ready = sorted(await self.ready(queue))
            assert ready == wanted, f"{len(ready)} of {len(wanted)}: {ready[:3]}"
            return True

        await eventually(arrived, within_s, f"{len(wanted)} payloads arrive in {queue}")

    async def dies(self, reference: Reference, within_s: float = 10) -> Job:
        """The job, once it is dead."""

        async def dead() -> Job | None:
            job = await self.job(reference)
            assert job is not None, "the job is nowhere"
            assert job.state == "dead", repr(job)
            return job

        return await eventually(dead, within_s, "the job is dead")

    async def empty(self, queue: str = QUEUE, within_s: float = 10) -> None:
        """Waits until nothing of this queue is left but its ready list and what expires by itself; nor an object."""

        async def left() -> bool:
            assert await self.redis.zscore(self.keys.queues, queue) is None, "still in the index"
            sizes = {name: await self.size(name, queue) for name in ("delayed", "leases", "dead", "trash")}
            assert not any(sizes.values()), repr(sizes)
            objects = [key for key in await self.objects() if f"/{queue}/" in key]
            assert not objects, objects[:3]
            return True

        await eventually(left, within_s, f"nothing is left of {queue}")


@asynccontextmanager
async def a_yard(redis_url: str, store: S3Server, **more: str) -> AsyncIterator[Yard]:
    """A yard with an empty bucket. `more` are settings of all its dispatchers."""
    yard = Yard(redis_url, store, **more)
    try:
        yield yard
    finally:
        await yard.aclose()


def counted(service: Service, name: str, **labels: str) -> float:
    """The sum of this metric's series that have these labels, 0 if there is none."""
    wanted = [f'{label}="{value}"' for label, value in labels.items()]
    series = re.findall(rf"^coatcheck_{name}(?:\{{(.*)\}})? (\S+)$", service.metrics.render()[0].decode(), re.MULTILINE)
    return sum(float(value) for found, value in series if all(each in found.split(",") for each in wanted))
