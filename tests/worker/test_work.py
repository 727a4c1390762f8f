"""A worker at work: what handlers are handed, what becomes of their jobs, and what is left in Redis: nothing."""

import asyncio
import json
import threading
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from structlog.testing import capture_logs

from service.worker import Context, Discard, Retry, Worker
from tests.kit.waiting import eventually
from tests.kit.workers import QUEUE, Gate, Log, Workshop, both_kinds, envelope


class Email(BaseModel):
    to: str
    at: datetime | None = None


async def test_a_job_that_plain_redis_commands_enqueued_is_handled_and_leaves_nothing(shop: Workshop, log: Log) -> None:
    """A producer in another language knows the envelope and the list, and nothing else."""
    worker = Worker()

    @worker.task("send_email")
    async def send(payload: dict[str, Any], context: Context) -> None:
        log.add((payload, context))

    async with shop.at_work(worker):
        text = (
            '{"id":"7","task":{"type":"send_email","payload":{"to":"me"}},"queue":"emails","max_retries":3,"attempt":0}'
        )
        await shop.redis.execute_command("LPUSH", "coatcheck:{emails}:ready", text)
        await log.has(1)
    assert log.seen == [({"to": "me"}, Context("7", 0, QUEUE, "send_email", 3))]
    await shop.nothing_left()


@both_kinds
async def test_the_oldest_job_is_the_first(shop: Workshop, log: Log) -> None:
    worker = Worker()
    worker.task("note")(log.add)
    await shop.push(QUEUE, *(envelope("note", number) for number in range(50)))
    async with shop.at_work(worker, concurrency=1):
        assert await log.has(50) == list(range(50))


async def test_a_payload_is_what_the_handler_s_annotation_says(shop: Workshop, log: Log) -> None:
    worker = Worker()
    worker.task("send_email")(handler := _typed(log))
    assert handler.__annotations__["email"] is Email
    async with shop.at_work(worker):
        await shop.push(QUEUE, envelope("send_email", {"to": "me", "at": "2026-01-01T00:00:00Z"}))
        assert await log.has(1) == [Email(to="me", at=datetime(2026, 1, 1, tzinfo=UTC))]


def _typed(log: Log) -> Any:
    async def send(email: Email) -> None:
        log.add(email)

    return send


async def test_a_payload_that_its_model_refuses_is_dead_at_once_and_its_error_holds_nothing_of_it(
    shop: Workshop, log: Log
) -> None:
    """Another attempt would find the same payload; and error texts are shown in places where payloads are not."""
    worker = Worker()
    worker.task("send_email")(_typed(log))
    async with shop.at_work(worker):
        await shop.push(QUEUE, envelope("send_email", {"to": ["secret"]}))
        (record,) = await shop.dead()
    assert record["reason"] == "invalid_payload"
    assert "to: string_type" in record["error"]
    assert "secret" not in record["error"]
    assert not log.seen


async def test_plain_functions_run_in_threads_as_many_as_the_concurrency(shop: Workshop, log: Log) -> None:
    """A handler that blocks must hold up neither the loop nor the other handlers."""
    worker = Worker()
    barrier = threading.Barrier(5, timeout=20)

    @worker.task("meet")
    def meet(payload: int) -> None:
        barrier.wait()
        log.add(threading.current_thread().name)

    await shop.push(QUEUE, *(envelope("meet", number) for number in range(10)))
    async with shop.at_work(worker, concurrency=5):
        assert len(set(await log.has(10))) == 5


async def test_no_more_jobs_run_at_once_than_the_concurrency(shop: Workshop) -> None:
    worker, gate = Worker(), Gate()

    @worker.task("wait")
    async def wait() -> None:
        await gate.passed()

    await shop.push(QUEUE, *(envelope("wait") for _ in range(20)))
    async with shop.at_work(worker, concurrency=4):
        await eventually(lambda: gate.waiting == 4)
        for _ in range(20):
            await asyncio.sleep(0)
        assert gate.waiting == 4
        gate.open()
        await shop.idle()


@both_kinds
async def test_jobs_that_take_long_are_not_taken_ahead(shop: Workshop) -> None:
    """What lies in one worker's hands cannot be done by another that is idle."""
    worker, gate = Worker(), Gate()

    @worker.task("wait")
    async def wait() -> None:
        await gate.passed()

    async with shop.at_work(worker, concurrency=2):
        await shop.push(QUEUE, *(envelope("wait") for _ in range(4_000)))
        await eventually(lambda: gate.waiting == 2)
        (held,) = (await shop.inflight()).values()
        assert len(held) <= 4, "taken ahead"
        gate.open()
        await shop.idle(within_s=30)


