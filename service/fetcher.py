"""Fetching the payloads of leased jobs, side by side and bounded per backend, and seeing each job to its end.

One task a job. It holds a slot of its backend's bulkhead from before the claim until the job is delivered, given back
or given up, so that a slow backend fills its own slots and nobody else's, and what this process has in hand is bounded.
"""

import asyncio
import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import structlog

from service.bulkhead import Admission, Bulkhead
from service.clock import Clock
from service.errors import RetryLater
from service.guarded import Guarded, Verdict
from service.ledger import Ledger
from service.metrics import Metrics
from service.outbox import Outbox, patiently
from service.records import Delivery, Failure, Leased, Share
from storage_backends.reference import Reference

UNKNOWN: Final = "*"  #: in a claim: jobs of any backend that this process does not know
_UNKNOWN_SLOTS: Final = 64
#: With more jobs in hand than this, deliveries gather for a moment.
_BUSY: Final = 8
#: With Redis full: how long a released job, and its queue's other offloaded jobs, wait for memory.
FULL_WAIT_MS: Final = 1000
#: While another process's or queue's probe is under way, jobs step back only so far: it is over in a moment.
_PROBE_WAIT_MS: Final = 1000
#: For giving leases back at a stop, all queues together. With Redis away they run out by themselves.
RELEASE_S: Final = 1.5

log = structlog.get_logger(__name__)


class Depot:
    """A backend as the dispatcher has it: guarded, and with a bulkhead of its own.

    Twice as many slots as the backend serves at once: so no fetch thread waits for the next claim. The other half waits
    at `gate`: there, and not in the backend, where it would count as the backend's slowness.
    """

    def __init__(self, backend: Guarded) -> None:
        self.backend = backend
        self.bulkhead = Bulkhead(2 * backend.concurrency, backend.inflight_bytes)
        self.gate = asyncio.Semaphore(backend.concurrency)

    def free(self) -> int:
        """Slots that a claim may take: none while fewer than a quarter are free, so that claims come in batches."""
        return self.bulkhead.free if enough_free(self.bulkhead) else 0


