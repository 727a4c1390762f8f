"""When a job is dispatched: never before it is due, and no later than a wake-up or one interval."""

import pytest

from tests.kit.proxy import Proxy
from tests.kit.waiting import eventually
from tests.kit.yards import QUEUE, Yard, a_yard


@pytest.fixture
async def yard(redis_url, s3_server):
    async with a_yard(redis_url, s3_server) as yard:
        yield yard


async def lateness_ms(yard: Yard, queue: str = QUEUE, in_ms: int = 0, within_s: float = 30) -> int:
    """How late one job was when it was first seen, by Redis's clock."""
    (job,) = await yard.inline([b"x"], queue, in_ms=in_ms)
    ready = yard.keys.queue(queue).ready
    assert await yard.redis.blpop([ready], timeout=within_s), "it never came"
    return await yard.now_ms() - job.ts_ms


#: What a busy machine may add to an interval. A loop that waited for the channel alone would be late by many seconds.
BUSY_MS = 2_000


async def subscribers(yard: Yard) -> int:
    ((_, count),) = await yard.redis.pubsub_numsub(yard.keys.wake)
    return int(count)


async def test_no_job_is_early(yard: Yard):
    """By Redis's clock, whatever woke the loop and however often it looks."""
    async with yard.dispatcher(DISPATCHER__INTERVAL="10ms"):
        jobs = [(await yard.inline([b"%d" % n], in_ms=7 * n))[0] for n in range(60)]
        due = {b"%d" % n: job.ts_ms for n, job in enumerate(jobs)}
        ready = yard.keys.queue(QUEUE).ready
        while due:
            _, payload = await yard.redis.blpop([ready], timeout=5)
            assert await yard.now_ms() >= due.pop(payload)


async def test_a_job_due_now_does_not_wait_for_the_interval(yard: Yard):
    async with yard.dispatcher(DISPATCHER__INTERVAL="1m"):
        await eventually(lambda: subscribers(yard), described="it listens")
        await lateness_ms(yard)
        assert min([await lateness_ms(yard) for _ in range(5)]) < 50


async def test_a_job_due_soon_is_dispatched_when_it_is_due(yard: Yard):
    """The loop sleeps until the earliest head that it knows of, whichever queue that is in."""
    async with yard.dispatcher(DISPATCHER__INTERVAL="1m"):
        await eventually(lambda: subscribers(yard), described="it listens")
        await yard.inline([b"later"], "later", in_ms=20_000)
        assert min([await lateness_ms(yard, in_ms=150) for _ in range(5)]) < 50


async def test_a_wake_up_that_comes_during_a_round_counts(yard: Yard):
    """The round has asked the index already, and does not know of the new head when it plans the next one."""
    service = yard.service(DISPATCHER__INTERVAL="1m")
    async with yard.dispatcher(service):
        await eventually(lambda: subscribers(yard), described="it listens")
        service._dispatcher.wake = lambda: None  # the loop's own round would begin beside this one
        planned = await service._dispatcher.round()
        assert planned is None
        asked = service.ledger.due

        async def asked_then_accepted(limit: int):
            found = await asked(limit)
            service.ledger.due = asked  # type: ignore[method-assign]  # once
            await yard.inline([b"x"], in_ms=400)
            service._dispatcher.woken(found.now_ms + 400)
            return found

        service.ledger.due = asked_then_accepted  # type: ignore[method-assign]  # once
        planned = await service._dispatcher.round()
        assert planned is not None
        assert planned <= 0.4


async def test_the_loss_of_the_channels_connection_costs_one_interval_at_most(yard: Yard):
    async with yard.dispatcher(DISPATCHER__INTERVAL="500ms"):
        await eventually(lambda: subscribers(yard), described="it listens")
        for _ in range(3):
            await yard.redis.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
            assert await lateness_ms(yard) < 500 + BUSY_MS
        await eventually(lambda: subscribers(yard), described="it listens again")
        assert min([await lateness_ms(yard) for _ in range(5)]) < 50


async def test_a_channel_that_dies_without_a_word_is_noticed_and_replaced(yard: Yard, shared_redis, monkeypatch):
    """Some networks drop a quiet connection and tell nobody. The subscription is asked whether it still stands."""
    monkeypatch.setattr("service.wake.SILENCE_S", 0.3)
    async with Proxy(shared_redis.port) as proxy:
        service = yard.service(redis_url=proxy.url, DISPATCHER__INTERVAL="500ms")
        async with yard.dispatcher(service):
            await eventually(lambda: subscribers(yard), described="it listens")
            await proxy.swallow_request(matching=b"PING", then_silence=True)
            assert await lateness_ms(yard) < 500 + BUSY_MS
            await eventually(lambda: _min_lateness(yard), described="wake-ups come again")
            assert service.alive().ok


async def test_a_quiet_channel_is_kept(yard: Yard, monkeypatch):
    """It answers when asked: nothing is wrong with it, and no connection is made anew."""
    monkeypatch.setattr("service.wake.SILENCE_S", 0.05)
    async with yard.dispatcher() as service:
        await eventually(lambda: subscribers(yard), described="it listens")
        kept = service._wake._pubsub
        pings = await _pings(yard)
        await eventually(lambda: _more_pings(yard, pings + 4), described="it is asked several times")
        assert service._wake._pubsub is kept


async def _min_lateness(yard: Yard) -> bool:
    return min([await lateness_ms(yard) for _ in range(3)]) < 50


async def _pings(yard: Yard) -> int:
    stats = await yard.redis.info("commandstats")
    return int(stats.get("cmdstat_ping", {"calls": 0})["calls"])


async def _more_pings(yard: Yard, count: int) -> bool:
    return await _pings(yard) >= count
