"""What a handler may do to the worker that runs it: nothing. Its hand goes on, and the job has its verdict."""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest

from service.worker import Context, Retry, Worker
from tests.kit.workers import QUEUE, Log, Workshop, envelope

VISITOR: ContextVar[str] = ContextVar("VISITOR", default="nobody")


async def cancels_itself() -> None:
    _this_task().cancel()
    await asyncio.sleep(0)


async def cancels_itself_at_its_end() -> None:
    _this_task().cancel()


async def cancels_itself_later() -> None:
    """As a timeout of a library does that forgets to call off its alarm."""
    asyncio.get_running_loop().call_later(0.05, _this_task().cancel)


async def cancels_itself_and_goes_on() -> None:
    _this_task().cancel()
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        return


async def interrupts() -> None:
    raise KeyboardInterrupt


def interrupts_in_a_thread() -> None:
    raise KeyboardInterrupt


async def ends_in_a_child() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_cancelled())


@pytest.mark.parametrize(
    "handler",
    [
        cancels_itself,
        cancels_itself_at_its_end,
        cancels_itself_later,
        cancels_itself_and_goes_on,
        interrupts,
        interrupts_in_a_thread,
        ends_in_a_child,
    ],
)
async def test_what_a_handler_does_to_its_own_task_ends_with_the_job(
    shop: Workshop, log: Log, handler: Callable[..., Any]
) -> None:
    """Were it the hand's task, such a job would end one hand after another, and given back in order each time, in one
    process after another. What follows shows whether a mark is left on the hand.
    """
    worker = Worker()
    worker.task("bad")(handler)

    @worker.task("cancelled")
    async def cancelled() -> None:
        raise asyncio.CancelledError

    @worker.task("note")
    async def note() -> None:
        await asyncio.sleep(0.1)
        log.add("note")

    async with shop.at_work(worker, concurrency=1) as work:
        await shop.push(QUEUE, envelope("bad", max_retries=0))
        await shop.push(QUEUE, envelope("cancelled", max_retries=0), envelope("note"))
        await log.has(1)
        await shop.idle()
        assert work.shift.alive().ok


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_context_variables_of_a_job_are_not_the_next_one_s(shop: Workshop, log: Log, kind: str) -> None:
    """Log lines of the one would bear the names of the other."""
    worker = Worker()

    def visit(context: Context) -> None:
        log.add(VISITOR.get())
        VISITOR.set(context.id)

    async def visit_async(context: Context) -> None:
        visit(context)

    worker.task("visit")(visit_async if kind == "async" else visit)
    async with shop.at_work(worker, concurrency=1):
        await shop.push(QUEUE, envelope("visit"), envelope("visit"))
        assert await log.has(2) == ["nobody", "nobody"]


async def test_a_body_that_nobody_ran_has_not_done_the_job(shop: Workshop) -> None:
    """A forgotten `await`, or a wrapper around a generator: taken for done, every job would be lost in silence."""
    worker = Worker()

    async def send() -> None:
        raise AssertionError("nobody awaits this")

    async def forgets_to_await() -> Any:
        return send()

    def walks() -> Any:
        return (each for each in "abc")

    worker.task("a")(forgets_to_await)
    worker.task("b")(walks)
    async with shop.at_work(worker):
        await shop.push(QUEUE, envelope("a", max_retries=0), envelope("b", max_retries=0))
        records = await shop.dead(count=2)
    assert {record["error"].partition(",")[0] for record in records} == {
        "TypeError: the handler returned a coroutine: define it with async def",
        "TypeError: the handler returned a generator",
    }


class Later(Retry):
    """As applications write them."""

    def __init__(self) -> None: ...


async def test_a_retry_of_an_application_s_own_kind_is_one(shop: Workshop, log: Log) -> None:
    worker = Worker()

    @worker.task("busy")
    def busy(context: Context) -> None:
        log.add(context.attempt)
        if not context.attempt:
            raise Later

    async with shop.at_work(worker), shop.dispatching():
        await shop.push(QUEUE, envelope("busy"))
        assert await log.has(2) == [0, 1]


def mute() -> BaseException:
    class Mute(Exception):
        def __str__(self) -> str:
            raise SystemExit(3)

    return Mute()


def crooked() -> BaseException:
    error = SyntaxError("why")
    error.text = 5  # type: ignore[assignment]  # as parsers of other languages do
    error.lineno = "a"  # type: ignore[assignment]  # likewise
    return error


def chained() -> BaseException:
    error = ValueError("first")
    for number in range(5_000):
        following = ValueError(number)
        following.__cause__ = error
        error = following
    return error


def crowded() -> BaseException:
    return ExceptionGroup("many", [ValueError(number) for number in range(20_000)])


def nested() -> BaseException:
    error: Exception = ValueError("inmost")
    for _ in range(3_000):
        error = ExceptionGroup("one in another", [error])
    return error


@pytest.mark.parametrize("error", [mute, crooked, chained, crowded, nested])
async def test_an_error_of_any_shape_is_an_attempt_that_failed(
    shop: Workshop, error: Callable[[], BaseException]
) -> None:
    """What is kept of it is asked of it; what it answers must not settle the job in its place."""
    worker = Worker()

    @worker.task("bad")
    async def bad() -> None:
        raise error()

    async with shop.at_work(worker, concurrency=1) as work:
        await shop.push(QUEUE, envelope("bad", max_retries=0))
        (record,) = await shop.dead()
        assert work.shift.alive().ok
    assert record["reason"] == "attempts_exhausted"
    assert 0 < len(record["traceback"]) <= 8_000


async def test_a_payload_that_is_wrong_in_very_many_places_is_refused_without_naming_each(shop: Workshop) -> None:
    """A million names took 1.3 GB and kept the worker for 4 s from giving a sign of life."""
    worker = Worker()

    @worker.task("numbers")
    async def numbers(payload: list[int]) -> None: ...

    async with shop.at_work(worker):
        await shop.push(QUEUE, envelope("numbers", ["x"] * 100_000))
        (record,) = await shop.dead(within_s=30)
    assert record["error"] == "not what 'numbers' takes: in 100,000 places"


def _this_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


async def _cancelled() -> None:
    raise asyncio.CancelledError
