"""Handling: one attempt at one job, from its payload to a verdict. Whatever a handler does, there is one."""

import asyncio
import contextlib
import inspect
import random
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import structlog
from pydantic import ValidationError
from redis.exceptions import ResponseError

from service.clock import ServerClock
from service.envelope import Envelope, NotAnEnvelope, parse, with_numbers
from service.errors import RetryLater
from service.metrics import Metrics
from service.worker.once import Once
from service.worker.ready import fingerprint
from service.worker.source import Entry, Source
from service.worker.tasks import Backoff, Context, Discard, Retry, Task
from service.worker.verdicts import Again, Dead, Over, Verdict, place_of, record_of
from service.worker.worker import Worker
from storage_backends.threads import Threads

_ERRORS: Final = 100  #: of a payload, which are told one by one

log = structlog.get_logger(__name__)


class Slot:
    """One of the jobs that run at once. A thread whose attempt timed out keeps it until the thread ends."""

    def __init__(self) -> None:
        self.thread_over: asyncio.Future[None] | None = None


@dataclass(frozen=True, slots=True)
class _Job:
    """One entry, read."""

    entry: Entry
    envelope: Envelope
    raw: bool  #: its payload is no envelope; then `envelope` was made for it


class Handling:
    """Safe for concurrent use from one event loop."""

    def __init__(
        self,
        worker: Worker,
        once: Once,
        clock: ServerClock,
        metrics: Metrics,
        *,
        threads: int,
        backoff: Backoff,
        max_retries: int,
        max_deaths: int,
    ) -> None:
        """`backoff`, `max_retries`: where a task or an envelope says nothing else."""
        self._worker = worker
        self._once = once
        self._clock = clock
        self._metrics = metrics
        self._threads = Threads("task", threads, None)  # each attempt has its own limit, or none
        self._backoff = backoff
        self._max_retries = max_retries
        self._max_deaths = max_deaths

    async def handle(self, entry: Entry, source: Source, slot: Slot, struck: Callable[[], bool]) -> Verdict:
        """Raises RetryLater, ResponseError: Redis had to be asked, and did not say; and what cancels.

        `struck`: whether Redis may remember attempts of payloads that are no envelopes.
        """
        try:
            return await self._verdict(entry, source, slot, struck)
        except (RetryLater, ResponseError):  # which are not the job's: a handler's own are in the verdict
            raise
        except Exception as error:  # noqa: BLE001  what nobody foresaw of a job must not end one hand after another
            kind, at = type(error).__name__, place_of(error)
            log.error("job cannot be handled", queue=source.queue, error=kind, at=at)  # noqa: TRY400  its text may hold payload
            return self._dead_unread(entry, "unexpected", f"{kind} at {at}")

    async def _verdict(self, entry: Entry, source: Source, slot: Slot, struck: Callable[[], bool]) -> Verdict:
        if entry.deaths >= self._max_deaths:
            return self._dead_unread(entry, "worker_died", f"{entry.deaths} workers died with it in hand")
        if entry.fault is not None:
            return self._dead_unread(entry, "not_an_envelope", entry.fault)
        task, job = None, None
        try:
            envelope = parse(entry.payload)
            task, job = self._worker.find(envelope.type), _Job(entry, envelope, raw=False)
        except NotAnEnvelope as error:
            task = self._worker.find_raw(source.queue)
            if task is None:
                return self._dead_unread(entry, "not_an_envelope", str(error))
            attempts = await source.attempts(entry) if struck() else 0
            job = _Job(entry, self._made_for(entry, source.queue, attempts), raw=True)
        if task is None:
            log.error("no handler", queue=source.queue, task=job.envelope.type, id=job.envelope.id)
            return self._dead("", job, "unknown_task", f"no handler for {job.envelope.type!r}")
        return await self._attempt(task, job, source.queue, slot)

    async def aclose(self) -> None:
        """Threads that are busy are left to end by themselves, or with the process."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                await self._threads.aclose()

    async def _attempt(self, task: Task, job: _Job, queue: str, slot: Slot) -> Verdict:
        key = self._once.key(queue, job.envelope.id) if task.once_ms else None
        if key is not None and await self._once.finished(key):
            return Over("skipped", task.name)
        due_ms = job.envelope.due_ms if job.entry.due_ms is None else job.entry.due_ms
        if due_ms is not None:
            self._metrics.worker_waited(queue, (self._clock.now_ms() - due_ms) / 1000)
        context = Context(job.envelope.id, job.envelope.attempt, queue, job.envelope.type, job.envelope.max_retries)
        try:
            given = task.arguments(job.envelope.payload, context)
        except ValidationError as error:
            return self._dead(task.name, job, "invalid_payload", f"not what {task.name!r} takes: {_wrong(error)}")
        except Exception as error:  # noqa: BLE001  a validator of the application's may raise anything
            return self._dead(
                task.name, job, "invalid_payload", f"not what {task.name!r} takes: {type(error).__name__}"
            )
        failure = await self._call(task, given, slot)
        if failure is None:
            return Over("done", task.name, key, task.once_ms)
        if isinstance(failure, Discard):
            return Over("discarded", task.name, key, task.once_ms)
        return self._failed(task, job, queue, failure)

    async def _call(self, task: Task, given: dict[str, Any], slot: Slot) -> BaseException | None:
        """What the handler raised."""
        try:
            if task.timeout_s is None:
                return await self._work(task, given, slot)
            async with asyncio.timeout(task.timeout_s):
                return await self._work(task, given, slot)
        except asyncio.CancelledError as error:
            current = asyncio.current_task()
            if current is None or current.cancelling():
                raise
            return error  # it cancelled itself, or something in it
        except BaseException as error:  # noqa: BLE001  a handler may raise anything; the verdict is its handling
            return error

    def _work(self, task: Task, given: dict[str, Any], slot: Slot) -> Awaitable[BaseException | None]:
        """A coroutine has a task of its own: what it does to that, and to its context variables, ends with the job."""
        if task.is_async:
            return asyncio.create_task(_awaited(task, given), name=task.name)
        return self._in_thread(task, given, slot)

    async def _in_thread(self, task: Task, given: dict[str, Any], slot: Slot) -> BaseException | None:
        loop = asyncio.get_running_loop()
        over: asyncio.Future[None] = loop.create_future()
        ended = threading.Event()

        def told(_: Future[Any]) -> None:
            ended.set()
            with contextlib.suppress(RuntimeError):  # the loop has ended before the thread
                loop.call_soon_threadsafe(_set, over)

        try:
            return await self._threads.run(partial(copy_context().run, _called, task, given), abandoned=told)
        except BaseException:
            if not ended.is_set():  # else no thread had begun
                slot.thread_over = over
            raise

    def _failed(self, task: Task, job: _Job, queue: str, error: BaseException) -> Verdict:
        envelope = job.envelope
        told = {"queue": queue, "task": task.name, "id": envelope.id, "attempt": envelope.attempt}
        if envelope.attempt >= envelope.max_retries:
            log.error("job died", **told, error=type(error).__name__, at=place_of(error))
            return self._dead(task.name, job, "attempts_exhausted", error)
        wait_ms = error.after_ms if isinstance(error, Retry) else None
        if wait_ms is None:
            chance = random.random()  # noqa: S311  jitter, not a secret
            wait_ms = (task.backoff or self._backoff).wait_ms(envelope.attempt, chance)
        log.warning("attempt failed", **told, error=type(error).__name__, at=place_of(error), wait_ms=wait_ms)
        if job.raw:
            return Again(task.name, wait_ms, job.entry.payload, envelope.attempt + 1)
        due_ms = self._clock.now_ms() + wait_ms
        return Again(
            task.name, wait_ms, with_numbers(job.entry.payload, attempt=envelope.attempt + 1, due=due_ms), None
        )

    def _dead(self, task: str, job: _Job, reason: str, error: str | BaseException) -> Dead:
        envelope = job.envelope
        revived = job.entry.payload
        if not job.raw and envelope.attempt:
            revived = with_numbers(revived, attempt=0)
        more = {"id": envelope.id, "task": envelope.type}
        attempts = envelope.attempt + (reason == "attempts_exhausted")
        record = record_of(reason, error, attempts=attempts, at_ms=self._clock.now_ms(), **more)
        return Dead(task, reason, revived, record)

    def _dead_unread(self, entry: Entry, reason: str, error: str) -> Dead:
        record = record_of(reason, error, attempts=0, at_ms=self._clock.now_ms())
        return Dead("", reason, entry.payload, record)

    def _made_for(self, entry: Entry, queue: str, attempts: int) -> Envelope:
        return Envelope(fingerprint(entry.payload), "", entry.payload, queue, self._max_retries, attempts)


def _set(over: asyncio.Future[None]) -> None:
    if not over.done():
        over.set_result(None)


def _called(task: Task, given: dict[str, Any]) -> BaseException | None:
    """What the handler raised: no future can hold a StopIteration, and of others the thread would think its own."""
    try:
        return _unrun(task.handler(**given))
    except BaseException as error:  # noqa: BLE001  as in Handling._call
        return error


async def _awaited(task: Task, given: dict[str, Any]) -> BaseException | None:
    """Likewise: a task that raises SystemExit or KeyboardInterrupt ends the event loop, and all other jobs with it."""
    try:
        return _unrun(await task.handler(**given))
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001  as in Handling._call
        return error


def _wrong(error: ValidationError) -> str:
    """Where, and of what kind: nothing of the payload. Each of millions as a dict would take gigabytes, and seconds."""
    if error.error_count() > _ERRORS:
        return f"in {error.error_count():,} places"
    return "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['type']}" for each in error.errors())


def _unrun(answer: Any) -> TypeError | None:
    """Of a coroutine or a generator nobody has run the body: taken for done, the job would be lost in silence."""
    if answer is None:
        return None
    if inspect.iscoroutine(answer):
        answer.close()
        return TypeError("the handler returned a coroutine: define it with async def, or await it")
    if inspect.isgenerator(answer) or inspect.isasyncgen(answer):
        return TypeError("the handler returned a generator, which nobody iterates over")
    return None
