"""A dispatcher that stands still past its leases, and then goes on as if nothing had been.

    stalled    claims, asks S3 (its requests are held on the way) ─ SIGSTOP ──────────── SIGCONT ─ a late answer
    live                                                                     reclaims, claims, delivers …

What it does then is too late; it must neither show nor hurt.
"""

from collections.abc import AsyncIterator, Iterable

import pytest

from service.ledger import Ledger
from tests.kit.processes import Process, running
from tests.kit.proxy import Proxy, Trap
from tests.kit.s3_servers import S3Server
from tests.kit.site import QUEUE, Site, accepted, consuming, payload
from tests.kit.waiting import eventually

JOBS = 24  #: fewer than a dispatcher's fetch slots, so that one claim leases them all
FAST = {"DISPATCHER__LEASE": "2s", "DISPATCHER__FETCH_TIMEOUT": "1s", "RETRY__BACKOFF_MIN": "100ms"}
#: The stalled process must not give up its fetches while it stands still: its timeout is as long as its lease allows.
#: And that its breaker opens, for all its fetches at once took too long, is for a moment.
PATIENT = {"DISPATCHER__LEASE": "4s", "DISPATCHER__FETCH_TIMEOUT": "2s", "BREAKER__OPEN": "500ms"}
_LATER_MS = 3_600_000

_BODY = "<?xml version='1.0'?><Error><Code>{code}</Code><Message>m</Message></Error>"


def answer(status: str, code: str) -> bytes:
    body = _BODY.format(code=code)
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\nConnection: close"
    return f"{head}\r\n\r\n{body}".encode()


LATE_ANSWERS = {
    "the payload": None,
    "a 404 that would bury it": answer("404 Not Found", "NoSuchKey"),
    "a 500 that would charge it": answer("500 Internal Server Error", "InternalError"),
}


@pytest.fixture
async def live_proxy(store: S3Server) -> AsyncIterator[Proxy]:
    """In front of the S3 of the dispatcher that lives on."""
    async with Proxy(store.port) as proxy:
        yield proxy


async def stalled_with_leases(site: Site, ledger: Ledger, stalled: Process, s3: Proxy) -> None:
    """`stalled` holds every job of the queue in its hands, its requests are on their way, and it stands still."""
    await stalled.is_ready()
    s3.hold()
    await ledger.resume(QUEUE)

    async def in_hand() -> bool:
        return await site.count("leases") == JOBS and s3.connections >= 16

    await eventually(in_hand, described="the dispatcher to be stalled holds all jobs, and asks S3")
    stalled.stall()


def arm(proxy: Proxy, forgery: bytes | None) -> list[Trap]:
    """The requests that are held, for payloads and not for the marker, will be answered with this."""
    if forgery is None:
        return []

    def for_a_payload(request: bytes) -> bool:
        return request.startswith(b"GET ") and f"/{QUEUE}/".encode() in request

    return [proxy.forge_reply(forgery, for_a_payload) for _ in range(4 * JOBS)]


def disarm(traps: Iterable[Trap], described: str) -> None:
    assert any(trap.sprung for trap in traps) or not traps, f"nobody got {described}"
    for trap in traps:
        trap.disarm()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("late", LATE_ANSWERS)
async def test_a_stalled_dispatcher_changes_nothing_about_jobs_that_another_delivered(
    site: Site, s3_proxy: Proxy, late: str
) -> None:
    """It wakes up with leases in its memory that ended long ago."""
    numbers = range(JOBS)
    with running(site.environ(s3_url=s3_proxy.http_url, **PATIENT), "dispatcher") as stalled:
        async with site.producing() as service, consuming(site) as consumer:
            await service.ledger.pause(QUEUE)
            await accepted(service, {number: payload(number, offloaded=True) for number in numbers})
            await stalled_with_leases(site, service.ledger, stalled, s3_proxy)
            with running(site.environ(**FAST), "dispatcher") as live:
                await consumer.has(JOBS, within_s=30)
                traps = arm(s3_proxy, LATE_ANSWERS[late])
                await s3_proxy.heal()
                stalled.go_on()
                await eventually(
                    lambda: _equals(stalled, JOBS, "leases_lost_total", backend="s3"), 20, "it lost them all"
                )
                disarm(traps, late)
                await site.nothing_left(hurried=True)
                assert await live.metric("buried_total") == await stalled.metric("buried_total") == 0
            consumer.exactly(numbers)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("late", LATE_ANSWERS)
