"""A backend that is away: its jobs wait and are not charged, everybody else's flow, and when it is back so are they."""

from contextlib import asynccontextmanager

import pytest

from tests.kit.proxy import Proxy
from tests.kit.refusals import refusing
from tests.kit.waiting import eventually
from tests.kit.yards import QUEUE, Yard, a_yard, counted, hooked

PAYLOADS = [b"%d" % n for n in range(60)]


@pytest.fixture
async def proxy(s3_server):
    async with Proxy(s3_server.port) as proxy:
        yield proxy


@pytest.fixture
async def yard(redis_url, s3_server, proxy):
    """Its dispatchers reach S3 by way of the proxy."""
    async with a_yard(redis_url, s3_server) as yard:
        yard.s3_url = proxy.http_url
        yield yard


@asynccontextmanager
async def refused(proxy):
    async with proxy.down():
        yield


@asynccontextmanager
async def silent(proxy):
    proxy.blackhole()
    yield
    await proxy.heal()


def answering(status, code):
    @asynccontextmanager
    async def answers(proxy):
        healthy = proxy.upstream
        async with refusing(status, code) as port:
            proxy.upstream = port
            proxy.cut()
            yield
            proxy.upstream = healthy
            proxy.cut()

    return answers


OUTAGES = {
    "refused": refused,
    "silent": silent,
    "failing": answering(500, "InternalError"),
    "throttling": answering(503, "SlowDown"),
    "denying": answering(403, "AccessDenied"),
}


@pytest.mark.parametrize("outage", OUTAGES.values(), ids=OUTAGES)
async def test_an_outage_charges_nobody_and_ends_by_itself(yard: Yard, proxy, outage, monkeypatch):
    """Two queues' jobs wait through it, inline ones flow, and the gauges go on showing what is overdue."""
    monkeypatch.setattr("service.gauges.MAX_AGE_S", 0.0)
    quick = {"BACKENDS__S3__TIMEOUT": "1s", "DISPATCHER__FETCH_TIMEOUT": "1s"} if outage is silent else {}
    async with yard.dispatcher(**quick) as dispatcher:
        async with outage(proxy):
            await yard.offloaded(PAYLOADS)
            await yard.offloaded(PAYLOADS, "others")
            await eventually(lambda: dispatcher.offloading["s3"].state == "open", described="the breaker opens")
            await yard.inline([b"inline"], "inline")
            await yard.delivers([b"inline"], "inline", within_s=2)

            async def shown() -> bool:
                await dispatcher.gauges.refresh()
                overdue = counted(dispatcher, "backlog_jobs", queue=QUEUE, state="overdue")
                assert overdue >= len(PAYLOADS) - 32, overdue  # up to 32 were tried, and wait for their next attempt
                return counted(dispatcher, "oldest_overdue_seconds", queue=QUEUE) > 0

            await eventually(shown, described="what is put back is shown as overdue")
            assert dispatcher.alive().ok
            assert (await dispatcher.ready()).ok
            assert counted(dispatcher, "jobs_total", outcome="retried") == 0
        await yard.delivers(PAYLOADS, within_s=20)
        await yard.delivers(PAYLOADS, "others")
        await eventually(lambda: dispatcher.offloading["s3"].state == "closed", described="the breaker closes")
        if outage is not silent:  # there a second is too long; a busy machine's store may need that when it is back
            assert counted(dispatcher, "jobs_total", outcome="retried") == 0
        assert counted(dispatcher, "jobs_total", outcome="buried") == 0
        assert counted(dispatcher, "jobs_total", outcome="expired") == 0


async def test_a_backend_that_is_away_at_the_start_comes_later(yard: Yard, proxy):
    """A restart during an outage must not fail, nor charge a job."""
    await yard.offloaded(PAYLOADS)
    async with proxy.down():
        service = yard.service()
        await service.start()
        try:
            assert service.offloading["s3"].state == "open"
            await yard.inline([b"inline"], "inline")
            await yard.delivers([b"inline"], "inline")
            await proxy.heal()
            await yard.delivers(PAYLOADS, within_s=20)
            assert counted(service, "jobs_total", outcome="retried") == 0
        finally:
            await service.stop_dispatching()
            await service.close()


async def test_while_the_breaker_is_open_nobody_asks_the_backend(yard: Yard, proxy):
    """Its jobs are put back by the claim: no lease, no fetch, and no rounds without a pause."""
    service = yard.service(BREAKER__OPEN="1m")
    backend = hooked(service)
    async with yard.dispatcher(service), proxy.down():
        await yard.offloaded(PAYLOADS)
        await eventually(lambda: service.offloading["s3"].state == "open", described="the breaker opens")
        await eventually(lambda: counted(service, "inflight_payloads") == 0, described="what was in hand is given back")
        asked, rounds = len(backend.gets), counted(service, "loop_rounds_total", loop="dispatch")
        await yard.offloaded([b"late"] * 2500, "late", stored=False)

        async def put_back() -> bool:
            now_ms = await yard.now_ms()
            return await yard.redis.zcount(yard.keys.queue("late").delayed, "-inf", now_ms) == 0

        await eventually(put_back, described="all are put back")
        assert len(backend.gets) == asked
        assert counted(service, "loop_rounds_total", loop="dispatch") - rounds < 100


async def test_inline_jobs_behind_thousands_of_an_open_breaker_flow_at_once(yard: Yard, proxy):
    """They are in the same queue, and due after them: a claim looks at 2,000 jobs only."""
    async with yard.dispatcher(BREAKER__OPEN="1m") as dispatcher, proxy.down():
        await yard.offloaded([b"first"] * 5)
        await eventually(lambda: dispatcher.offloading["s3"].state == "open", described="the breaker opens")
        rounds = counted(dispatcher, "loop_rounds_total", loop="dispatch")
        await yard.redis.set(yard.keys.queue(QUEUE).paused, 1)
        await yard.offloaded([b"x"] * 8000, stored=False)
        await yard.inline([b"inline"])
        await yard.ledger.resume(QUEUE)
        await yard.delivers([b"inline"], within_s=5)
        assert counted(dispatcher, "loop_rounds_total", loop="dispatch") - rounds < 40
