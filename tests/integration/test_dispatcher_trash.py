"""The trash is emptied behind every job that ended, whatever the backend does meanwhile; and never before."""

import asyncio

import pytest

from service.ledger import Ledger
from storage_backends.base import AccessDenied
from storage_backends.reference import Reference, new_uuid
from tests.kit.proxy import Proxy
from tests.kit.waiting import eventually
from tests.kit.yards import QUEUE, Yard, a_yard, counted, hooked


@pytest.fixture
async def yard(redis_url, s3_server):
    async with a_yard(redis_url, s3_server) as yard:
        yield yard


async def put_off_by(yard: Yard, reference: Reference) -> float | None:
    """Seconds until the deletion of this payload is tried; None if it is not in the trash."""
    score = await yard.redis.zscore(yard.keys.queue(reference.queue).trash, str(reference))
    return None if score is None else (score - await yard.now_ms()) / 1000


async def test_payloads_go_when_their_jobs_are_delivered_cancelled_or_purged(yard: Yard):
    delivered, cancelled, dead = await yard.offloaded([b"delivered", b"cancelled", b"dead"], in_ms=60_000)
    (living,) = await yard.offloaded([b"living"], "living", in_ms=60_000)
    async with yard.dispatcher() as service:
        await yard.ledger.reschedule(delivered, await yard.now_ms())
        await yard.ledger.cancel(cancelled)
        await bury(yard, dead)
        await yard.delivers([b"delivered"])
        await eventually(
            lambda: _objects_are(yard, dead, living), described="only those of living and dead jobs are left"
        )
        await yard.ledger.purge(QUEUE, [str(dead)])
        await eventually(lambda: _objects_are(yard, living), described="the purged one is gone, too")
        await eventually(lambda: counted(service, "trash_deleted_total", backend="s3") == 3)
        await yard.empty()


async def test_deletions_wait_while_their_backend_is_away(yard: Yard, s3_server, monkeypatch):
    """Nothing is forgotten: what could not be deleted stays in the trash until it can be."""
    monkeypatch.setattr("service.trash.PUT_OFF_MS", 300)
    async with Proxy(s3_server.port) as proxy:
        yard.s3_url = proxy.http_url
        async with yard.dispatcher() as service:
            async with proxy.down():
                jobs = await yard.offloaded([b"%d" % n for n in range(10)], in_ms=60_000)
                for job in jobs:
                    await yard.ledger.cancel(job)
                await eventually(lambda: counted(service, "trash_failures_total") > 0, described="it fails")
                assert await yard.size("trash") == 10
                assert service.alive().ok
            await yard.empty()


async def test_a_backend_that_nobody_configured_keeps_its_payloads_for_now(yard: Yard):
    """It may be configured again in an hour, or be another process's."""
    (job,) = await yard.offloaded([b"x"], backend="elsewhere", in_ms=60_000, stored=False)
    async with yard.dispatcher():
        await yard.ledger.cancel(job)
        await eventually(lambda: _put_off(yard, job, 3500, 3601), described="it is put off for an hour")


async def test_a_process_that_dies_between_deletion_and_empty_trash_does_no_harm(yard: Yard, monkeypatch):
    """The next one deletes once more what is gone already."""
    monkeypatch.setattr("service.trash.PUT_OFF_MS", 300)
    emptied = Ledger.empty_trash
    died = asyncio.Event()

    async def die(self: Ledger, queue: str, members) -> int:
        monkeypatch.setattr(Ledger, "empty_trash", emptied)
        died.set()
        raise RuntimeError("as if it had been killed here")

    monkeypatch.setattr(Ledger, "empty_trash", die)
    (job,) = await yard.offloaded([b"x"])
    async with yard.dispatcher() as service:
        await died.wait()
        assert await yard.objects() == []
        assert await put_off_by(yard, job) is not None
        await yard.empty()
        assert service.alive().ok