async def test_a_stalled_dispatcher_neither_buries_nor_charges_jobs_in_anothers_hands(
    site: Site, s3_proxy: Proxy, live_proxy: Proxy, late: str
) -> None:
    """The jobs are leased when it wakes up, but not to it. That it delivers them all the same is right: once."""
    numbers = range(JOBS)
    slow = {**FAST, "DISPATCHER__LEASE": "40s", "DISPATCHER__FETCH_TIMEOUT": "20s", "BACKENDS__S3__TIMEOUT": "20s"}
    with running(site.environ(s3_url=live_proxy.http_url, **slow), "dispatcher") as live:
        async with site.producing() as service, consuming(site) as consumer:
            await service.ledger.pause(QUEUE)
            jobs = await accepted(service, {number: payload(number, offloaded=True) for number in numbers})
            await live.is_ready()
            live.stall()  # until its turn comes
            with running(site.environ(s3_url=s3_proxy.http_url, **PATIENT), "dispatcher") as stalled:
                await stalled_with_leases(site, service.ledger, stalled, s3_proxy)
                live_proxy.hold()
                live.go_on()

                async def anothers() -> bool:
                    states = [await service.ledger.lookup(job) for job in jobs.values()]
                    return all(job is not None and job.state == "leased" and job.expiries == 1 for job in states)

                await eventually(anothers, 30, "the live dispatcher holds all jobs now")
                traps = arm(s3_proxy, LATE_ANSWERS[late])
                await s3_proxy.heal()
                stalled.go_on()
                await eventually(lambda: _done_with(stalled), 20, "the stalled one is done with them all")
                disarm(traps, late)
                states = [await service.ledger.lookup(job) for job in jobs.values()]
                assert {(job.state, job.attempts) for job in states if job} <= {("leased", 0)}
                await consumer.has(states.count(None), within_s=10)
                assert not (traps and consumer.got), "delivered without a payload"
                await live_proxy.heal()
                await consumer.has(JOBS, within_s=30)
                await site.nothing_left(hurried=True)
                retried = [await each.metric("jobs_total", outcome="retried") for each in (live, stalled)]
                assert retried == [0, 0]
            consumer.exactly(numbers)


@pytest.mark.timeout(90)
async def test_a_cancel_and_a_reschedule_hold_against_a_dispatcher_that_was_stalled(
    site: Site, s3_proxy: Proxy
) -> None:
    """`cancelled` was answered while the payload was in its hands; and what was put off an hour ago is not due."""
    third = JOBS // 3
    cancelled, later, rest = range(third), range(third, 2 * third), range(2 * third, JOBS)
    with running(site.environ(s3_url=s3_proxy.http_url, **PATIENT), "dispatcher") as stalled:
        async with site.producing() as service, consuming(site) as consumer:
            ledger = service.ledger
            await ledger.pause(QUEUE)
            jobs = await accepted(service, {number: payload(number, offloaded=True) for number in range(JOBS)})
            await stalled_with_leases(site, ledger, stalled, s3_proxy)
            with running(site.environ(**FAST), "dispatcher") as live:
                assert {await ledger.cancel(jobs[number]) for number in cancelled} == {"cancelled"}
                due_ms = await ledger.now_ms() + _LATER_MS
                assert {await ledger.reschedule(jobs[number], due_ms) for number in later} == {"delayed"}
                await consumer.has(len(rest), within_s=30)
                await s3_proxy.heal()
                stalled.go_on()
                await eventually(
                    lambda: _equals(stalled, JOBS, "leases_lost_total", backend="s3"), 20, "it lost them all"
                )
                states = [await ledger.lookup(jobs[number]) for number in later]
                assert [(job.state, job.attempts, job.next_attempt_ms) for job in states if job] == [
                    ("delayed", 0, due_ms)
                ] * len(later)
                consumer.exactly(rest)
                for number in later:
                    await ledger.reschedule(jobs[number], await ledger.now_ms())
                await consumer.has(len(rest) + len(later), within_s=30)
                await site.nothing_left(hurried=True)
                assert await live.metric("buried_total") == await stalled.metric("buried_total") == 0
            consumer.exactly([*rest, *later])


async def _done_with(stalled: Process) -> bool:
    """Each job was lost to it, or delivered by it under the other one's lease."""
    lost, delivered = (
        await stalled.metric("leases_lost_total", backend="s3"),
        await stalled.metric("jobs_total", backend="s3", outcome="delivered"),
    )
    assert lost + delivered == JOBS, f"{lost} lost, {delivered} delivered"
    return True


async def _equals(process: Process, wanted: float, name: str, **labels: str) -> bool:
    found = await process.metric(name, **labels)
    assert found == wanted, f"{name} is {found}"
    return True