def enough_free(bulkhead: Bulkhead) -> bool:
    """Whether a claim is worth while. Three quarters in hand are more than the backend serves at once."""
    return bulkhead.free >= max(1, bulkhead.slots // 4)


class _Held:
    """One leased job in hand. Compared by identity: after a long stall, one reference may be in hand twice."""

    __slots__ = ("ending", "job", "queue", "since_s")

    def __init__(self, queue: str, job: Leased, since_s: float) -> None:
        self.queue = queue
        self.job = job  # with its latest token
        self.since_s = since_s
        self.ending = False  # its token must not change any more


class Reservation:
    """Slots taken for one claim. What it did not use goes back when the claim is over."""

    def __init__(self, shares: dict[str, Share], bulkheads: Mapping[str, Bulkhead]) -> None:
        self.shares = shares
        self._bulkheads = bulkheads
        self._left = {name: share.slots for name, share in shares.items()}

    def use(self, backend: str) -> Bulkhead:
        """One reserved slot becomes the caller's to give back."""
        name = backend if backend in self._left else UNKNOWN
        self._left[name] -= 1
        return self._bulkheads[name]

    def close(self) -> None:
        for name, left in self._left.items():
            self._bulkheads[name].give_back(left)
        self._left.clear()


class Fetcher:
    """Tells the dispatcher, which sets both, by `slots_freed` that a claim is worth while again, and by `refused` of
    queues that could not take a payload.
    """

    def __init__(
        self,
        ledger: Ledger,
        depots: Mapping[str, Depot],
        metrics: Metrics,
        clock: Clock,
        *,
        lease_ms: int,
        max_attempts: Callable[[str], int],
    ) -> None:
        self._ledger = ledger
        self._depots = depots
        self._metrics = metrics
        self._clock = clock
        self._lease_ms = lease_ms
        self._max_attempts = max_attempts
        self.slots_freed: Callable[[], None] = lambda: None
        self.refused: Callable[[str, Delivery], None] = lambda queue, outcome: None
        self._bulkheads = {name: depot.bulkhead for name, depot in depots.items()} | {
            UNKNOWN: Bulkhead(_UNKNOWN_SLOTS, 0)
        }
        self._outboxes: dict[str, Outbox] = {}
        self._held: set[_Held] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._extending = asyncio.Lock()
        self._closed = False

    # Before and after a claim

    @contextlib.contextmanager
    def reserve(self, sharers: int, *, offloading: bool = True) -> Iterator[Reservation]:
        """What one claim may lease, when `sharers` queues want slots in this round: an even part, at least one slot.

        Without `offloading` nothing: the queue has no room for what comes from outside Redis.
        """
        shares = {name: self._share(depot, sharers if offloading else 0) for name, depot in self._depots.items()}
        unknown = self._bulkheads[UNKNOWN]
        shares[UNKNOWN] = Share(unknown.take(max(1, unknown.slots // sharers)) if offloading else 0)
        reservation = Reservation(shares, self._bulkheads)
        try:
            yield reservation
        finally:
            reservation.close()

    def _share(self, depot: Depot, sharers: int) -> Share:
        permit = depot.backend.permit()
        if permit.kind == "nothing":
            wait_ms = _PROBE_WAIT_MS if depot.backend.state == "half_open" else round(permit.wait_s * 1000)
            return Share(0, probe_in_ms=max(wait_ms, _PROBE_WAIT_MS))
        if not sharers:
            return Share(0)
        if permit.kind == "probe":
            # One job in hand is the probe, whoever claimed it: a second one would be refused, and put back for nothing.
            slots = depot.bulkhead.take(1) if depot.bulkhead.taken == 0 else 0
            return Share(slots, avoid=Reference.parse(permit.avoid) if permit.avoid else None)
        part = max(1, depot.bulkhead.slots // sharers)
        return Share(depot.bulkhead.take(min(part, depot.free())))

    async def accept(self, queue: str, jobs: Sequence[Leased], reservation: Reservation) -> None:
        """See these jobs to their end. Returns at once; but after `drain` it gives them back before it returns."""
        if self._closed:
            await self._release(queue, jobs)
            return
        for job in jobs:
            bulkhead = reservation.use(job.reference.backend)
            held = _Held(queue, job, self._clock.monotonic_s())
            self._held.add(held)
            task = asyncio.create_task(self._see_to(held, bulkhead), name=f"fetch {job.reference}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    # Looking after what is in hand

    async def extend(self) -> None:
        """Extends the leases that are half over. A lost one is left to its task: if another stands, it may deliver."""
        soon_ms = self._ledger.clock.now_ms() + self._lease_ms // 2
        for queue in {held.queue for held in self._held if held.job.token < soon_ms}:
            async with self._extending:
                some = [held for held in self._held if held.queue == queue and not held.ending]
                await self._extend(queue, [held for held in some if held.job.token < soon_ms])

    async def _extend(self, queue: str, some: list[_Held]) -> None:
        jobs = [held.job for held in some]
        for held, job in zip(some, await self._ledger.extend(queue, jobs, self._lease_ms), strict=True):
            if job is not None:
                held.job = job
                self._metrics.lease_extended(job.reference.backend)

    async def _ending(self, held: _Held) -> Leased:
        """The job with its lease's last token, which from now on stays: by it the lease can be ended."""
        held.ending = True
        async with self._extending:  # one under way may yet bring a new token
            return held.job

    async def drain(self, grace_s: float) -> None:
        """Finishes what is in hand within `grace_s`, and gives the rest back, uncharged, within RELEASE_S.

        What a claim that is still under way brings later goes back at once.
        """
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace_s)
        self._closed = True
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for outbox in self._outboxes.values():
            await outbox.aclose()
        try:
            async with asyncio.timeout(RELEASE_S):
                await self._release_all()
        except TimeoutError:
            log.warning("leases left to run out", count=len(self._held))
        self._held.clear()

    async def _release_all(self) -> None:
        by_queue: dict[str, list[Leased]] = {}
        async with self._extending:  # one under way may yet bring new tokens
            for held in self._held:
                held.ending = True
                by_queue.setdefault(held.queue, []).append(held.job)
        await asyncio.gather(*(self._release(queue, jobs) for queue, jobs in by_queue.items()))

    async def _release(self, queue: str, jobs: Sequence[Leased]) -> None:
        if not jobs:
            return
        try:
            released = await self._ledger.release(queue, jobs)
            log.info("leases given back at stop", queue=queue, count=released)
        except Exception as error:  # noqa: BLE001  the other queues' leases must be given back all the same
            log.warning("leases left to run out", queue=queue, count=len(jobs), error=type(error).__name__)

    def report(self) -> None:
        """Shows in the metrics what is in hand."""
        for name, depot in self._depots.items():
            self._metrics.inflight(name, depot.bulkhead.taken, depot.bulkhead.held_bytes)

    # One job

    async def _see_to(self, held: _Held, bulkhead: Bulkhead) -> None:
        admission = bulkhead.admission()
        try:
            await self._finish(held, admission)
        except RetryLater as error:
            # Its lease runs out, and somebody reclaims it.
            log.warning("job left to its lease", queue=held.queue, reference=str(held.job.reference), code=error.code)
        except asyncio.CancelledError:
            raise  # still held: drain gives it back
        except Exception:
            log.exception("job left to its lease", queue=held.queue, reference=str(held.job.reference))
        finally:
            admission.release()
            bulkhead.give_back()
            if enough_free(bulkhead):
                self.slots_freed()
        self._held.discard(held)

    async def _finish(self, held: _Held, admission: Admission) -> None:
        depot = self._depots.get(held.job.reference.backend)
        if depot is None:
            await self._failed(held, Verdict("charge", "unknown_backend"), reason="unknown_backend")
            return
        began_s = math.inf
        try:
            async with depot.gate:
                began_s = self._clock.monotonic_s()
                payload = await depot.backend.get(held.job.reference, admission)
        except Exception as error:  # noqa: BLE001  judged: no failure of one job may end the loop
            admission.release()
            verdict = await depot.backend.judge(held.job.reference, error, began_s)
            await self._failed(held, verdict)
        else:
            await self._deliver(held, payload)

    async def _deliver(self, held: _Held, payload: bytes) -> None:
        queue, backend = held.queue, held.job.reference.backend
        outcome, now_ms = await self._outbox(queue).deliver(held.job, payload)
        if outcome is Delivery.DELIVERED:
            self._metrics.delivered(queue, backend)
            self._metrics.lateness(queue, backend, (now_ms - held.job.due_ms) / 1000)
            self._metrics.reenqueued(queue, backend, self._clock.monotonic_s() - held.since_s)
        elif outcome is Delivery.GONE:
            self._metrics.lease_lost(backend)
        else:
            self.refused(queue, outcome)
            job = await self._ending(held)
            wait_ms = FULL_WAIT_MS if outcome is Delivery.NO_ROOM else 0
            await patiently(lambda: self._ledger.release(queue, [job], wait_ms=wait_ms), self._ledger, job.token)

    def _busy(self) -> bool:
        return len(self._held) > _BUSY

    def _outbox(self, queue: str) -> Outbox:
        if queue not in self._outboxes:
            self._outboxes = {name: outbox for name, outbox in self._outboxes.items() if not outbox.idle}
            self._outboxes[queue] = Outbox(queue, self._ledger, self._busy)
        return self._outboxes[queue]

    async def _failed(self, held: _Held, verdict: Verdict, reason: str = "attempts_exhausted") -> None:
        queue, job = held.queue, await self._ending(held)
        self._metrics.fetch_failed(job.reference.backend, verdict.kind)
        if verdict.do == "bury":
            (buried,) = await patiently(
                lambda: self._ledger.bury(queue, [(job, verdict.kind)]), self._ledger, job.token
            )
            self._told(held, "dead" if buried else "gone", verdict.kind)
            return
        failure = Failure(job, verdict.kind, verdict.do == "charge", round(verdict.wait_s * 1000), reason)
        (retried,) = await patiently(
            lambda: self._ledger.retry(queue, [failure], max_attempts=self._max_attempts(queue)),
            self._ledger,
            job.token,
        )
        state = "retried" if retried.state == "delayed" and failure.charged else retried.state
        self._told(held, state, reason if reason == "unknown_backend" else verdict.kind)

    def _told(self, held: _Held, state: str, kind: str) -> None:
        queue, reference = held.queue, held.job.reference
        if state == "dead":
            self._metrics.buried(queue, reference.backend, kind)
            log.error("job is dead", queue=queue, reference=str(reference), kind=kind)
        elif state == "retried":
            self._metrics.happened("retried", queue, reference.backend)
            log.warning("job will be tried again", queue=queue, reference=str(reference), kind=kind)
        elif state == "delayed":
            self._metrics.happened("deferred", queue, reference.backend)
        else:
            self._metrics.lease_lost(reference.backend)
