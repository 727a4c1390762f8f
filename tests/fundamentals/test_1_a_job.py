"""Chapter 1. A job is a payload, a queue and a due time."""

import pytest

from service.errors import InvalidQueue, InvalidTime
from service.wiring import Service
from storage_backends.reference import Reference
from tests.kit.services import Consumer


async def test_a_job_comes_out_of_its_ready_queue_when_it_is_due(service: Service, consumer: Consumer) -> None:
    """Any program that can pop from a Redis list is a consumer. The payload is opaque bytes, delivered unchanged."""
    await service.producer.enqueue(b"\x00 any bytes \xff", queue="emails", delay="100ms")
    assert await consumer.next("emails") == b"\x00 any bytes \xff"


async def test_a_job_is_named_by_its_reference(service: Service) -> None:
    """Backend, queue, due time, uuid: all that the delayed set holds of a job, and enough to find its payload again."""
    due_ms = await service.ledger.now_ms() + 60_000
    accepted = await service.producer.enqueue(b"hello", queue="emails", due=due_ms)
    backend, queue, ts, uuid = str(accepted.reference).split("::")
    assert (backend, queue, int(ts)) == ("redis", "emails", due_ms)
    assert Reference.parse(f"{backend}::{queue}::{ts}::{uuid}") == accepted.reference


async def test_a_job_whose_time_has_passed_is_due_now(service: Service, consumer: Consumer) -> None:
    await service.producer.enqueue(b"late", queue="emails", due="2020-01-01T00:00:00Z")
    assert await consumer.next("emails") == b"late"


async def test_what_cannot_be_is_refused_and_leaves_nothing_behind(service: Service, consumer: Consumer) -> None:
    """Bad input gets a clear error before anything is written."""
    with pytest.raises(InvalidQueue, match="separates the fields"):
        await service.producer.enqueue(b"", queue="a::b", delay="1s")
    with pytest.raises(InvalidTime):
        await service.producer.enqueue(b"", queue="emails", delay="30")
    with pytest.raises(InvalidTime):
        await service.producer.enqueue(b"", queue="emails")
    assert await service.census.number_of_queues() == 0
