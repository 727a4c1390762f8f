"""Tasks as producers hand them over."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from service.errors import IdempotencyKeyReused, InvalidBody, InvalidQueue, InvalidTime
from service.producing import SyncProducer
from service.worker import Context, Worker
from tests.kit.waiting import eventually
from tests.kit.workers import QUEUE, Log, Workshop


class Email(BaseModel):
    to: str


class Odd(BaseModel):
    """What JSON cannot say."""

    what: Any = object()


async def test_a_task_reaches_its_handler_when_it_is_due(shop: Workshop, log: Log) -> None:
    worker = Worker()

    @worker.task("send_email")
    async def send(email: Email, context: Context) -> None:
        log.add((email.to, context.max_retries))

    async with shop.dispatching() as service, shop.at_work(worker):
        await service.producer.enqueue_task("send_email", Email(to="later"), queue=QUEUE, delay="200ms")
        await service.producer.enqueue_task("send_email", {"to": "now"}, queue=QUEUE, max_retries=1)
        assert await log.has(2) == [("now", 1), ("later", 8)]


async def test_ours_is_read_by_the_same_facts_as_theirs(shop: Workshop) -> None:
    """A worker in another language pops the list and knows five fields."""
    async with shop.dispatching() as service:
        await service.producer.enqueue_task("send_email", {"to": "me"}, queue=QUEUE)
        raw: Any = await eventually(lambda: shop.redis.execute_command("RPOP", "coatcheck:{emails}:ready"))
    told = json.loads(raw)
    assert told["task"] == {"type": "send_email", "payload": {"to": "me"}}
    assert (told["queue"], told["max_retries"], told["attempt"]) == (QUEUE, 8, 0)
    assert isinstance(told["id"], str)


async def test_the_same_key_is_the_same_task(shop: Workshop) -> None:
    """A repeated request must neither make a second job nor be refused for an id that differs."""
    async with shop.dispatching() as service:

        async def enqueue(number: int) -> Any:
            return await service.producer.enqueue_task(
                "charge", number, queue=QUEUE, delay="1h", idempotency_key="order-7"
            )

        first, again = await enqueue(1), await enqueue(1)
        assert again.reference == first.reference
        assert again.replayed
        with pytest.raises(IdempotencyKeyReused):
            await enqueue(2)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"payload": {1}}, InvalidBody),
        ({"payload": Odd()}, InvalidBody),
        ({"queue": "a::b"}, InvalidQueue),
        ({"delay": "1h", "due": 1_900_000_000_000}, InvalidTime),
        ({"delay": "soon"}, InvalidTime),
        ({"type_": ""}, InvalidBody),
    ],
)
async def test_what_cannot_be_a_task_is_refused_and_leaves_nothing(
    shop: Workshop, given: dict[str, Any], error: type[Exception]
) -> None:
    async with shop.dispatching() as service:
        with pytest.raises(error):
            await service.producer.enqueue_task(**{"type_": "a", "payload": None, "queue": QUEUE, **given})
        assert not await shop.redis.exists(shop.keys.queues)


async def test_code_that_does_not_await_hands_over_tasks_as_well(shop: Workshop, log: Log) -> None:
    worker = Worker()
    worker.task("note")(log.add)
    async with shop.dispatching(), shop.at_work(worker):
        with SyncProducer(shop.settings()) as producer:
            await asyncio.to_thread(producer.enqueue_task, "note", [1, 2], queue=QUEUE, delay="10ms")
        assert await log.has(1) == [[1, 2]]


def test_a_handler_that_could_never_be_called_is_refused_when_it_is_registered() -> None:
    """At import, not when the first job comes."""
    worker = Worker()
    with pytest.raises(TypeError, match="no more"):
        worker.task("a")(lambda payload, more: None)
    with pytest.raises(ValueError, match="not a duration"):
        worker.task("a", timeout="30")(lambda payload: None)
    with pytest.raises(TypeError, match="shortest and the longest"):
        worker.task("a", backoff="5s")(lambda payload: None)  # type: ignore[arg-type]  # as applications do
    worker.task("a")(lambda payload: None)
    with pytest.raises(ValueError, match="two handlers"):
        worker.task("a")(lambda payload: None)

    def typed(payload: Email) -> None: ...

    with pytest.raises(TypeError, match="bytes"):
        worker.raw("legacy")(typed)


@pytest.mark.parametrize("type_", ["", "x" * 513, "\ud800"])
def test_a_type_that_no_envelope_could_have_is_refused_when_it_is_registered(type_: str) -> None:
    """A lone surrogate could be in one; but it is no label of a metric, and would spoil all the others' page."""
    with pytest.raises(ValueError, match="a text of 1 to 512 characters"):
        Worker().task(type_)


def test_a_task_without_its_parentheses_is_refused() -> None:
    """Nothing would be registered, and the handler's name would be that of a decorator."""
    with pytest.raises(TypeError, match="a task has a type"):

        @Worker().task  # type: ignore[arg-type]  # as people forget
        def send_email() -> None: ...

    with pytest.raises(ValueError, match="not a queue name"):
        Worker().raw("no queue")


def test_a_generator_is_refused_when_it_is_registered() -> None:
    def sends() -> Iterator[None]:
        yield

    async def sends_async() -> AsyncIterator[None]:
        yield

    for handler in (sends, sends_async):
        with pytest.raises(TypeError, match="yield"):
            Worker().task("send")(handler)