@both_kinds
async def test_what_was_taken_ahead_goes_back_when_a_job_takes_longer_than_those_before_it(
    shop: Workshop, log: Log
) -> None:
    """A worker learns how long jobs take, and may be wrong: those behind a slow one must not wait for it here."""
    worker, gate = Worker(), Gate()

    @worker.task("quick")
    async def quick() -> None:
        log.add(1)

    @worker.task("wait")
    async def wait() -> None:
        await gate.passed()

    quick_ones = [envelope("quick") for _ in range(3_000)]
    await shop.push(QUEUE, *quick_ones[:1_000], envelope("wait"), *quick_ones[1_000:])
    async with shop.at_work(worker, concurrency=1):
        await eventually(lambda: gate.waiting == 1)

        async def alone() -> bool:
            held = {name: len(jobs) for name, jobs in (await shop.inflight()).items() if not name.startswith("~")}
            assert list(held.values()) == [1], held
            return True

        await eventually(alone)
        assert len(log.seen) == 1_000
        gate.open()
        await log.has(3_000, within_s=30)
        await shop.idle()


async def test_what_fails_is_tried_again_with_the_same_id_and_its_other_fields_as_they_were(
    shop: Workshop, log: Log
) -> None:
    worker = Worker()

    @worker.task("flaky")
    async def flaky(context: Context) -> None:
        log.add((context.id, context.attempt))
        if context.attempt < 2:
            raise OSError("no")

    async with shop.dispatching(), shop.at_work(worker):
        await shop.push(QUEUE, envelope("flaky", id="stable", trace={"span": 7}))
        assert await log.has(3) == [("stable", 0), ("stable", 1), ("stable", 2)]
    await shop.nothing_left()


async def test_a_retry_on_its_way_has_every_field_that_its_producer_wrote(shop: Workshop) -> None:
    worker = Worker()

    @worker.task("later")
    async def later() -> None:
        raise Retry(after="1h")

    raw = envelope("later", {"n": 1}, id="stable", trace={"span": 7})
    of = shop.keys.queue(QUEUE)
    async with shop.at_work(worker):
        await shop.push(QUEUE, raw)
        await eventually(lambda: shop.redis.zcard(of.delayed))
    (member, due) = (await shop.redis.zrange(of.delayed, 0, 0, withscores=True))[0]
    seconds, _ = await shop.redis.time()
    assert 3_500 < due / 1000 - seconds <= 3_601
    body = await shop.redis.hget(of.bodies, member[-36:])
    assert body == raw.replace(b'"attempt": 0', b'"attempt": 1')


@both_kinds
async def test_after_its_last_retry_a_job_is_dead_with_its_error_and_can_be_revived(shop: Workshop, log: Log) -> None:
    worker, fixed = Worker(), asyncio.Event()

    @worker.task("broken")
    async def broken(context: Context) -> None:
        log.add(context.attempt)
        if not fixed.is_set():
            raise ValueError("it is broken")

    async with shop.dispatching() as service, shop.at_work(worker):
        await shop.push(QUEUE, envelope("broken", id="stable", max_retries=2))
        (record,) = await shop.dead()
        assert log.seen == [0, 1, 2]
        assert (record["reason"], record["error"]) == ("attempts_exhausted", "ValueError: it is broken")
        assert (record["attempts"], record["id"], record["task"]) == (3, "stable", "broken")
        assert "in broken" in record["traceback"]
        job = await service.ledger.lookup(record["reference"])
        assert job is not None
        assert (job.state, job.reason, job.error) == ("dead", "attempts_exhausted", "ValueError: it is broken")
        fixed.set()
        assert await service.ledger.revive(QUEUE, [str(record["reference"])]) == 1
        assert (await log.has(4))[3] == 0, "a revived job has all its retries before it"
        await shop.idle()
    await shop.nothing_left()


