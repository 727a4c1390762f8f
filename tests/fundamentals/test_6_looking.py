"""Chapter 6. Where did my job go? Looking changes nothing."""

from service.wiring import Service
from tests.kit.services import Consumer


async def test_a_queue_says_how_many_jobs_it_holds_in_each_state(service: Service) -> None:
    for delay in ("1m", "2m", "3m"):
        await service.producer.enqueue(b"hello", queue="emails", delay=delay)
    (counts,) = await service.census.counts(["emails"])
    assert not isinstance(counts, Exception)
    assert (counts.future, counts.overdue, counts.leased, counts.ready, counts.dead) == (3, 0, 0, 0, 0)


async def test_metrics_tell_where_payloads_went_and_how_late_they_arrived(service: Service, consumer: Consumer) -> None:
    await service.producer.enqueue(b"hello", queue="emails", delay="0s")
    assert await consumer.next("emails")
    await service.gauges.refresh()
    text = service.metrics.render()[0].decode()
    assert 'coatcheck_routing_decisions_total{backend="redis",reason="tiny"} 1.0' in text
    assert 'coatcheck_reenqueue_lateness_seconds_count{backend="redis",queue="emails"} 1.0' in text


async def test_everything_that_ended_leaves_no_key_behind(service: Service, redis_client, consumer: Consumer) -> None:
    """What is left is the installation's own mark."""
    await service.producer.enqueue(b"hello", queue="emails", delay="0s")
    assert await consumer.next("emails")
    assert await redis_client.keys("*") == [b"coatcheck:meta"]
