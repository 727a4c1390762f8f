"""The slow pass: it heals the index, and trims dead sets, payloads included."""

import pytest

from service.wiring import Service
from storage_backends.reference import Reference, new_uuid
from tests.kit.waiting import eventually
from tests.kit.yards import QUEUE, Yard, a_yard, counted


@pytest.fixture
async def yard(redis_url, s3_server):
    async with a_yard(redis_url, s3_server) as yard:
        yield yard


@pytest.fixture(autouse=True)
def _often(monkeypatch):
    monkeypatch.setattr("service.wiring.HOUSEKEEPING_S", 0.2)


async def dead_jobs(yard: Yard, count: int, *, died_ms: int, stored: bool = False) -> list[Reference]:
    """Jobs that died one millisecond after another, from `died_ms` on."""
    references = [Reference("s3", QUEUE, 1_000_000_000_000 + n, new_uuid()) for n in range(count)]
    if stored:
        for reference in references:
            await yard.shelf.put(reference, b"payload")
    keys = yard.keys.queue(QUEUE)
    await yard.redis.zadd(keys.dead, {str(each): died_ms + n for n, each in enumerate(references)})
    await yard.redis.hset(keys.trouble, mapping={each.uuid: '{"attempts":8,"expiries":0}' for each in references})
    await yard.ledger.repair([QUEUE])
    return references


async def dead_are(yard: Yard, references: list[Reference]) -> bool:
    found = await yard.redis.zrange(yard.keys.queue(QUEUE).dead, 0, -1)
    assert found == [str(each).encode() for each in references], len(found)
    return True


async def test_a_queue_that_a_hand_took_out_of_the_index_comes_back(yard: Yard):
    """Its due jobs would wait for ever: nobody would look."""
    await yard.inline([b"x"])
    await yard.redis.zrem(yard.keys.queues, QUEUE)
    async with yard.dispatcher() as service:
        await yard.delivers([b"x"])
        await eventually(lambda: counted(service, "index_repairs_total") == 1)


async def test_a_queue_that_the_index_shows_too_late_is_put_right(yard: Yard):
    await yard.inline([b"x"])
    await yard.redis.zadd(yard.keys.queues, {QUEUE: 9e12})
    async with yard.dispatcher():
        await yard.delivers([b"x"])


async def test_an_index_that_is_gone_altogether_is_written_anew(yard: Yard):
    for number in range(50):
        await yard.inline([b"x"], f"q{number}")
    await yard.redis.delete(yard.keys.queues)
    async with yard.dispatcher():
        for number in range(50):
            await yard.delivers([b"x"], f"q{number}")


async def test_a_queue_name_that_is_none_does_no_harm(yard: Yard):
    """A hand may write anything into the index."""
    await yard.redis.zadd(yard.keys.queues, {b"\xff\xfe": 1, "no queue::": 1, "": 1})
    await yard.inline([b"x"])
    async with yard.dispatcher() as service:
        await yard.delivers([b"x"])

        async def cleared() -> bool:
            return await yard.redis.zcard(yard.keys.queues) == 0

        await eventually(cleared, described="what owns nothing leaves the index")
        assert service.alive().ok


async def test_the_dead_are_trimmed_by_number_the_oldest_first(yard: Yard):
    """Else dead sets grow without a bound. It is counted and logged, and their payloads go with them."""
    references = await dead_jobs(yard, 30, died_ms=await yard.now_ms() - 1000, stored=True)
    async with yard.dispatcher(DEAD__MAX_COUNT="10") as service:
        await eventually(lambda: dead_are(yard, references[20:]), described="ten are left")
        await eventually(lambda: counted(service, "dead_trimmed_total", queue=QUEUE) == 20)

        async def deleted() -> bool:
            return len(await yard.objects()) == 10

        await eventually(deleted, described="the others' payloads are deleted")
        assert await yard.redis.hlen(yard.keys.queue(QUEUE).trouble) == 10


async def test_the_dead_are_trimmed_by_age(yard: Yard):
    old = await dead_jobs(yard, 5, died_ms=await yard.now_ms() - 61_000)
    young = await dead_jobs(yard, 5, died_ms=await yard.now_ms() - 10_000)
    async with yard.dispatcher(DEAD__MAX_AGE="1m"):
        await eventually(lambda: dead_are(yard, young), described=f"{len(old)} are trimmed")


async def test_a_pass_trims_only_so_much(yard: Yard, monkeypatch):
    """A pass over millions would look as if it hung; the next ones do the rest."""
    monkeypatch.setattr("service.housekeeping._TRIM_PAGE", 10)
    monkeypatch.setattr("service.housekeeping._TRIM_PAGES", 2)
    monkeypatch.setattr("service.wiring.HOUSEKEEPING_S", 60.0)
    references = await dead_jobs(yard, 100, died_ms=await yard.now_ms() - 1000)
    service: Service = yard.service(DEAD__MAX_COUNT="10")
    async with yard.dispatcher(service):
        await eventually(lambda: dead_are(yard, references[20:]), described="one pass has trimmed two pages")


async def test_a_dead_set_of_another_type_hides_no_other(yard: Yard):
    await yard.redis.set(yard.keys.queue("broken").dead, "no zset")
    await yard.redis.zadd(yard.keys.queues, {"broken": "inf"})
    references = await dead_jobs(yard, 30, died_ms=await yard.now_ms() - 1000)
    async with yard.dispatcher(DEAD__MAX_COUNT="10") as service:
        await eventually(lambda: dead_are(yard, references[20:]), described="ten are left")
        assert service.alive().ok
