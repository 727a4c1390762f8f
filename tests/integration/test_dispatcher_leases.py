"""Leases in use: extended while a fetch is slow, lost when a dispatcher stalls, given back when it stops."""

import asyncio
import time

import pytest

from service.ledger import Ledger
from service.records import Claimed, ClaimRequest, Job
from service.wiring import Service
from storage_backends.base import PayloadMissing
from storage_backends.reference import Reference
from tests.kit.proxy import Proxy
from tests.kit.waiting import eventually
from tests.kit.yards import QUEUE, Hanging, Hooked, Yard, a_yard, counted, hooked

SHORT = {"DISPATCHER__LEASE": "1s", "DISPATCHER__FETCH_TIMEOUT": "500ms"}
#: Short, but long enough for a busy machine to extend it in time.
EXTENDED = {"DISPATCHER__LEASE": "3s", "DISPATCHER__FETCH_TIMEOUT": "1s"}


@pytest.fixture
async def yard(redis_url, s3_server):
    async with a_yard(redis_url, s3_server) as yard:
        yield yard


def patient(service: Service) -> Hooked:
    """Its backend, with hooks; and no fetch of it is ever too slow, so that only leases set limits."""
    backend = hooked(service)
    service.offloading["s3"]._inner._fetch_timeout_s = 60  # type: ignore[attr-defined]  # Bounded's
    return backend


# -- extended ----------------------------------------------------------------------------------------------------------


async def test_a_fetch_that_outlasts_its_lease_keeps_the_job(yard: Yard):
    """The lease is extended when half of it is over: a slow payload is fetched once, and nobody counts an expiry."""
    service, other = yard.service(**EXTENDED), yard.service(**EXTENDED)
    backend, others = patient(service), patient(other)
    backend.before_get = others.before_get = hanging = Hanging()
    (job,) = await yard.offloaded([b"payload"])
    async with yard.dispatcher(service), yard.dispatcher(other):
        await eventually(lambda: backend.at_once + others.at_once, described="it is fetched")
        first = await yard.redis.zscore(yard.keys.queue(QUEUE).leases, str(job))

        async def outlasted() -> bool:
            return await yard.now_ms() > first

        await eventually(outlasted, described="its lease as claimed is over")
        hanging.end()
        await yard.delivers([b"payload"])
        assert len(backend.gets + others.gets) == 1
        for each in (service, other):
            assert counted(each, "jobs_total", outcome="expired") == 0
        assert counted(service, "leases_extended_total") + counted(other, "leases_extended_total") >= 1


async def test_a_failure_after_an_extension_is_charged_by_the_new_token(yard: Yard):
    """The old one names no lease any more: the job would be left to run out, as if its dispatcher had died."""
    service = yard.service(**EXTENDED)
    backend = patient(service)
    hanging = Hanging()

    async def fail_in_the_end(reference: Reference) -> None:
        await hanging(reference)
        raise RuntimeError("no name for this")

    backend.before_get = fail_in_the_end
    (job,) = await yard.offloaded([b"payload"])
    async with yard.dispatcher(service):
        await eventually(lambda: counted(service, "leases_extended_total") >= 1, described="it was extended")
        hanging.end()
        assert (await yard.dies(job)).attempts == 8
        assert counted(service, "jobs_total", outcome="expired") == 0
        assert counted(service, "leases_lost_total") == 0


# -- lost --------------------------------------------------------------------------------------------------------------


async def deliver(_: Reference) -> None:
    pass


async def fail(_: Reference) -> None:
    raise RuntimeError("no name for this")


async def miss(reference: Reference) -> None:
    raise PayloadMissing("not there", backend="s3", reference=reference)


class Stalled:
    """A dispatcher that holds one job, and stands still: Redis hears nothing of it, and its fetch does not end."""

    def __init__(self, yard: Yard, proxy: Proxy, then) -> None:
        self.service = yard.service(redis_url=proxy.url, **SHORT)
        self.backend = patient(self.service)
        self._proxy, self._then = proxy, then
        self._fetched = Hanging()
        self.backend.before_get = self._hang

    async def _hang(self, reference: Reference) -> None:
        await self._fetched(reference)
        self.backend.before_get = deliver  # what it gets later is another matter
        await self._then(reference)

    async def with_the_job(self) -> None:
        await eventually(lambda: self.backend.at_once == 1, described="it has the job")
        self._proxy.hold()

    async def goes_on(self, *, late: bool) -> None:
        """`late`: what it does by its old lease arrives when all that was held does; else it is done afterwards."""
        if late:
            self._fetched.end()
            await eventually(lambda: self.backend.at_once == 0, described="it acts by its old lease")
            await self._proxy.heal()
        else:
            await self._proxy.heal()
            self._fetched.end()
        await eventually(self._has_acted, described="nothing of it is under way")

    def _has_acted(self) -> bool:
        return not self.service._fetcher._tasks


async def expired(yard: Yard, job: Reference) -> None:
    deadline = await yard.redis.zscore(yard.keys.queue(QUEUE).leases, str(job))

    async def over() -> bool:
        return await yard.now_ms() > deadline

    await eventually(over, described="its lease is over")


