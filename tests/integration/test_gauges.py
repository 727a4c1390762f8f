"""What a scrape says about Redis: bounded, the same for all, and never the reason why a scrape fails."""

import json
import time
from collections.abc import Sequence
from typing import Any

import pytest

from service.transport import Encodable, Transport
from tests.kit.proxy import Proxy
from tests.kit.waiting import eventually
from tests.kit.yards import QUEUE, Yard, a_yard, counted


@pytest.fixture
async def yard(redis_url, s3_server):
    async with a_yard(redis_url, s3_server) as yard:
        yield yard


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    monkeypatch.setattr("service.gauges.MAX_AGE_S", 0.0)


async def calls(yard: Yard) -> int:
    stats = await yard.redis.info("commandstats")
    return sum(each["calls"] for each in stats.values())


async def test_every_state_is_counted(yard: Yard):
    await yard.inline([b"x"] * 3, in_ms=60_000)
    await yard.inline([b"x"] * 2, in_ms=-5_000)
    keys = yard.keys.queue(QUEUE)
    await yard.redis.zadd(keys.leases, {"s3::emails::1::lease": 9e12})
    await yard.redis.zadd(keys.dead, {f"dead {n}": n for n in range(4)})
    await yard.redis.zadd(keys.trash, {f"trash {n}": n for n in range(5)})
    await yard.redis.lpush(keys.ready, *[b"x"] * 6)
    service = yard.service("api")
    async with yard.dispatcher(service):
        await service.gauges.refresh()
        states = ("future", "overdue", "leased", "ready", "dead", "trash")
        found = {state: counted(service, "backlog_jobs", queue=QUEUE, state=state) for state in states}
        assert found == {"future": 3, "overdue": 2, "leased": 1, "ready": 6, "dead": 4, "trash": 5}
        assert 5 <= counted(service, "oldest_overdue_seconds", queue=QUEUE) < 10
        assert counted(service, "redis_up") == 1


async def test_ten_thousand_queues_cost_as_much_as_the_limit_allows(yard: Yard):
    """Neither series nor commands grow with what producers choose to call their queues."""
    await yard.redis.zadd(yard.keys.queues, {f"q{n:05}": n for n in range(10_000)})
    service = yard.service("api", LABEL_LIMIT="20", QUEUES='{"mine": {"max_ready": 5}}')
    async with yard.dispatcher(service):
        before = await calls(yard)
        await service.gauges.refresh()
        assert await calls(yard) - before < 20 * 9 + 30
        text = service.metrics.render()[0].decode()
        assert text.count("coatcheck_oldest_overdue_seconds{") == 20
        assert 'queue="mine"' in text
        assert counted(service, "queues_unlisted") == 10_000 - 19


async def test_configured_queues_are_within_the_limit_too(yard: Yard):
    await yard.redis.zadd(yard.keys.queues, {f"q{n:02}": n for n in range(30)})
    service = yard.service("api", LABEL_LIMIT="5", QUEUES=json.dumps({f"q{n:02}": {"max_ready": 5} for n in range(20)}))
    async with yard.dispatcher(service):
        await service.gauges.refresh()
        text = service.metrics.render()[0].decode()
        assert text.count("coatcheck_oldest_overdue_seconds{") == 5
        assert counted(service, "queues_unlisted") == 25


async def test_a_look_at_many_queues_is_sent_in_pieces(yard: Yard, monkeypatch):
    """One write of thousands of commands would keep Redis from moving jobs for as long as it takes them all."""
    sent, really = [], Transport.send

    async def send(self: Transport, commands: Sequence[tuple[Encodable, ...]], **options: bool) -> list[Any]:
        sent.append(len(commands))
        return await really(self, commands, **options)

    monkeypatch.setattr(Transport, "send", send)
    for n in range(300):
        await yard.redis.zadd(yard.keys.queue(f"q{n:03}").delayed, {f"m{each}": 9e12 for each in range(1 + n % 7)})
    await yard.redis.zadd(yard.keys.queues, {f"q{n:03}": n for n in range(300)})
    service = yard.service("api", LABEL_LIMIT="300")
    async with yard.dispatcher(service):
        sent.clear()
        await service.gauges.refresh()
        assert max(sent) <= 1000
        for n in (0, 109, 110, 299):
            assert counted(service, "backlog_jobs", queue=f"q{n:03}", state="future") == 1 + n % 7


async def test_a_wrong_typed_key_hides_no_other_queue(yard: Yard):
    await yard.inline([b"x"], in_ms=60_000)
    await yard.inline([b"x"], "broken", in_ms=60_000)
    await yard.inline([b"x"], "unusable", in_ms=60_000)
    await yard.redis.set(yard.keys.queue("broken").trash, "no zset")
    await yard.redis.set(yard.keys.queue("unusable").ready, "no list")
    service = yard.service("api")
    async with yard.dispatcher(service):
        await service.gauges.refresh()
        assert counted(service, "backlog_jobs", queue=QUEUE, state="future") == 1
        assert counted(service, "backlog_jobs", queue="unusable", state="future") == 1
        assert counted(service, "backlog_jobs", queue="unusable", state="ready") == 0
        assert counted(service, "redis_up") == 1


async def test_a_scrape_while_redis_is_silent_is_answered_in_time(yard: Yard, redis_proxy: Proxy, monkeypatch):
    """Prometheus gives up after 10 s, and an outage is when the other metrics are needed."""
    monkeypatch.setattr("service.gauges._PATIENCE_S", 0.3)
    service = yard.service("api", redis_url=redis_proxy.url, REDIS__TIMEOUT="5s")
    async with yard.dispatcher(service):
        redis_proxy.blackhole()
        began_s = time.monotonic()
        await service.gauges.refresh()
        assert time.monotonic() - began_s < 2
        assert counted(service, "redis_up") == 0
        await redis_proxy.heal()

        async def up() -> bool:
            await service.gauges.refresh()
            return counted(service, "redis_up") == 1

        await eventually(up, described="Redis is up again")


async def test_looking_changes_nothing(yard: Yard):
    await yard.inline([b"x"], in_ms=60_000)
    service = yard.service("api")
    async with yard.dispatcher(service):
        before = await yard.redis.info("persistence")
        await service.gauges.refresh()
        after = await yard.redis.info("persistence")
        assert after["rdb_changes_since_last_save"] == before["rdb_changes_since_last_save"]
