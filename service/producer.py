"""Producer: accepts jobs. Asks the router, puts the payload where it belongs, and only then writes the reference.

check ─► key known? ─► memory ─► router ─┬─ inline ──────────────────► schedule, payload included
  │           │           │         │    └─ offload ─► put ─► schedule
  ▼           ▼           ▼         ▼                   │         │
error   first answer  RedisFull  BackendUnavailable     │         ├─ certainly failed: upload to the trash, error
and nothing left behind                                 │         └─ perhaps done: upload kept, OutcomeUnknown
                                                        └─ failed: router again, without that backend;
                                                           what may have been stored goes to the trash in 1 h
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from service.clock import Clock
from service.envelope import MAX_RETRIES, build
from service.errors import (
    BackendUnavailable,
    CoatcheckError,
    IdempotencyKeyReused,
    NotHere,
    PayloadTooLarge,
    RedisFull,
    RetryLater,
)
from service.filing import Filing, Placed
from service.intake import Intake, NewJob, Request
from service.ledger import Ledger
from service.metrics import Metrics
from service.records import Outcome, Scheduled
from service.router import Facts, StorageRouter
from service.times import Delay, Due, when
from service.uploads import Uploads
from storage_backends.reference import Reference

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Accepted:
    """A job that will be delivered unless somebody cancels it; when `replayed`, one that was accepted before."""

    reference: Reference
    reason: str  #: the router's, for where the payload is
    replayed: bool = False

    @property
    def queue(self) -> str:
        return self.reference.queue

    @property
    def backend(self) -> str:
        return self.reference.backend

    @property
    def due_ms(self) -> int:
        """As it was accepted; a later reschedule does not show here."""
        return self.reference.ts_ms


Answer = Accepted | CoatcheckError


class Producer:
    """Safe for concurrent use from one event loop.

    A cancelled call whose payload goes to a backend runs on to its end without its caller, for nobody else knows of the
    upload; `aclose` waits for these.
    """

    def __init__(
        self,
        ledger: Ledger,
        intake: Intake,
        router: StorageRouter,
        uploads: Uploads,
        *,
        metrics: Metrics,
        clock: Clock,
        memory_ratio: Callable[[], float],
        accept_watermark: float = 0.9,
    ) -> None:
        """`memory_ratio`: used / maxmemory of the ledger's own Redis; above `accept_watermark` nothing is accepted."""
        self._ledger = ledger
        self._intake = intake
        self._router = router
        self._uploads = uploads
        self._filing = Filing(ledger, uploads)
        self._metrics = metrics
        self._clock = clock
        self._memory_ratio = memory_ratio
        self._accept_watermark = accept_watermark
        self._under_way: set[asyncio.Task[Any]] = set()

    async def enqueue(
        self,
        payload: bytes,
        *,
        queue: str,
        delay: Delay | None = None,
        due: Due | None = None,
        tenant: str | None = None,
        idempotency_key: str | None = None,
    ) -> Accepted:
        """Accept one job. Raises CoatcheckError; only after OutcomeUnknown may there be a job all the same."""
        (answer,) = await self.enqueue_many([NewJob(payload, queue, delay, due, tenant, idempotency_key)])
        if isinstance(answer, CoatcheckError):
            raise answer
        return answer

    async def enqueue_task(
        self,
        type_: str,
        payload: Any,
        *,
        queue: str,
        delay: Delay | None = None,
        due: Due | None = None,
        max_retries: int = MAX_RETRIES,
        tenant: str | None = None,
        idempotency_key: str | None = None,
    ) -> Accepted:
        """Accept one task for workers (service/worker): `payload` is what JSON can say, or a pydantic model.

        Due now if neither `delay` nor `due` is given. The same idempotency key gives the task the same id. Raises as
        `enqueue`.
        """
        if delay is None and due is None:
            delay = "0s"
        moment = when(delay, due)
        key = None if idempotency_key is None else f"{tenant or ''}\0{queue}\0{idempotency_key}"
        # With a key the same request must make the same bytes, whenever it is repeated.
        due_ms = moment.at(await self._ledger.now_ms()) if key is None else moment.due_ms
        return await self.enqueue(
            build(type_, payload, queue, max_retries=max_retries, due_ms=due_ms, key=key),
            queue=queue,
            delay=delay,
            due=due,
            tenant=tenant,
            idempotency_key=idempotency_key,
        )

    async def enqueue_many(self, jobs: Sequence[NewJob]) -> list[Answer]:
        """One answer a job, in order; a job that is refused fails alone."""
        began_s = self._clock.monotonic_s()
        checked = [self._checked(job) for job in jobs]
        good = [request for request in checked if isinstance(request, Request)]
        accepted = iter(await self._accept(good) if good else ())
        answers = [next(accepted) if isinstance(each, Request) else each for each in checked]
        self._count(jobs, answers)
        self._metrics.enqueued(self._clock.monotonic_s() - began_s)
        return answers

    async def aclose(self) -> None:
        """Waits until no call is under way. No call follows."""
        await asyncio.gather(*self._under_way, return_exceptions=True)

    def _checked(self, job: NewJob) -> Request | CoatcheckError:
        try:
            return self._intake.check(job)
        except CoatcheckError as error:
            return error

    async def _accept(self, requests: Sequence[Request]) -> list[Answer]:
        """Looks before it writes: what can be answered without a new job is, and the rest gets its place."""
        try:
            now_ms = await self._ledger.now_ms()
            known = await self._known(requests)
        except RetryLater as error:
            return [error] * len(requests)
        available = self._uploads.available()
        placed = [known.get(request.uuid) or self._placed(request, now_ms, available) for request in requests]
        jobs = [each for each in placed if isinstance(each, Placed)]
        filing = self._filing.file(jobs, lambda job: self._placed(job.request, now_ms, self._without(job)))
        filed = await (filing if all(job.inline for job in jobs) else self._unhindered(filing))
        answers = iter([_answer(each) if isinstance(each, Scheduled) else each for each in filed])
        return [next(answers) if isinstance(each, Placed) else each for each in placed]

    async def _known(self, requests: Sequence[Request]) -> dict[str, Answer]:
        """uuid -> answer, where the key names an earlier job. It saves an upload; for the others `schedule` decides."""
        keyed = {request.uuid: request.idempotency for request in requests if request.idempotency}
        if not keyed:
            return {}
        held = await self._ledger.idempotent(list(keyed.values()))
        return {uuid: _answer(first) for uuid, first in zip(keyed, held, strict=True) if first}

    def _without(self, job: Placed) -> frozenset[str]:
        return self._uploads.available() - {job.reference.backend}

    def _placed(self, request: Request, now_ms: int, available: frozenset[str]) -> Placed | CoatcheckError:
        ratio = self._memory_ratio()
        if ratio > self._accept_watermark:
            return RedisFull(
                f"Redis is at {ratio:.0%} of maxmemory; above {self._accept_watermark:.0%} nothing is accepted"
            )
        try:
            due_ms = request.when.at(now_ms)
            facts = Facts(
                payload_bytes=len(request.payload),
                delay_ms=due_ms - now_ms,
                tenant=request.tenant,
                queue=request.queue,
                uuid=request.uuid,
                available=available,
                redis_memory_ratio=ratio,
            )
            decision = self._router.decide(facts)
        except CoatcheckError as error:
            return error
        return Placed(request, Reference(decision.backend, request.queue, due_ms, request.uuid), decision.reason)

    def _count(self, jobs: Sequence[NewJob], answers: Sequence[Answer]) -> None:
        sizes: defaultdict[tuple[str, str, str, str | None], list[int]] = defaultdict(list)
        for job, answer in zip(jobs, answers, strict=True):
            if isinstance(answer, Accepted):
                if answer.replayed:
                    self._metrics.replayed()
                else:
                    where = answer.reference
                    sizes[where.queue, where.backend, answer.reason, job.tenant].append(len(job.payload))
            elif isinstance(answer, RetryLater | PayloadTooLarge):  # all others are the caller's mistakes
                self._metrics.refused(answer.code)
        for labels, of_these in sizes.items():
            self._metrics.accepted(*labels, *of_these)

    async def _unhindered(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return await asyncio.shield(task)


def _answer(done: Scheduled) -> Answer:
    match done.outcome:
        case Outcome.SCHEDULED:
            return Accepted(done.reference, done.reason)
        case Outcome.REPLAYED:
            return Accepted(done.reference, done.reason, replayed=True)
        case Outcome.REUSED:
            return IdempotencyKeyReused("this Idempotency-Key was used for another payload or another time")
        case Outcome.CANCELLED:
            return NotHere(f"{done.reference} was cancelled before it was accepted")
        case Outcome.STALE | Outcome.DISCARDED:  # its upload is in the trash: repeating makes another
            return BackendUnavailable(f"{done.reference.backend} took too long to store the payload; nothing was kept")