async def test_an_error_and_its_traceback_are_kept_up_to_a_size(shop: Workshop) -> None:
    """An exception may carry a whole response body, and recursion a thousand frames."""
    worker = Worker()

    def deep(depth: int) -> None:
        if not depth:
            raise ValueError("x" * 100_000)
        deep(depth - 1)

    @worker.task("broken")
    async def broken() -> None:
        deep(300)

    async with shop.at_work(worker):
        await shop.push(QUEUE, envelope("broken", max_retries=0))
        (record,) = await shop.dead()
    assert len(record["error"]) == 1_000
    assert 1_000 < len(record["traceback"]) <= 8_000


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_traceback_begins_with_the_handler(shop: Workshop, kind: str) -> None:
    """What called it is always the same, and of no help."""
    worker = Worker()

    async def awaited() -> None:
        raise ValueError("no")

    def called() -> None:
        raise ValueError("no")

    worker.task("broken")(awaited if kind == "async" else called)
    async with shop.at_work(worker):
        await shop.push(QUEUE, envelope("broken", max_retries=0))
        (record,) = await shop.dead()
    first, frame, *_, last = record["traceback"].splitlines()
    assert first == "Traceback (most recent call last):"
    assert Path(__file__).name in frame
    assert last == "ValueError: no"


async def test_a_type_without_a_handler_is_dead_at_once(shop: Workshop, caplog: pytest.LogCaptureFixture) -> None:
    """Retrying would hide a deployment that forgot a module for hours."""
    async with shop.at_work(Worker()) as work:
        await shop.push(QUEUE, envelope("nobody_s"))
        (record,) = await shop.dead()
        shown = work.service.metrics.render()[0].decode()
    assert record["reason"] == "unknown_task"
    assert "nobody_s" in record["error"]
    assert 'coatcheck_buried_total{backend="redis",kind="unknown_task"} 1.0' in shown


@both_kinds
async def test_discard_ends_a_job_without_a_trace(shop: Workshop, log: Log) -> None:
    worker = Worker()

    @worker.task("moot")
    async def moot() -> None:
        log.add(1)
        raise Discard("nobody wants it any more")

    async with shop.at_work(worker):
        await shop.push(QUEUE, envelope("moot"))
        await log.has(1)
        await shop.idle()
    await shop.nothing_left()


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_an_attempt_that_takes_too_long_has_failed(shop: Workshop, kind: str) -> None:
    worker, end = Worker(), threading.Event()

    async def forever() -> None:
        await asyncio.Event().wait()

    def stuck() -> None:
        end.wait(30)

    worker.task("slow", timeout="50ms")(forever if kind == "async" else stuck)
    try:
        async with shop.at_work(worker):
            await shop.push(QUEUE, envelope("slow", max_retries=0))
            (record,) = await shop.dead()
            assert record["error"].startswith("TimeoutError")
    finally:
        end.set()


async def test_a_thread_that_goes_on_after_its_time_keeps_its_slot(shop: Workshop, log: Log) -> None:
    """A thread cannot be stopped: were its slot free, a hundred of them would hang beside each other."""
    worker, end = Worker(), threading.Event()

    @worker.task("stuck", timeout="50ms")
    def stuck() -> None:
        end.wait(30)
        log.add("stuck")

    worker.task("note")(lambda: log.add("note"))
    try:
        async with shop.at_work(worker, concurrency=1) as work:
            await shop.push(QUEUE, envelope("stuck", max_retries=0), envelope("note"))
            await shop.dead()
            assert log.seen == []
            await eventually(lambda: not work.shift.alive().ok, described="it says that it can do nothing any more")
            end.set()
            assert await log.has(2) == ["stuck", "note"]
            assert work.shift.alive().ok
    finally:
        end.set()


async def test_a_plain_function_that_fails_is_not_told_of_as_one_that_goes_on(shop: Workshop) -> None:
    """Who looks for what hangs must not find every failure."""
    worker = Worker()

    @worker.task("fails")
    def fails() -> None:
        raise RuntimeError

    with capture_logs() as logs:
        async with shop.at_work(worker):
            await shop.push(QUEUE, envelope("fails", max_retries=0))
            await shop.dead()
            await shop.idle()
    assert [each["event"] for each in logs if each["log_level"] != "info"] == ["job died"]


@pytest.mark.parametrize("error", [SystemExit, KeyError, asyncio.CancelledError, StopIteration, BaseExceptionGroup])
@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_whatever_a_handler_raises_its_worker_goes_on(
    shop: Workshop, log: Log, error: type[BaseException], kind: str
) -> None:
    worker = Worker()

    def raise_it() -> None:
        raise BaseExceptionGroup("many", [SystemExit(1)]) if error is BaseExceptionGroup else error("why")

    async def raise_it_async() -> None:
        raise_it()

    worker.task("bad")(raise_it_async if kind == "async" else raise_it)
    worker.task("note")(lambda: log.add("note"))
    async with shop.at_work(worker, concurrency=1):
        await shop.push(QUEUE, envelope("bad", max_retries=0), envelope("note"))
        await log.has(1)
        (record,) = await shop.dead()
    assert record["reason"] == "attempts_exhausted"


