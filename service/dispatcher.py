"""The re-enqueue loop: finds queues with due jobs, claims, and leaves what is leased to the fetcher.

A round: ask the index which queues need a look; give each of them one slice, in the order of their earliest heads,
several side by side; then begin anew. The queue whose head the loop slept for, or whose backlog goes on, does not wait
for the index: its slice runs while that is asked. So a queue with a million due jobs yields to one with a single job,
and an old backlog shuts out nobody. Any number of dispatchers run side by side without a leader: claims are atomic,
leases fence, no lock is held.
"""

import asyncio
import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from service.agenda import Agenda
from service.clock import Clock
from service.errors import RetryLater
from service.fetcher import UNKNOWN, Fetcher
from service.ledger import Ledger
from service.members import backend_of, loggable
from service.metrics import Metrics
from service.overdue import Overdue
from service.records import Claimed, ClaimRequest, ClaimStatus, Delivery, DueQueues, Share
from service.together import all_of, both_of
from service.trash import Trash

#: Queues asked of the index at once, besides those that wait or had their turn: these must not hide others.
_QUEUES_A_ROUND: Final = 1000
_SLICE_BATCHES: Final = 4
_SLICE_S: Final = 0.020

log = structlog.get_logger(__name__)


class QueuePolicy(Protocol):
    """What is settable per queue."""

    @property
    def max_ready(self) -> int: ...

    @property
    def max_ready_bytes(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Pace:
    """How much at once, and how often."""

    batch: int = 500
    queue_concurrency: int = 8
    lease_ms: int = 60_000


class Dispatcher:
    """`round` is a loop's round; the fetcher calls `refused` and `slots_freed`, the wake-up channel calls `woken`."""

    def __init__(
        self,
        ledger: Ledger,
        fetcher: Fetcher,
        trash: Trash,
        *,
        agenda: Agenda,
        overdue: Overdue,
        metrics: Metrics,
        clock: Clock,
        inline: str,
        policy: Callable[[str], QueuePolicy],
        pace: Pace,
    ) -> None:
        self._ledger = ledger
        self._fetcher = fetcher
        fetcher.slots_freed, fetcher.refused = self.slots_freed, self.refused
        self._trash = trash
        self._agenda = agenda
        self._overdue = overdue
        self._metrics = metrics
        self._clock = clock
        self._inline = inline
        self._policy = policy
        self._pace = pace
        self._no_offload_until_s: dict[str, float] = {}
        self._planned_ms: float = 0  # when the next round is to begin, by Redis's clock
        self._heard_ms = math.inf  # the earliest new head that the index may not have shown to this round
        self._offloading: set[str] = set()  # due queues that had use for fetch slots at their last turn
        self._served: set[str] = set()  # had their turn, while others that are due have not been seen yet
        self._plenty: set[str] = set()  # queues whose last claim moved a whole batch, and quickly
        self._awaited = ("", math.inf)  # whose head the next round begins with, and when that is due
        self._limit = asyncio.Semaphore(pace.queue_concurrency)
        self._away = False  # Redis, as a turn of this round found out
        self._stopping = False
        self.wake: Callable[[], None] = lambda: None  #: wiring sets it to the loop's

    async def round(self) -> float | None:
        """One slice for each queue that needs one. Returns the seconds until the next round, None: nothing is in sight.

        With more due queues than the index is asked for at once, they have their turns over several rounds. Raises
        RetryLater if Redis is away: then no turn begins any more.
        """
        self._planned_ms, self._heard_ms, self._away = 0, math.inf, False
        first = self._first()
        # Side by side: Redis moves that queue's jobs while this process asks the index. The claim is sent first.
        looks, (due, more) = await both_of(self._each_turn(first, None), self._indexed(first))
        self._metrics.suspended(self._agenda.causes())
        self._fetcher.report()
        return self._plan(due, {**looks, **more})

    def woken(self, due_ms: int) -> None:
        """A queue got a new head, due then: the loop's next round comes earlier if that is earlier."""
        self._heard_ms = min(self._heard_ms, due_ms)
        if due_ms < self._planned_ms:
            self.wake()

    def stop(self) -> None:
        """No claim begins any more; a round under way ends soon."""
        self._stopping = True

    def slots_freed(self) -> None:
        """Enough fetch slots are free again for a claim to be worth while."""
        if self._agenda.slots_freed():
            self.wake()

    def refused(self, queue: str, outcome: Delivery) -> None:
        """A fetched payload could not be put on the ready queue."""
        now_s = self._clock.monotonic_s()
        if outcome is Delivery.UNUSABLE:
            self._unusable(queue)
        else:
            self._no_offload_until_s = {q: until for q, until in self._no_offload_until_s.items() if until > now_s}
            self._no_offload_until_s[queue] = now_s + 1.0

    # ---- one round -------------------------------------------------------------------------------------------------

    def _turns(self, due: list[str], *, all_seen: bool) -> list[str]:
        """Whose turn it is: who was starved of slots first, among equals the earliest head."""
        now_s = self._clock.monotonic_s()
        turns = [queue for queue in due if queue not in self._served and self._agenda.ready(queue, now_s)]
        if all_seen:
            self._agenda.keep(due)
            self._offloading.intersection_update(due)
        self._served = set() if all_seen else self._served.intersection(due).union(turns)
        return sorted(turns, key=lambda queue: not self._agenda.starved(queue))

    def _first(self) -> list[str]:
        """The queue whose turn does not wait for the index: the one that was slept for, or one with a backlog."""
        queue, due_ms = self._awaited
        self._awaited = ("", math.inf)
        if self._stopping or self._served or self._ledger.clock.exact_ms() < due_ms:
            return []
        return [queue] if self._agenda.ready(queue, self._clock.monotonic_s()) else []

    async def _indexed(self, first: list[str]) -> tuple[DueQueues, dict[str, float | None]]:
        """What the index says, and a slice for each queue that it names but `first`."""
        most = _QUEUES_A_ROUND + len(self._agenda) + len(self._served)
        due = await self._ledger.due(most)
        turns = self._turns([queue for queue, _ in due.queues], all_seen=len(due.queues) < most)
        turns = [queue for queue in turns if queue not in first]
        return due, await self._each_turn(turns, among=turns)

    async def _each_turn(self, queues: list[str], among: list[str] | None) -> dict[str, float | None]:
        """A slice for each, several side by side. Returns when each next needs a look, as `_slice` does.

        Fetch slots are shared with those `among` whom the queues are, None: with all that had use for some lately.
        """

        async def turn(queue: str) -> float | None:
            async with self._limit:
                if self._away:
                    return None
                try:
                    sharers = self._offloading if among is None else self._offloading.intersection(among)
                    return await self._slice(queue, len(sharers.union([queue])))
                except RetryLater:
                    # Those who would come next found the same, each after timeouts of its own: the round would hang.
                    self._away = True
                    raise

        return dict(zip(queues, await all_of([turn(queue) for queue in queues]), strict=True))

    def _plan(self, due: DueQueues, looks: dict[str, float | None]) -> float | None:
        """The earliest of: what a slice left to do, a queue's own next look, the index's next due time, a wake-up."""
        now_ms = self._ledger.clock.exact_ms()
        heads = [(look, queue) for queue, look in looks.items() if look is not None]
        if due.next_look_ms is not None:
            heads.append((due.next_look_ms, due.next_queue or ""))
        next_ms, queue = min(heads, default=(math.inf, ""))
        self._awaited = (queue, next_ms) if next_ms > due.now_ms or queue in self._plenty else ("", math.inf)
        known = [next_ms - now_ms]
        own_ms = self._agenda.first_look_s(self._clock.monotonic_s()) * 1000
        wait_ms = max(0.0, min((*known, own_ms, self._heard_ms - now_ms)))
        if self._served:
            wait_ms = 0.0
        self._planned_ms = now_ms + wait_ms
        return None if wait_ms == math.inf else wait_ms / 1000

    async def _slice(self, queue: str, sharers: int) -> float | None:
        """Returns when this queue next needs a look, ms by Redis's clock, None if its agenda says so.

        What goes wrong is this queue's affair, unless Redis is away.
        """
        began_s = self._clock.monotonic_s()
        look: float | None = None
        batches = 0
        try:
            while batches < _SLICE_BATCHES and not self._stopping:
                # Of a backlog side by side: Redis moves the next batch while this process counts the last one.
                at_once = _SLICE_BATCHES - batches if queue in self._plenty else 1
                # Each of the first ones weighs the ready queue: none of them knows what the others are told.
                steps = [self._step(queue, sharers, weigh=batches == 0) for _ in range(at_once)]
                ended = await all_of(steps)
                batches += at_once
                look = min((each for each, _ in ended if each is not None), default=None)
                if not all(more for _, more in ended) or self._clock.monotonic_s() - began_s > _SLICE_S:
                    break
        except RetryLater:
            raise
        except Exception as error:
            log.exception("queue is suspended", queue=queue, error=type(error).__name__)
            self._agenda.wait(queue, "error", self._clock.monotonic_s())
            return None
        else:
            return look
        finally:
            self._metrics.slice_ended(self._clock.monotonic_s() - began_s)

    async def _step(self, queue: str, sharers: int, *, weigh: bool) -> tuple[float | None, bool]:
        """One claim and what it leads to. Returns the queue's next look as `_slice` does, and whether to go on."""
        began_s = self._clock.monotonic_s()
        claimed, asked = await self._claim(queue, sharers, weigh=weigh)
        if claimed.moved == self._pace.batch and self._clock.monotonic_s() - began_s < _SLICE_S / 2:
            self._plenty.add(queue)
        else:
            self._plenty.discard(queue)
        if claimed.leased or claimed.skipped or claimed.put_back:
            self._offloading.add(queue)
        else:
            self._offloading.discard(queue)
        await self._account(queue, claimed)
        stepped_aside = any(asked[_share_of(back.backend, asked)].probe_in_ms is None for back in claimed.put_back)
        served = bool(claimed.moved or not claimed.skipped)  # else the next claim would find no slot, either
        more = claimed.looks_again and not stepped_aside and served and bool(claimed.took or claimed.put_back)
        return self._next_look(queue, claimed, stepped_aside=stepped_aside), more

    async def _claim(self, queue: str, sharers: int, *, weigh: bool) -> tuple[Claimed, Mapping[str, Share]]:
        policy = self._policy(queue)
        offloading = self._no_offload_until_s.get(queue, 0.0) <= self._clock.monotonic_s()
        with self._fetcher.reserve(sharers, offloading=offloading) as reservation:
            request = ClaimRequest(
                batch=self._pace.batch,
                max_ready=policy.max_ready,
                max_ready_bytes=policy.max_ready_bytes if weigh else None,
                lease_ms=self._pace.lease_ms,
                shares=reservation.shares,
            )
            claimed = await self._ledger.claim(queue, request)
            await self._fetcher.accept(queue, claimed.leased, reservation)
        return claimed, request.shares

    async def _account(self, queue: str, claimed: Claimed) -> None:
        """Counts what a claim did, and does what it found due."""
        if claimed.moved:
            self._metrics.delivered(queue, self._inline, claimed.moved)
            self._metrics.observe_histogram_counts(
                queue, self._inline, claimed.lateness_counts, claimed.lateness_sum_ms / 1000
            )
        for buried in claimed.buried:
            self._metrics.buried(queue, backend_of(buried.member), buried.reason)
            log.error("job is dead", queue=queue, reference=loggable(buried.member), kind=buried.reason)
        self._overdue.put_back(queue, claimed.put_back, claimed.now_ms)
        if claimed.leases_expired:
            await self._reclaim(queue)
        if claimed.trash_due:
            await self._trash.collect(queue)

    def _next_look(self, queue: str, claimed: Claimed, *, stepped_aside: bool) -> float | None:
        now_s = self._clock.monotonic_s()
        if claimed.status is ClaimStatus.UNUSABLE:
            self._unusable(queue)
            return None
        if claimed.status is ClaimStatus.FULL:
            self._agenda.wait(queue, "ready_full", now_s)
            return None
        if stepped_aside and not claimed.took:
            # All that stood in the window waits for slots. More may stand behind it; a moment's pause bounds the work.
            self._agenda.go_on(queue)
            self._agenda.wait(queue, "slots", now_s)
            return None
        if claimed.looks_again and not claimed.progressed:
            full = self._no_offload_until_s.get(queue, 0.0) > now_s
            self._agenda.wait(queue, "redis_full" if full else "slots", now_s)
            return None
        self._agenda.go_on(queue)
        return claimed.next_look_ms

    async def _reclaim(self, queue: str) -> None:
        counts: dict[tuple[str, str], int] = defaultdict(int)
        for member, state in await self._ledger.reclaim(queue):
            counts[backend_of(member), state] += 1
        for (backend, state), count in counts.items():
            self._metrics.happened("expired", queue, backend, count)
            log.warning("leases ran out", queue=queue, backend=backend, state=state, count=count)
            if state == "dead":
                for _ in range(count):
                    self._metrics.buried(queue, backend, "lease_expired")

    def _unusable(self, queue: str) -> None:
        if self._agenda.waits_for(queue, "ready_unusable", self._clock.monotonic_s()):
            return  # many payloads may find it out at once
        self._metrics.ready_unusable(queue)
        log.error("the ready key is of another type; the queue is suspended", queue=queue)
        self._agenda.wait(queue, "ready_unusable", self._clock.monotonic_s())


def _share_of(backend: str, shares: Mapping[str, Share]) -> str:
    return backend if backend in shares else UNKNOWN