async def test_one_payload_that_cannot_be_deleted_keeps_no_other_in_the_trash(yard: Yard):
    """A locked object among a thousand: they are deleted in one request, and would fail together for ever."""
    service = yard.service()
    backend = hooked(service)
    jobs = await yard.offloaded([b"%d" % n for n in range(50)], in_ms=60_000)
    locked = jobs[17]

    async def lock(reference: Reference) -> None:
        if reference == locked:
            raise AccessDenied("object lock", backend="s3", reference=reference)

    backend.before_delete = lock
    async with yard.dispatcher(service):
        for job in jobs:
            await yard.ledger.cancel(job)
        await eventually(lambda: _objects_are(yard, locked), described="the others are deleted")
        await eventually(lambda: _only(yard, locked), described="the others are forgotten")
        assert await eventually(lambda: put_off_by(yard, locked)) > 50
        assert len(backend.deletes) < 60


async def test_an_error_that_the_backend_has_no_name_for_does_not_end_the_loop(yard: Yard, monkeypatch):
    """Other people's backends raise what they like."""
    monkeypatch.setattr("service.trash.PUT_OFF_MS", 100)
    service = yard.service()
    backend = hooked(service)

    async def break_down(_: Reference) -> None:
        raise RuntimeError("no name for this")

    backend.before_delete = break_down
    (job,) = await yard.offloaded([b"x"], in_ms=60_000)
    async with yard.dispatcher(service):
        await yard.ledger.cancel(job)
        await eventually(lambda: len(backend.deletes) > 3, described="it is tried again and again")
        assert service.alive().ok
        assert counted(service, "loop_errors_total", loop="trash") == 0
        assert await yard.size("trash") == 1


async def test_another_queues_reference_in_the_trash_deletes_nothing(yard: Yard):
    """No script puts it there. The payload that it names may be needed by a living job."""
    (living,) = await yard.offloaded([b"living"], "living", in_ms=60_000)
    await yard.redis.zadd(yard.keys.queue(QUEUE).trash, {str(living): 1, b"\xffno reference": 1})
    await yard.ledger.repair([QUEUE])
    async with yard.dispatcher():

        async def gone() -> bool:
            return await yard.size("trash") == 0

        await eventually(gone, described="it is taken out")
        assert await yard.objects() == [yard.key_of(living)]


async def test_undeletable_trash_makes_no_round_without_a_pause(yard: Yard, s3_server):
    async with Proxy(s3_server.port) as proxy:
        yard.s3_url = proxy.http_url
        async with yard.dispatcher() as service, proxy.down():
            for _ in range(20):
                reference = Reference("s3", QUEUE, await yard.now_ms(), new_uuid())
                await yard.redis.zadd(yard.keys.queue(QUEUE).trash, {str(reference): 1})
            await yard.ledger.repair([QUEUE])
            await eventually(lambda: counted(service, "trash_failures_total") == 20, described="all have failed")
            rounds, began_ms = counted(service, "loop_rounds_total"), await yard.now_ms()

            async def later() -> bool:
                return await yard.now_ms() > began_ms + 1000

            await eventually(later, described="a second is over")
            assert counted(service, "loop_rounds_total") - rounds < 45, "of all loops, ten of them the dispatcher's"


async def bury(yard: Yard, reference: Reference) -> None:
    """As a hand would: the job dies."""
    keys = yard.keys.queue(reference.queue)
    await yard.redis.zrem(keys.delayed, str(reference))
    await yard.redis.zadd(keys.dead, {str(reference): await yard.now_ms()})


async def _objects_are(yard: Yard, *references: Reference) -> bool:
    found = await yard.objects()
    assert found == sorted(map(yard.key_of, references)), f"{len(found)} objects"
    return True


async def _only(yard: Yard, reference: Reference) -> bool:
    return await yard.redis.zrange(yard.keys.queue(QUEUE).trash, 0, -1) == [str(reference).encode()]


async def _put_off(yard: Yard, reference: Reference, least_s: float, most_s: float) -> bool:
    wait_s = await put_off_by(yard, reference)
    assert wait_s is not None
    return least_s < wait_s < most_s