async def test_a_plain_function_that_returns_a_coroutine_has_not_done_the_job(shop: Workshop) -> None:
    """A plain wrapper around an `async def`: taken for done, every job would be lost in silence."""
    worker = Worker()

    async def send(payload: Any) -> None:
        raise AssertionError("nobody awaits this")

    worker.task("send")(partial(_call, send))
    async with shop.at_work(worker):
        await shop.push(QUEUE, envelope("send", max_retries=0))
        (record,) = await shop.dead()
    assert "async def" in record["error"]


@both_kinds
async def test_a_queue_s_raw_handler_gets_the_bytes_and_its_attempts_are_counted(shop: Workshop, log: Log) -> None:
    """What others put into a list before there was an envelope; it cannot say itself how often it was tried."""
    worker = Worker()

    @worker.raw("legacy")
    async def handle(payload: bytes, context: Context) -> None:
        log.add((payload, context.attempt))
        assert context.task == ""
        raise OSError("no")

    async with shop.dispatching(), shop.at_work(worker, "legacy", WORKER__MAX_RETRIES="2"):
        await shop.push("legacy", b"\x00\xff", b'{"not":"ours"}')
        records = await shop.dead("legacy", 2)
        assert sorted(log.seen) == sorted(
            (payload, attempt) for payload in (b"\x00\xff", b'{"not":"ours"}') for attempt in range(3)
        )
    assert {record["body"] for record in records} == {b"\x00\xff", b'{"not":"ours"}'}
    assert {record["error"] for record in records} == {"OSError: no"}
    assert not await shop.redis.exists(shop.keys.queue("legacy").strikes)


@both_kinds
async def test_a_finished_id_is_not_run_again(shop: Workshop, log: Log) -> None:
    worker = Worker()

    @worker.task("charge", once="1h")
    async def charge(payload: int) -> None:
        log.add(payload)

    async with shop.at_work(worker, concurrency=1):
        await shop.push(QUEUE, envelope("charge", 1, id="7"), envelope("charge", 2, id="7"), envelope("charge", 3))
        assert await log.has(2) == [1, 3]
        await shop.idle()
    assert await shop.redis.pttl(shop.keys.queue(QUEUE).once("7")) > 3_500_000


@both_kinds
async def test_a_job_that_fails_is_not_finished(shop: Workshop, log: Log) -> None:
    worker = Worker()

    @worker.task("charge", once="1h")
    async def charge(context: Context) -> None:
        log.add(context.attempt)
        if not context.attempt:
            raise OSError("no")

    async with shop.dispatching(), shop.at_work(worker):
        await shop.push(QUEUE, envelope("charge", id="7"))
        assert await log.has(2) == [0, 1]


def _call(function: Any, payload: Any) -> Any:
    return function(payload)


async def test_a_queue_that_is_no_list_harms_no_other(shop: Workshop, log: Log) -> None:
    worker = Worker()
    worker.task("note")(lambda: log.add(1))
    await shop.redis.set(shop.keys.queue("spoiled").ready, "scribble")
    async with shop.at_work(worker, "spoiled", QUEUE, DISPATCHER__COOL_DOWN="100ms") as work:
        await shop.push(QUEUE, envelope("note"))
        await log.has(1)
        await shop.redis.delete(shop.keys.queue("spoiled").ready)
        await shop.push("spoiled", envelope("note"))
        await log.has(2)
        assert work.shift.alive().ok


async def test_a_job_of_ours_says_how_long_it_waited(shop: Workshop, log: Log) -> None:
    worker = Worker()
    worker.task("note")(lambda: log.add(1))
    now_ms = int((await shop.redis.time())[0]) * 1000
    async with shop.at_work(worker) as work:
        await shop.push(QUEUE, envelope("note", due=now_ms - 60_000))
        await log.has(1)
        shown = work.service.metrics.render()[0].decode()
    assert 'coatcheck_worker_wait_seconds_count{queue="emails"} 1.0' in shown
    assert json.loads(envelope("note", due=5))["due"] == 5
