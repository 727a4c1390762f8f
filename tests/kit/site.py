"""One installation on real servers: what its processes are told, what producers hand in, what consumers get.

A payload begins with its job's number, so that consumers can tell what arrived, and how often.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from redis.asyncio import Redis

from service.intake import NewJob
from service.keys import Keys
from service.producer import Accepted
from service.settings import load
from service.wiring import Service
from storage_backends.reference import Reference
from tests.kit.s3_servers import S3Server
from tests.kit.servers import client_of
from tests.kit.tasks import ended
from tests.kit.waiting import eventually

QUEUE = "proof"
INLINE_BYTES, OFFLOADED_BYTES = 60, 240
#: Quick enough for tests; payloads over 100 bytes are offloaded, so that a proof can afford thousands.
PACE = {
    "COATCHECK_LOG__LEVEL": "info",
    "COATCHECK_ROUTING__OFFLOAD_TO": "s3",
    "COATCHECK_ROUTING__OFFLOAD_MIN_BYTES": "1",
    "COATCHECK_ROUTING__INLINE_MAX_BYTES": "100",
    "COATCHECK_ROUTING__INLINE_MAX_DELAY": "30d",
    "COATCHECK_DISPATCHER__INTERVAL": "200ms",
    "COATCHECK_DISPATCHER__LEASE": "5s",
    "COATCHECK_DISPATCHER__FETCH_TIMEOUT": "2s",
}


class Site:
    """`redis_url` and `s3_url` may lead through proxies, for every process or (`environ`) for one."""

    def __init__(self, redis_url: str, store: S3Server, bucket: str, **more: str) -> None:
        self.redis_url, self.store, self.bucket = redis_url, store, bucket
        self._more = more
        self.keys = Keys()
        self.redis: Redis = client_of(redis_url)

    def environ(self, *, redis_url: str | None = None, s3_url: str | None = None, **more: str) -> dict[str, str]:
        """For one process. `more` without the prefix COATCHECK_."""
        place = {
            "COATCHECK_REDIS__URL": redis_url or self.redis_url,
            "COATCHECK_BACKENDS__S3__BUCKET": self.bucket,
            "COATCHECK_BACKENDS__S3__ENDPOINT_URL": s3_url or self.store.url,
            "COATCHECK_BACKENDS__S3__REGION": "us-east-1",
            "COATCHECK_BACKENDS__S3__ADDRESSING": "path",
        }
        return {**PACE, **place, **{f"COATCHECK_{name}": value for name, value in {**self._more, **more}.items()}}

    @asynccontextmanager
    async def producing(self, **more: str) -> AsyncIterator[Service]:
        """A service in this process that accepts jobs and dispatches none."""
        service = Service(load(self.environ(**more)), "api")
        try:
            await service.start()
            yield service
        finally:
            await service.close()

    # -- looking -------------------------------------------------------------------------------------------------------

    async def count(self, name: str, queue: str = QUEUE) -> int:
        """Members of `delayed`, `leases`, `dead` or `trash`."""
        return int(await self.redis.zcard(getattr(self.keys.queue(queue), name)))

    async def ready(self, queue: str = QUEUE) -> int:
        return int(await self.redis.llen(self.keys.queue(queue).ready))

    async def delivered(self, queue: str = QUEUE) -> bool:
        """At one moment, nothing waits and nothing is in anybody's hands."""
        of = self.keys.queue(queue)
        async with self.redis.pipeline(transaction=True) as step:
            step.zcard(of.delayed)
            step.zcard(of.leases)
            delayed, leases = await step.execute()
        assert not delayed, f"{delayed} delayed"
        assert not leases, f"{leases} leased"
        return True

    async def nothing_left(self, within_s: float = 100, *, orphans: int = 0, hurried: bool = False) -> int:
        """Waits until no key is left but `meta` and what expires by itself, and no object but the marker.

        Up to so many `orphans` may be left, objects that no key refers to. Returns how many there are. `hurried`: what
        was put off in the trash, after a failure or a crash, is brought forward.
        """

        async def keys() -> bool:
            if hurried:
                await self._bring_trash_forward()
            named = [key.decode() for key in await self.redis.keys("*")]
            left = [key for key in named if key != self.keys.meta and ":cancelled:" not in key]
            assert not left, f"keys left behind: {sorted(left)}; {await self._sizes(left)}"
            return True

        await eventually(keys, within_s, "no key is left")
        objects = await asyncio.to_thread(self.store.keys, self.bucket)
        left = [key for key in objects if not key.endswith("/INSTALLATION")]
        assert len(left) == len(objects) - 1
        assert len(left) <= orphans, f"{len(left)} objects left behind: {left[:5]}"
        return len(left)

    async def _bring_trash_forward(self) -> None:
        now_ms = time.time_ns() // 1_000_000
        for key in await self.redis.keys("*:trash"):
            members = await self.redis.zrange(key, now_ms + 1000, "+inf", byscore=True)
            queue = self.keys.queue_of(key.decode())
            if members and queue:
                await self.redis.zadd(key, dict.fromkeys(members, 1), xx=True)
                await self.redis.zadd(self.keys.queues, {queue: 1})

    async def _sizes(self, keys: Iterable[str]) -> dict[str, Any]:
        zsets = [key for key in keys if await self.redis.type(key) == b"zset"]
        return {
            key: (await self.redis.zcard(key), await self.redis.zrange(key, 0, 1, withscores=True)) for key in zsets
        }


