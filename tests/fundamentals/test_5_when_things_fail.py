"""Chapter 5. What fails is kept, says why, and holds up nobody else."""

from service.keys import Keys
from service.wiring import Service
from storage_backends.reference import Reference
from tests.kit.s3_servers import S3Server
from tests.kit.services import Consumer
from tests.kit.waiting import eventually


async def test_a_job_without_its_payload_is_dead_and_says_why(
    service: Service, s3_server: S3Server, consumer: Consumer
) -> None:
    """Somebody emptied the bucket. The job goes where people look, and the next one is delivered as if nothing was."""
    lost = await service.producer.enqueue(b"x" * 20_000, queue="emails", delay="1h")
    _empty(s3_server, service)
    await service.ledger.reschedule(lost.reference, 0)
    await eventually(lambda: _is_dead(service, lost.reference), described="the job is dead")
    job = await service.ledger.lookup(lost.reference)
    assert job is not None
    assert job.reason == "payload_missing"
    await service.producer.enqueue(b"next", queue="emails", delay="0s")
    assert await consumer.next("emails") == b"next"


async def test_a_dead_job_can_be_given_another_life(service: Service, s3_server: S3Server, consumer: Consumer) -> None:
    """Its payload, if there is one, has been kept. Here somebody brings it back."""
    lost = await service.producer.enqueue(b"x" * 20_000, queue="emails", delay="1h")
    _empty(s3_server, service)
    await service.ledger.reschedule(lost.reference, 0)
    await eventually(lambda: _is_dead(service, lost.reference), described="the job is dead")
    await service.backends["s3"].put(lost.reference, b"found again")
    assert await service.ledger.revive("emails", [str(lost.reference)]) == 1
    assert await consumer.next("emails") == b"found again"


async def test_a_ready_key_of_the_wrong_type_stops_its_own_queue_only(
    service: Service, redis_client, consumer: Consumer
) -> None:
    """Nothing is popped and lost: the job stays where it is until somebody has put things right."""
    await redis_client.set(Keys().queue("broken").ready, "no list")
    stuck = await service.producer.enqueue(b"stuck", queue="broken", delay="0s")
    await service.producer.enqueue(b"fine", queue="emails", delay="0s")
    assert await consumer.next("emails") == b"fine"
    job = await service.ledger.lookup(stuck.reference)
    assert job is not None
    assert job.state == "delayed"


async def _is_dead(service: Service, reference: Reference) -> bool:
    job = await service.ledger.lookup(reference)
    return job is not None and job.state == "dead"


def _empty(store: S3Server, service: Service) -> None:
    bucket = service.settings.backends["s3"].options.bucket
    for key in store.keys(bucket):
        if not key.endswith("INSTALLATION"):
            store.client.delete_object(Bucket=bucket, Key=key)
