"""Chapter 7. Handlers: a finished consumer, for those who want one."""

import asyncio

from service.wiring import Service
from service.worker import Context, Worker
from service.worker.opening import at_work
from tests.kit.waiting import eventually


async def test_a_task_is_done_by_the_handler_of_its_type(service: Service) -> None:
    worker, sent = Worker(), asyncio.Queue[str]()

    @worker.task("send_email")
    async def send(payload: dict[str, str]) -> None:
        await sent.put(payload["to"])

    async with at_work(worker, {"emails": 1}, service.settings):
        await service.producer.enqueue_task("send_email", {"to": "me"}, queue="emails", delay="100ms")
        assert await sent.get() == "me"


async def test_what_fails_waits_in_the_delayed_store_and_is_tried_again(service: Service) -> None:
    """Under the same id, so that a handler can tell that it has seen this job before."""
    worker, attempts = Worker(), asyncio.Queue[tuple[str, int]]()

    @worker.task("flaky", backoff=("10ms", "20ms"))
    async def flaky(context: Context) -> None:
        await attempts.put((context.id, context.attempt))
        if context.attempt < 2:
            raise OSError("not yet")

    async with at_work(worker, {"emails": 1}, service.settings):
        await service.producer.enqueue_task("flaky", None, queue="emails")
        seen = [await attempts.get() for _ in range(3)]
    assert [attempt for _, attempt in seen] == [0, 1, 2]
    assert len({job for job, _ in seen}) == 1


async def test_what_fails_too_often_is_dead_and_says_why(service: Service) -> None:
    worker = Worker()

    @worker.task("broken")
    async def broken() -> None:
        raise ValueError("it never works")

    async def dead() -> list[str]:
        page = await service.ledger.page("emails", "dead", 10)
        return [job.error or "" for _, job in page.members]

    async with at_work(worker, {"emails": 1}, service.settings):
        await service.producer.enqueue_task("broken", None, queue="emails", max_retries=0)
        assert await eventually(dead, described="the job is dead") == ["ValueError: it never works"]


async def test_a_worker_that_stops_gives_back_what_it_has_not_begun(service: Service, redis_client) -> None:
    """And finishes what it has begun: nothing is lost, and nothing is done twice."""
    worker, begun, end = Worker(), asyncio.Event(), asyncio.Event()

    @worker.task("slow")
    async def slow() -> None:
        begun.set()
        await end.wait()

    async with at_work(worker, {"emails": 1}, service.settings, concurrency=1):
        for _ in range(3):
            await service.producer.enqueue_task("slow", None, queue="emails")
        await begun.wait()
        asyncio.get_running_loop().call_later(0.1, end.set)
    ready = "coatcheck:{emails}:ready"
    await eventually(lambda: _has(redis_client, ready, 2), described="two jobs wait for the next worker")


async def _has(redis_client, key: str, count: int) -> bool:
    return await redis_client.llen(key) == count
