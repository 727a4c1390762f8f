"""Chapter 4. A job is accepted once and handed over once."""

import pytest

from service.errors import IdempotencyKeyReused
from service.wiring import Service
from tests.kit.services import Consumer, running_service, settings_for


async def test_the_same_request_with_the_same_key_is_one_job(service: Service, consumer: Consumer) -> None:
    """A client that did not see the answer asks again, and gets the first one, also when that job is long delivered."""
    first = await service.producer.enqueue(b"pay", queue="payments", delay="50ms", idempotency_key="order-7")
    assert await consumer.next("payments") == b"pay"
    again = await service.producer.enqueue(b"pay", queue="payments", delay="50ms", idempotency_key="order-7")
    assert again.replayed
    assert again.reference == first.reference
    assert await consumer.next("payments", within_s=0.3) is None


async def test_a_key_that_means_something_else_is_refused(service: Service) -> None:
    await service.producer.enqueue(b"pay 10", queue="payments", delay="1m", idempotency_key="order-8")
    with pytest.raises(IdempotencyKeyReused):
        await service.producer.enqueue(b"pay 99", queue="payments", delay="1m", idempotency_key="order-8")


async def test_two_dispatchers_deliver_each_job_once(redis_url: str, consumer: Consumer) -> None:
    """Any number of them run side by side without a leader: claims are atomic."""
    environ = settings_for(redis_url)
    async with running_service(environ) as one, running_service(environ, "dispatcher"):
        for number in range(200):
            await one.producer.enqueue(b"%d" % number, queue="emails", delay="100ms")
        arrived = [await consumer.next("emails") for _ in range(200)]
        assert sorted(int(payload or b"-1") for payload in arrived) == list(range(200))
        assert await consumer.next("emails", within_s=0.3) is None