class Consumer:
    """Takes payloads off ready lists as they come, and counts how often each number came."""

    def __init__(self, site: Site, *queues: str) -> None:
        self._url = site.redis_url
        self._lists = [site.keys.queue(queue).ready for queue in queues or (QUEUE,)]
        self.got: Counter[int] = Counter()

    @property
    def total(self) -> int:
        return sum(self.got.values())

    async def run(self) -> None:
        async with client_of(self._url) as redis:
            while True:
                found = await redis.blmpop(1, len(self._lists), *self._lists, direction="RIGHT", count=200)
                self.got.update(map(number_of, found[1] if found else ()))

    async def has(self, count: int, within_s: float) -> None:
        """Waits until so many different numbers came."""

        def arrived() -> bool:
            assert len(self.got) >= count, f"{len(self.got)} different ones, {self.total} in all"
            return True

        await eventually(arrived, within_s, f"{count} different jobs arrive")

    def exactly(self, numbers: Iterable[int]) -> None:
        """Each of these came once, and nothing else."""
        wanted = set(numbers)
        twice = sorted(number for number, times in self.got.items() if times > 1)
        assert not twice, f"{len(twice)} jobs arrived more than once: {twice[:10]}"
        missing, strange = wanted - set(self.got), set(self.got) - wanted
        assert not missing, f"{len(missing)} jobs did not arrive: {sorted(missing)[:10]}"
        assert not strange, f"{len(strange)} jobs arrived that should not: {sorted(strange)[:10]}"


@asynccontextmanager
async def consuming(site: Site, *queues: str) -> AsyncIterator[Consumer]:
    consumer = Consumer(site, *queues)
    task = asyncio.create_task(consumer.run())
    try:
        yield consumer
        assert not task.done(), f"the consumer ended: {task.exception()!r}"
    finally:
        await ended(task)


def payload(number: int, *, offloaded: bool = False, size_bytes: int | None = None) -> bytes:
    size_bytes = size_bytes or (OFFLOADED_BYTES if offloaded else INLINE_BYTES)
    return f"{number}:".encode().ljust(size_bytes, b".")


def number_of(payload: bytes) -> int:
    return int(payload.partition(b":")[0])


async def accepted(
    service: Service, jobs: Mapping[int, bytes], delay: str = "0s", queue: str = QUEUE
) -> dict[int, Reference]:
    """number -> reference; every one of these must be accepted."""
    references: dict[int, Reference] = {}
    numbers = list(jobs)
    for at in range(0, len(numbers), 2000):
        some = numbers[at : at + 2000]
        news = [NewJob(jobs[number], queue, delay=delay) for number in some]
        references |= dict(zip(some, map(_reference, await service.producer.enqueue_many(news)), strict=True))
    return references


def mixed(numbers: Sequence[int]) -> dict[int, bytes]:
    """Half of them offloaded, in turns."""
    return {number: payload(number, offloaded=number % 2 == 1) for number in numbers}


def _reference(answer: Any) -> Reference:
    assert isinstance(answer, Accepted), repr(answer)
    return answer.reference
