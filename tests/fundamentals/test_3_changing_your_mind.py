"""Chapter 3. Until it is delivered, a job can be looked up, moved and taken back."""

from service.wiring import Service
from tests.kit.services import Consumer


async def test_a_waiting_job_can_be_looked_up(service: Service) -> None:
    accepted = await service.producer.enqueue(b"hello", queue="emails", delay="1m")
    job = await service.ledger.lookup(accepted.reference)
    assert job is not None
    assert (job.state, job.due_ms, job.attempts) == ("delayed", accepted.due_ms, 0)


async def test_a_cancelled_job_never_arrives(service: Service, consumer: Consumer) -> None:
    """`cancelled` is a promise, also when a dispatcher had the job in its hands at that moment."""
    accepted = await service.producer.enqueue(b"oops", queue="emails", delay="200ms")
    assert await service.ledger.cancel(accepted.reference) == "cancelled"
    assert await consumer.next("emails", within_s=0.5) is None


async def test_a_job_can_be_run_now(service: Service, consumer: Consumer) -> None:
    """A reschedule changes when a job is due, never its name."""
    accepted = await service.producer.enqueue(b"hurry", queue="emails", delay="1h")
    assert await service.ledger.reschedule(accepted.reference, await service.ledger.now_ms()) == "delayed"
    assert await consumer.next("emails") == b"hurry"


async def test_a_delivered_job_is_gone(service: Service, consumer: Consumer) -> None:
    """From here on it is the consumer's: Coatcheck keeps no history, and says so rather than guess."""
    accepted = await service.producer.enqueue(b"hello", queue="emails", delay="0s")
    assert await consumer.next("emails") == b"hello"
    assert await service.ledger.lookup(accepted.reference) is None
    assert await service.ledger.cancel(accepted.reference) == "gone"
