"""Fetched payloads gather while a delivery is under way, and wait for Redis as long as their leases last."""

import asyncio

import pytest

from service import outbox as module
from service.errors import RedisUnavailable
from service.outbox import Outbox, patiently
from service.records import Delivered, Delivery, Leased
from storage_backends.reference import Reference, new_uuid

NOW_MS = 1_000_000


class Redis:
    """Of a ledger, what the outbox uses. It answers when it may, and is away as often as it is told."""

    def __init__(self) -> None:
        self.clock = self
        self.batches: list[int] = []
        self.away = 0
        self.time_ms = NOW_MS
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    def now_ms(self) -> int:
        return self.time_ms

    async def deliver(self, queue: str, jobs) -> Delivered:
        self.batches.append(len(jobs))
        await self.may_answer.wait()
        if self.away:
            self.away -= 1
            raise RedisUnavailable("away")
        return Delivered(self.time_ms, [Delivery.DELIVERED] * len(jobs))


def a_job(token: float = NOW_MS + 60_000) -> Leased:
    return Leased(Reference("s3", "emails", 1, new_uuid()), token, 1)


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(module, "_PAUSE_MIN_S", 0.001)
    monkeypatch.setattr(module, "_PAUSE_MAX_S", 0.001)


@pytest.fixture
def redis():
    return Redis()


@pytest.fixture
def box(redis):
    return Outbox("emails", redis)


async def test_what_arrives_during_a_delivery_goes_together_with_the_next(box, redis):
    """A call a payload would cost Redis more than the payloads do."""
    redis.may_answer.clear()
    first = asyncio.create_task(box.deliver(a_job(), b"x"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    others = [asyncio.create_task(box.deliver(a_job(), b"x")) for _ in range(20)]
    await asyncio.sleep(0)
    redis.may_answer.set()
    outcomes = await asyncio.gather(first, *others)
    assert {outcome for outcome, _ in outcomes} == {Delivery.DELIVERED}
    assert redis.batches == [1, 20]
    assert box.idle


async def test_no_batch_is_heavier_than_a_script_may_take(box, redis):
    redis.may_answer.clear()
    waiting = [asyncio.create_task(box.deliver(a_job(), b"x" * 400_000)) for _ in range(6)]
    await asyncio.sleep(0)
    redis.may_answer.set()
    await asyncio.gather(*waiting)
    assert redis.batches == [2, 2, 2]


async def test_it_waits_for_redis(box, redis):
    redis.away = 5
    assert await box.deliver(a_job(), b"x") == (Delivery.DELIVERED, NOW_MS)
    assert redis.batches == [1] * 6


async def test_it_does_not_wait_beyond_the_lease(box, redis):
    """Then the job is somebody else's to deliver."""
    redis.away = 10**9
    with pytest.raises(RedisUnavailable):
        await box.deliver(a_job(token=NOW_MS), b"x")
    assert redis.batches == [1]
    assert box.idle


async def test_who_gives_up_waiting_takes_nobody_along(box, redis):
    redis.may_answer.clear()
    first, impatient, patient = (asyncio.create_task(box.deliver(a_job(), b"x")) for _ in range(3))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    impatient.cancel()
    redis.may_answer.set()
    assert (await first)[0] is (await patient)[0] is Delivery.DELIVERED
    assert impatient.cancelled()


@pytest.mark.parametrize("steps", [1, 2, 10], ids=["before it began", "when it began", "amid its tries"])
async def test_a_closed_outbox_tries_no_more_and_leaves_nobody_waiting(box, redis, steps):
    redis.away = 10**9
    waiting = [asyncio.create_task(box.deliver(a_job(), b"x")) for _ in range(3)]
    for _ in range(steps):
        await asyncio.sleep(0)
    await box.aclose()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(result, asyncio.CancelledError) for result in results)
    tried = len(redis.batches)
    await asyncio.sleep(0)
    assert len(redis.batches) == tried
    assert box.idle


async def test_other_errors_are_not_repeated(redis):
    async def fail() -> None:
        redis.batches.append(1)
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        await patiently(fail, redis, NOW_MS + 60_000)
    assert redis.batches == [1]