THEN = pytest.mark.parametrize("then", [deliver, fail, miss])
LATE = pytest.mark.parametrize("late", [True, False], ids=["late", "afterwards"])


@THEN
@LATE
async def test_a_stalled_dispatcher_changes_nothing_about_a_job_that_another_delivered(
    yard: Yard, redis_proxy: Proxy, then, late
):
    stalled = Stalled(yard, redis_proxy, then)
    (job,) = await yard.offloaded([b"payload"])
    async with yard.dispatcher(stalled.service):
        await stalled.with_the_job()
        async with yard.dispatcher(**SHORT) as other:
            await yard.delivers([b"payload"])
            assert counted(other, "jobs_total", outcome="expired") == 1
            await stalled.goes_on(late=late)
            await yard.empty()
            assert await yard.ready() == [b"payload"]
            assert await yard.job(job) is None


@THEN
@LATE
async def test_a_stalled_dispatcher_changes_nothing_about_a_job_that_another_has_in_hand(
    yard: Yard, redis_proxy: Proxy, then, late
):
    """It can neither bury, postpone nor charge it. That it may deliver it is no harm: the payload is the same."""
    stalled = Stalled(yard, redis_proxy, then)
    (job,) = await yard.offloaded([b"payload"])
    other = yard.service(**SHORT)
    backend = patient(other)
    backend.before_get = hanging = Hanging()
    async with yard.dispatcher(stalled.service):
        await stalled.with_the_job()
        async with yard.dispatcher(other):
            await eventually(lambda: backend.at_once == 1, described="another has it")
            await stalled.goes_on(late=late)
            if then is not deliver:
                held: Job | None = await yard.job(job)
                assert held is not None
                assert (held.state, held.attempts, held.error) == ("leased", 0, None)
            hanging.end()
            await yard.delivers([b"payload"])
            await yard.empty()
            assert await yard.ready() == [b"payload"]


@THEN
@LATE
async def test_a_stalled_dispatcher_brings_no_cancelled_job_back(yard: Yard, redis_proxy: Proxy, then, late):
    stalled = Stalled(yard, redis_proxy, then)
    (job,) = await yard.offloaded([b"payload"])
    async with yard.dispatcher(stalled.service):
        await stalled.with_the_job()
        assert await yard.ledger.cancel(job) == "cancelled"
        await stalled.goes_on(late=late)
        await yard.empty()
        assert await yard.ready() == []
        assert await yard.job(job) is None


@THEN
@LATE
async def test_a_stalled_dispatcher_leaves_a_rescheduled_job_where_it_is(yard: Yard, redis_proxy: Proxy, then, late):
    stalled = Stalled(yard, redis_proxy, then)
    (job,) = await yard.offloaded([b"payload"])
    async with yard.dispatcher(stalled.service):
        await stalled.with_the_job()
        due_ms = await yard.now_ms() + 3_600_000
        assert await yard.ledger.reschedule(job, due_ms) == "delayed"
        await stalled.goes_on(late=late)
        found = await yard.job(job)
        assert found is not None
        assert (found.state, found.due_ms, found.next_attempt_ms) == ("delayed", due_ms, due_ms)
        assert (found.attempts, found.error) == (0, None)
        assert await yard.ready() == []


# -- given back --------------------------------------------------------------------------------------------------------


async def test_a_stop_gives_back_at_once_what_it_cannot_finish(yard: Yard):
    """The next dispatcher need not wait for a lease of a minute to run out, and nobody is charged."""
    service = yard.service(DISPATCHER__LEASE="60s", DISPATCHER__FETCH_TIMEOUT="15s", DISPATCHER__GRACE="200ms")
    backend = hooked(service)
    backend.before_get = Hanging()
    payloads = [b"%d" % n for n in range(20)]
    references = await yard.offloaded(payloads)
    async with yard.dispatcher(service):
        await eventually(lambda: backend.at_once == 16, described="they are fetched")
        began_s = time.monotonic()
        await service.stop_dispatching()
        assert time.monotonic() - began_s < 2
        assert await yard.size("leases") == 0
        jobs = [await yard.job(each) for each in references]
        assert {(job.state, job.attempts, job.expiries) for job in jobs if job} == {("delayed", 0, 0)}
    async with yard.dispatcher():
        await yard.delivers(payloads)


async def test_a_stop_finishes_what_can_be_finished_and_claims_no_more(yard: Yard):
    service = yard.service(DISPATCHER__GRACE="10s")
    backend = hooked(service)
    backend.before_get = hanging = Hanging()
    payloads = [b"%d" % n for n in range(10)]
    await yard.offloaded(payloads)
    async with yard.dispatcher(service):
        await eventually(lambda: backend.at_once == 10, described="they are fetched")
        stopping = asyncio.create_task(service.stop_dispatching())
        await eventually(lambda: service._dispatch_loop.stopping, described="it was told to stop")
        await yard.inline([b"late"])
        assert not stopping.done()
        assert service.alive().ok, "a loop that was told to stop is not dead"
        assert not (await service.ready()).ok
        hanging.end()
        await stopping
        assert sorted(await yard.ready()) == payloads
        assert await yard.size("delayed") == 1
        assert await yard.size("leases") == 0


