"""Redis away, back, full: the loop goes on by itself, and nothing has to be repaired afterwards."""

from contextlib import suppress

import pytest
from redis.exceptions import OutOfMemoryError

from service.errors import RetryLater
from service.ledger import Ledger
from service.records import Claimed, ClaimRequest, DueQueues
from tests.kit.proxy import Proxy
from tests.kit.waiting import eventually
from tests.kit.yards import QUEUE, Hanging, Yard, a_yard, counted, hooked

PAYLOADS = [b"%d" % n for n in range(20)]


@pytest.fixture
async def yard(redis_url, s3_server):
    async with a_yard(redis_url, s3_server) as yard:
        yield yard


@pytest.fixture(autouse=True)
def _put_off_for_a_moment(monkeypatch):
    """A deletion that Redis did not hear of comes again after a minute; here sooner."""
    monkeypatch.setattr("service.trash.PUT_OFF_MS", 300)


async def test_an_outage_of_redis_is_waited_out(yard: Yard, redis_proxy: Proxy):
    """Not ready, but alive: a restart would heal nothing. When Redis is back, jobs flow, those in hand included."""
    service = yard.service(redis_url=redis_proxy.url)
    backend = hooked(service)
    backend.before_get = hanging = Hanging()
    async with yard.dispatcher(service):
        await yard.offloaded(PAYLOADS)
        await eventually(lambda: backend.at_once == 16, described="they are fetched")
        async with redis_proxy.down():
            hanging.end()
            await yard.inline([b"inline"])
            ready = await service.ready()
            assert not ready.ok
            assert service.alive().ok
            failed = counted(service, "loop_errors_total", loop="dispatch")
            await eventually(lambda: counted(service, "loop_errors_total", loop="dispatch") > failed + 1)
        await yard.delivers([*PAYLOADS, b"inline"])
        assert (await service.ready()).ok
        assert counted(service, "jobs_total", outcome="expired") == 0
        await yard.empty()


async def test_a_silent_redis_is_waited_out_too(yard: Yard, redis_proxy: Proxy):
    service = yard.service(redis_url=redis_proxy.url, REDIS__TIMEOUT="200ms")
    async with yard.dispatcher(service):
        await yard.inline([b"first"])
        await yard.delivers([b"first"])
        redis_proxy.blackhole()
        await yard.inline([b"second"])
        await eventually(lambda: counted(service, "loop_errors_total", loop="dispatch") > 1, described="it notices")
        assert service.alive().ok
        await redis_proxy.heal()
        await yard.delivers([b"first", b"second"])


async def test_a_redis_that_falls_silent_within_a_round_costs_one_wait_not_one_a_queue(
    yard: Yard, redis_proxy: Proxy, monkeypatch
):
    """Each queue's turn would find it out by timeouts of its own: with hundreds of them the round would seem to hang,
    and all dispatchers would be restarted for an outage that no restart heals."""
    service = yard.service(redis_url=redis_proxy.url, REDIS__TIMEOUT="200ms", DISPATCHER__QUEUE_CONCURRENCY="2")
    service._gate.opened = True
    for n in range(20):
        await yard.inline([b"due"], f"q{n}")
    due, claim, asked = Ledger.due, Ledger.claim, []

    async def then_silence(self: Ledger, limit: int) -> DueQueues:
        found = await due(self, limit)
        assert len(found.queues) == 20
        redis_proxy.blackhole()
        return found

    async def counting(self: Ledger, queue: str, request: ClaimRequest) -> Claimed:
        asked.append(queue)
        return await claim(self, queue, request)

    monkeypatch.setattr(Ledger, "due", then_silence)
    monkeypatch.setattr(Ledger, "claim", counting)
    with pytest.raises(RetryLater):
        await service._dispatcher.round()
    assert len(asked) == 2
    await redis_proxy.heal()
    await service.close()


async def test_a_restart_of_redis_needs_no_repair(own_redis, s3_server):
    """It forgot all scripts and connections; what its AOF holds is all that is needed."""
    server = own_redis(appendonly=True, appendfsync="always")
    async with a_yard(server.url, s3_server) as yard, yard.dispatcher() as service:
        await yard.inline([b"before"])
        await yard.offloaded(PAYLOADS)
        await yard.inline([b"after"], in_ms=1500)
        await yard.delivers([b"before", *PAYLOADS])
        server.kill()
        await eventually(lambda: counted(service, "loop_errors_total", loop="dispatch"), described="it notices")
        server.restart()
        await yard.redis.connection_pool.disconnect()
        await yard.delivers([b"before", *PAYLOADS, b"after"])
        assert service.alive().ok
        await yard.empty()


async def test_with_redis_full_due_jobs_flow_within_the_overdraft(own_redis, s3_server):
    """Guarantee 10. Inline jobs move inside Redis; offloaded ones bring bytes in, so that only a short list is fed."""
    server = own_redis(maxmemory="32mb")
    async with a_yard(server.url, s3_server) as yard:
        payloads = [b"%03d" % n + b"x" * 2000 for n in range(160)]
        inline = [b"inline %03d" % n for n in range(100)]
        await yard.ledger.pause(QUEUE)
        await yard.ledger.pause("inline")
        await yard.offloaded(payloads)
        await yard.inline(inline, "inline")
        service = yard.service("all", DISPATCHER__OVERDRAFT_JOBS="50")
        async with yard.dispatcher(service):
            await fill(yard)
            with pytest.raises(RetryLater) as refused:
                await service.producer.enqueue(b"x" * 400, queue="new", delay="0s")
            assert refused.value.code == "redis-full"
            await yard.ledger.resume("inline")
            await yard.ledger.resume(QUEUE)
            await yard.delivers(inline, "inline")
            await eventually(lambda: _ready(yard, 50), described="the overdraft is used")
            await eventually(lambda: counted(service, "queues_suspended", cause="redis_full") == 1)
            assert await _ready(yard, 50)
            assert counted(service, "jobs_total", outcome="retried") == 0
            assert counted(service, "overdraft_total", queue=QUEUE) == 50
            got: set[bytes] = set()

            async def consumed() -> bool:
                popped = await yard.redis.rpop(yard.keys.queue(QUEUE).ready, 10)
                assert not got & set(popped or ()), "delivered twice"
                got.update(popped or ())
                return got == set(payloads)

            await eventually(consumed, within_s=30, described="all flow while they are consumed")
            assert await yard.size("dead") == 0


async def _ready(yard: Yard, length: int) -> bool:
    found = await yard.redis.llen(yard.keys.queue(QUEUE).ready)
    assert found == length, found
    return True


async def fill(yard: Yard) -> None:
    """Writes until Redis refuses."""
    for size_bytes in (50_000, 100):
        with suppress(OutOfMemoryError):
            for number in range(10_000):
                await yard.redis.set(f"ballast:{size_bytes}:{number}", b"x" * size_bytes)
