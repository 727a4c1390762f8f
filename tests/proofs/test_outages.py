"""S3 away for 20 minutes, 60 times as fast; and one object that always fails.

The pauses by which an outage is lived through are 60 times as short as by default, so that it lasts 40 of the breaker's
pauses and two of the longest backoffs, as it would. What a fetch may take is not: this machine is no quicker.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager

import pytest

from service.clock import SystemClock, rfc3339
from service.wiring import Service
from storage_backends.reference import Reference
from tests.kit.processes import Process, running
from tests.kit.proxy import Proxy
from tests.kit.site import QUEUE, Site, accepted, consuming, payload
from tests.kit.waiting import eventually

SPEED = 60
OUTAGE_S = 20 * 60 / SPEED
COMPRESSED = {
    "DISPATCHER__INTERVAL": "17ms",
    "RETRY__BACKOFF_MIN": "17ms",
    "RETRY__BACKOFF_MAX": "10s",
    "BREAKER__WINDOW": "500ms",
    "BREAKER__OPEN": "500ms",
}


#: Nobody's fetch takes so long for want of a processor: that would be an outage of its own, and charge its first jobs.
UNHURRIED = {
    "DISPATCHER__LEASE": "30s",
    "DISPATCHER__FETCH_TIMEOUT": "15s",
    "BACKENDS__S3__TIMEOUT": "10s",
    "BACKENDS__S3__CONCURRENCY": "4",
}
#: Silence is noticed by a timeout alone: it has to be short against the outage, and few fetches are under way at once.
IMPATIENT = {
    "DISPATCHER__LEASE": "5s",
    "DISPATCHER__FETCH_TIMEOUT": "2s",
    "BACKENDS__S3__TIMEOUT": "1s",
    "BACKENDS__S3__CONCURRENCY": "2",
}


@asynccontextmanager
async def refused(proxy: Proxy) -> AsyncIterator[None]:
    async with proxy.down():
        yield


@asynccontextmanager
async def in_silence(proxy: Proxy) -> AsyncIterator[None]:
    proxy.blackhole()
    yield
    await proxy.heal()


@asynccontextmanager
async def in_errors(proxy: Proxy) -> AsyncIterator[None]:
    traps = [proxy.forge_reply(ERROR_500) for _ in range(3_000)]
    try:
        yield
    finally:
        for trap in traps:
            trap.disarm()


def _error(status: str, code: str) -> bytes:
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>m</Message></Error>"
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\nConnection: close"
    return f"{head}\r\n\r\n{body}".encode()


ERROR_500 = _error("500 Internal Server Error", "InternalError")
ERROR_403 = _error("403 Forbidden", "AccessDenied")


@pytest.mark.timeout(150)
@pytest.mark.parametrize("outage", [refused, in_silence, in_errors], ids=lambda outage: str(outage.__name__))
async def test_an_outage_of_twenty_minutes_costs_no_job_an_attempt(
    site: Site, s3_proxy: Proxy, outage: Callable[[Proxy], AsyncIterator[None]]
) -> None:
    """Three dispatchers that charge what fails while their breaker is closed bury every job that retries through it."""
    numbers = range(400)
    with ExitStack() as processes:
        patience = IMPATIENT if outage is in_silence else UNHURRIED
        environ = site.environ(s3_url=s3_proxy.http_url, **COMPRESSED, **patience)
        three = [processes.enter_context(running(environ, "dispatcher")) for _ in range(3)]
        async with site.producing() as service, consuming(site) as consumer:
            for dispatcher in three:
                await dispatcher.is_ready()
            await service.ledger.pause(QUEUE)
            jobs = await spread_over(service, numbers)
            async with outage(s3_proxy):
                await service.ledger.resume(QUEUE)
                await nobody_charged_for(site, service, list(jobs.values()), OUTAGE_S)
                await accepted(service, {-1: payload(-1)})
                await eventually(lambda: -1 in consumer.got, 10, "an inline job flows")
                for dispatcher in three:
                    assert await dispatcher.metric("jobs_total", outcome="retried") == 0, story(dispatcher)
            over = rfc3339(SystemClock().now_ms())
            await consumer.has(len(numbers) + 1, within_s=60)
            assert await site.count("dead") == 0
            for dispatcher in three:
                charged = await dispatcher.metric("jobs_total", outcome="retried")
                # With a timeout of a second, a busy machine brings failures of its own, once there is work again.
                assert charged == 0 or outage is in_silence, f"{charged} charged, over at {over}: {story(dispatcher)}"
                assert await dispatcher.metric("buried_total") == 0
                assert await dispatcher.metric("breaker_opened_total") >= 1
            await site.nothing_left(hurried=True)
            consumer.exactly([*numbers, -1])


def story(dispatcher: Process) -> list[str]:
    """When its breaker changed, and whom it charged."""
    return [line for line in dispatcher.log.splitlines() if "breaker changed" in line or "tried again" in line]


async def spread_over(service: Service, numbers: range) -> dict[int, Reference]:
    """Offloaded jobs that fall due all through the outage, the first of them at its begin."""
    jobs: dict[int, Reference] = {}
    for at in range(0, len(numbers), 20):
        some = numbers[at : at + 20]
        delay_ms = 1500 + round(at / len(numbers) * OUTAGE_S * 1000)
        jobs |= await accepted(
            service, {number: payload(number, offloaded=True) for number in some}, delay=f"{delay_ms}ms"
        )
    return jobs


async def nobody_charged_for(site: Site, service: Service, jobs: list[Reference], for_s: float) -> None:
    """Looks again and again, for so long."""
    until = asyncio.get_running_loop().time() + for_s

    async def over() -> bool:
        assert await site.count("dead") == 0 or pytest.fail("a job is dead")
        for reference in jobs[::20]:
            job = await service.ledger.lookup(reference)
            if job is not None and job.attempts:
                pytest.fail(f"{reference} was charged: {job}")
        return asyncio.get_running_loop().time() >= until

    await eventually(over, for_s + 30, "the outage lasted long enough")


@pytest.mark.timeout(180)
@pytest.mark.parametrize("reply", [ERROR_500, ERROR_403], ids=["500", "403"])
async def test_one_object_that_always_fails_dies_alone_and_opens_no_breaker(
    site: Site, s3_proxy: Proxy, reply: bytes
) -> None:
    """Were its failures the backend's, it would circle for ever, or cut off the thousand others. Its payload is kept:
    given another life, it arrives."""
    numbers, bad = range(1_001), 500
    backoff = {"RETRY__BACKOFF_MIN": "50ms", "RETRY__BACKOFF_MAX": "400ms"}
    environ = site.environ(s3_url=s3_proxy.http_url, **backoff, **UNHURRIED)
    with running(environ, "dispatcher") as dispatcher:
        async with site.producing() as service, consuming(site) as consumer:
            await dispatcher.is_ready()
            await service.ledger.pause(QUEUE)
            jobs = await accepted(service, {number: payload(number, offloaded=True) for number in numbers})
            uuid = jobs[bad].uuid.encode()

            def for_the_bad_one(request: bytes) -> bool:
                return request.startswith(b"GET ") and uuid in request

            traps = [s3_proxy.forge_reply(reply, for_the_bad_one) for _ in range(12)]
            await service.ledger.resume(QUEUE)
            await consumer.has(len(numbers) - 1, within_s=80)
            await eventually(lambda: _dead(service, jobs[bad]), 30, "the bad one is dead")
            for trap in traps:
                trap.disarm()
            job = await service.ledger.lookup(jobs[bad])
            assert job is not None
            assert (job.attempts, job.reason) == (8, "attempts_exhausted")
            assert sum(trap.sprung for trap in traps) == 8, "a try that nobody counted"
            assert await site.count("dead") == 1
            assert await dispatcher.metric("breaker_opened_total") == 0
            assert await dispatcher.metric("jobs_total", outcome="retried") == 7
            consumer.exactly(set(numbers) - {bad})
            assert await service.ledger.revive(QUEUE, [str(jobs[bad])]) == 1
            await consumer.has(len(numbers), within_s=20)
            await site.nothing_left()
            consumer.exactly(numbers)


async def _dead(service: Service, reference: Reference) -> bool:
    job = await service.ledger.lookup(reference)
    return job is not None and job.state == "dead"
