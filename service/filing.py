"""Filing: writes jobs whose place is decided, payload first, then reference; of half a job it undoes what it can."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from service.errors import BackendUnavailable, CoatcheckError, OutcomeUnknown, RetryLater
from service.intake import Request
from service.ledger import Ledger
from service.records import Entry, Scheduled
from service.router import INLINE
from service.uploads import NotStored, Uploads
from storage_backends.reference import Reference

_QUEUES_AT_ONCE: Final = 8  #: of one call: a caller with a thousand queues must not take every connection

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Placed:
    """A request whose payload has a place to go."""

    request: Request
    reference: Reference
    reason: str  #: the router's

    @property
    def inline(self) -> bool:
        return self.reference.backend == INLINE


#: The second place for a job whose backend just failed, which is inline, or why there is none.
FallBack = Callable[[Placed], Placed | CoatcheckError]
Filed = Scheduled | CoatcheckError


class Filing:
    """Of its answers OutcomeUnknown alone leaves a payload behind, which a job may need; else the sweeper finds it."""

    def __init__(self, ledger: Ledger, uploads: Uploads) -> None:
        self._ledger = ledger
        self._uploads = uploads

    async def file(self, jobs: Sequence[Placed], fall_back: FallBack) -> list[Filed]:
        """What became of each, in order. Puts run at once, as many as backends take; then all are scheduled."""
        if all(job.inline for job in jobs):
            entries: Sequence[Entry | CoatcheckError] = [_inline(job) for job in jobs]
        else:
            entries = await asyncio.gather(*(self._stored(job, fall_back) for job in jobs))
        filed = iter(await self._schedule([entry for entry in entries if isinstance(entry, Entry)]))
        return [next(filed) if isinstance(entry, Entry) else entry for entry in entries]

    async def _stored(self, job: Placed, fall_back: FallBack) -> Entry | CoatcheckError:
        if job.inline:
            return _inline(job)
        try:
            put_at_ms = await self._uploads.put(job.reference, job.request.payload)
        except NotStored as error:
            second = fall_back(job)
            if isinstance(second, Placed):
                return _inline(second)
            second.__cause__ = error
            return second
        except RetryLater as error:
            return error
        except Exception as error:
            # The other jobs' uploads are under way: were it raised, nobody would schedule them. Of this one nothing was
            # put, for every failure of a put is NotStored.
            log.error("put failed", queue=job.reference.queue, error=type(error).__name__, exc_info=error)  # noqa: TRY400  this is its handling
            refusal = BackendUnavailable(f"{job.reference} could not be stored; nothing was kept")
            refusal.__cause__ = error
            return refusal
        return Entry(job.reference, job.reason, put_at_ms=put_at_ms, idempotency=job.request.idempotency)

    async def _schedule(self, entries: Sequence[Entry]) -> list[Filed]:
        by_queue: defaultdict[str, list[Entry]] = defaultdict(list)
        for entry in entries:
            by_queue[entry.reference.queue].append(entry)
        gate = asyncio.Semaphore(_QUEUES_AT_ONCE)

        async def one(queue: str, some: Sequence[Entry]) -> list[Filed]:
            async with gate:
                return await self._schedule_one_queue(queue, some)

        if len(by_queue) > 1:
            filed = await asyncio.gather(*(one(queue, some) for queue, some in by_queue.items()))
        else:  # nearly always; a task would cost as much as the script
            filed = [await one(queue, some) for queue, some in by_queue.items()]
        of_queue = {queue: iter(answers) for queue, answers in zip(by_queue, filed, strict=True)}
        return [next(of_queue[entry.reference.queue]) for entry in entries]

    async def _schedule_one_queue(self, queue: str, entries: Sequence[Entry]) -> list[Filed]:
        try:
            outcomes = await self._ledger.schedule(queue, entries)
        except Exception as error:
            log.error("schedule failed", queue=queue, error=type(error).__name__, exc_info=error)  # noqa: TRY400  this is its handling
            return [_unknown(entry.reference, error) for entry in entries]
        needless = [
            entry.reference
            for entry, outcome in zip(entries, outcomes, strict=True)
            if entry.put_at_ms is not None and _certainly_failed(outcome)
        ]
        if needless:
            await self._uploads.discard(needless)
        return [*outcomes]


def _inline(job: Placed) -> Entry:
    return Entry(job.reference, job.reason, body=job.request.payload, idempotency=job.request.idempotency)


def _certainly_failed(outcome: Filed) -> bool:
    """Where the script ran, it has itself put into the trash what no job needs."""
    return isinstance(outcome, RetryLater) and not isinstance(outcome, OutcomeUnknown)


def _unknown(reference: Reference, cause: Exception) -> OutcomeUnknown:
    error = OutcomeUnknown("the request failed half-way, and may have been carried out", reference=reference)
    error.__cause__ = cause
    return error