async def test_a_stop_waits_for_the_claims_that_are_under_way(yard: Yard, redis_proxy: Proxy):
    """Their leases are nobody's otherwise: the answer comes when all has been given back already."""
    service = yard.service(redis_url=redis_proxy.url, DISPATCHER__GRACE="500ms", REDIS__TIMEOUT="5s")
    backend = hooked(service)
    backend.before_get = Hanging()
    async with yard.dispatcher(service):
        await yard.inline([b"first"])
        await yard.delivers([b"first"])
        redis_proxy.delay(reply_s=0.5)
        await yard.offloaded([b"%d" % n for n in range(5)])
        await eventually(lambda: yard.size("leases"), described="the claim was carried out")
        await service.stop_dispatching()
        assert await yard.size("leases") == 0
        assert await yard.size("delayed") == 5
        await redis_proxy.heal()


async def test_what_a_claim_brings_after_the_stop_goes_back_at_once(yard: Yard, monkeypatch):
    """Nobody waits any longer for what is fetched, and its leases would have to run out."""
    service = yard.service(DISPATCHER__GRACE="0s", DISPATCHER__LEASE="60s")
    backend, claim = hooked(service), Ledger.claim
    claimed, stopped = asyncio.Event(), asyncio.Event()

    async def slow(self: Ledger, queue: str, request: ClaimRequest) -> Claimed:
        answer = await claim(self, queue, request)
        claimed.set()
        await stopped.wait()
        return answer

    monkeypatch.setattr(Ledger, "claim", slow)
    await yard.offloaded([b"%d" % n for n in range(5)])
    async with yard.dispatcher(service):
        await claimed.wait()
        await service.stop_dispatching()
        assert await yard.size("leases") == 5
        stopped.set()
        await eventually(lambda: _delayed(yard, 5), described="they were given back")
        assert await yard.size("leases") == 0
        assert backend.gets == []


async def _delayed(yard: Yard, count: int) -> bool:
    return await yard.size("delayed") == count


async def test_a_stop_without_redis_ends_within_its_bounds(yard: Yard, redis_proxy: Proxy):
    """Leases then run out by themselves. No task, no connection and no thread of it stays behind."""
    service = yard.service(redis_url=redis_proxy.url, DISPATCHER__GRACE="200ms", REDIS__TIMEOUT="100ms")
    backend = hooked(service)
    backend.before_get = hanging = Hanging()
    async with yard.dispatcher(service):
        for number in range(10):
            await yard.offloaded([b"x"], f"q{number}")
        await eventually(lambda: backend.at_once == 10, described="they are fetched")
        redis_proxy.blackhole()
        hanging.end()
        await eventually(lambda: backend.at_once == 0, described="they are about to be delivered")
        began_s = time.monotonic()
        await service.stop_dispatching()
        assert time.monotonic() - began_s < 5
        assert not service._fetcher._tasks
    await redis_proxy.heal()


# -- several -----------------------------------------------------------------------------------------------------------


async def test_several_dispatchers_side_by_side_deliver_each_job_once(yard: Yard):
    """Without a leader and without a lock: claims are atomic, leases fence."""
    inline, offloaded = [b"i%d" % n for n in range(3000)], [b"o%d" % n for n in range(150)]
    async with yard.dispatcher() as first, yard.dispatcher() as second, yard.dispatcher() as third:
        for start in range(0, 3000, 100):
            await yard.inline(inline[start : start + 100], apart_ms=1)
            await yard.offloaded(offloaded[start // 20 : start // 20 + 5])
        await yard.delivers([*inline, *offloaded], within_s=20)
        await yard.empty(within_s=40)  # one that began behind an open breaker puts deletions off, for the others
        everyone = (first, second, third)
        assert sum(counted(each, "jobs_total", outcome="delivered") for each in everyone) == 3150
        assert sum(counted(each, "leases_lost_total") for each in everyone) == 0
        assert sum(counted(each, "jobs_total", outcome="expired") for each in everyone) == 0


async def test_payloads_in_hand_are_bounded_in_bytes(yard: Yard):
    """Taken on Content-Length, before a body is read: sixteen large ones at once would be sixteen times the memory."""
    service = yard.service(BACKENDS__S3__INFLIGHT_BYTES="300KiB", MAX_PAYLOAD_BYTES="200KiB")
    bulkhead = service._fetcher._depots["s3"].bulkhead
    most = 0
    acquire = bulkhead._acquire

    async def watched(size_bytes: int) -> None:
        nonlocal most
        await acquire(size_bytes)
        most = max(most, bulkhead.held_bytes)

    bulkhead._acquire = watched  # type: ignore[method-assign]  # watched, not changed
    payloads = [b"%02d" % n + b"x" * 100 * 1024 for n in range(30)]
    await yard.offloaded(payloads)
    async with yard.dispatcher(service):
        await yard.delivers(payloads, within_s=20)
        assert 200 * 1024 < most <= 300 * 1024
        await yard.empty()
        assert (bulkhead.taken, bulkhead.held_bytes) == (0, 0)
