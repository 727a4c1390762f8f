"""Chapter 2. Redis keeps the order, other systems keep the bytes: the router decides, the reference remembers."""

from service.wiring import Service
from tests.kit.services import Consumer


async def test_a_small_and_short_job_stays_in_redis(service: Service) -> None:
    accepted = await service.producer.enqueue(b"x" * 1000, queue="emails", delay="1m")
    assert (accepted.backend, accepted.reason) == ("redis", "small_and_short")


async def test_a_large_payload_goes_to_the_backend(service: Service) -> None:
    accepted = await service.producer.enqueue(b"x" * 20_000, queue="emails", delay="1m")
    assert (accepted.backend, accepted.reason) == ("s3", "large")


async def test_a_payload_that_waits_long_goes_to_the_backend(service: Service) -> None:
    accepted = await service.producer.enqueue(b"x" * 1000, queue="emails", delay="1h")
    assert (accepted.backend, accepted.reason) == ("s3", "long")


async def test_a_tiny_payload_is_not_worth_a_trip(service: Service) -> None:
    """A reference alone costs Redis 176 bytes, so that sending fewer than 512 away saves nothing."""
    accepted = await service.producer.enqueue(b"x", queue="emails", delay="7d")
    assert (accepted.backend, accepted.reason) == ("redis", "tiny")


async def test_a_consumer_does_not_see_the_difference(service: Service, consumer: Consumer) -> None:
    """The dispatcher asks the backend that the reference names, and puts the payload itself on the ready queue."""
    payload = bytes(range(256)) * 100
    accepted = await service.producer.enqueue(payload, queue="emails", delay="50ms")
    assert accepted.backend == "s3"
    assert await consumer.next("emails") == payload
