"""`maxmemory` reached while everything runs: what is due flows, what is new is refused, nothing is lost."""

from collections.abc import Callable
from contextlib import suppress

import httpx
import pytest
from redis.asyncio import Redis
from redis.exceptions import OutOfMemoryError

from service.embedded import RedisServer
from tests.kit.processes import Process, running
from tests.kit.site import Site, accepted, consuming, payload
from tests.kit.waiting import eventually

MAXMEMORY_BYTES = 24 * 2**20
INLINE, OFFLOADED = "inline", "offloaded"  #: queues
OVERDRAFT_JOBS = 100


@pytest.fixture
def server(own_redis: Callable[..., RedisServer]) -> RedisServer:
    return own_redis(maxmemory=str(MAXMEMORY_BYTES))


async def fill(redis: Redis, key: str = "somebody-elses") -> None:
    """Until Redis takes nothing more, not even a little."""
    for size in (80_000, 40):
        with suppress(OutOfMemoryError):
            while True:
                await redis.rpush(key, b"x" * size)


async def refusal(process: Process) -> httpx.Response:
    """The answer to one small job."""
    async with httpx.AsyncClient(base_url=process.url, timeout=10) as http:
        return await http.post(f"/v1/queues/{INLINE}/jobs", params={"delay": "1h"}, content=b"-5:one more")


def is_redis_full(response: httpx.Response) -> bool:
    assert response.status_code == 503, response.text
    assert int(response.headers["Retry-After"]) >= 1
    return bool(response.json()["type"] == "urn:coatcheck:redis-full")


@pytest.mark.timeout(120)
async def test_a_full_redis_still_hands_over_what_is_due_and_loses_nothing(site: Site) -> None:
    """A queue that stops when memory is short keeps its memory for ever: only what is due can make room."""
    inline, offloaded = range(600), range(1000, 1400)
    async with site.producing() as service:
        for queue in (INLINE, OFFLOADED):
            await service.ledger.pause(queue)
        jobs = await accepted(service, {number: payload(number) for number in inline}, queue=INLINE)
        jobs |= await accepted(
            service, {number: payload(number, offloaded=True) for number in offloaded}, queue=OFFLOADED
        )
        with running(site.environ()) as everything:
            await everything.is_ready()
            await fill(site.redis)
            assert is_redis_full(await refusal(everything))
            await service.ledger.resume(INLINE)
            await service.ledger.resume(OFFLOADED)

            await eventually(lambda: _ready(site, INLINE, len(inline)), 20, "inline jobs flow")
            await eventually(lambda: _ready(site, OFFLOADED, OVERDRAFT_JOBS), 20, "the overdraft is used")
            assert is_redis_full(await refusal(everything))
            await fill(site.redis)
            rounds = await everything.metric("loop_rounds_total", loop="dispatch")
            await eventually(lambda: _rounds(everything, rounds + 20), 60, "twenty rounds went by")
            assert await site.ready(OFFLOADED) == OVERDRAFT_JOBS, "more than the overdraft"
            assert await everything.metric("jobs_total", outcome="retried") == 0

            async with consuming(site, INLINE) as consumer:
                await consumer.has(len(inline), within_s=20)
                consumer.exactly(inline)
            await fill(site.redis)
            async with consuming(site, OFFLOADED) as consumer:
                await consumer.has(len(offloaded), within_s=60)
                assert await site.redis.delete("somebody-elses")
                await eventually(lambda: _accepts(everything), 20, "jobs are accepted again")
                consumer.exactly(offloaded)
            for reference in jobs.values():
                assert await service.ledger.lookup(reference) is None
            assert await site.count("dead", OFFLOADED) == await site.count("dead", INLINE) == 0


async def _ready(site: Site, queue: str, count: int) -> bool:
    found = await site.ready(queue)
    assert found == count, f"{found} entries"
    return True


async def _rounds(process: Process, count: float) -> bool:
    return await process.metric("loop_rounds_total", loop="dispatch") >= count


async def _accepts(process: Process) -> bool:
    return (await refusal(process)).status_code == 201
