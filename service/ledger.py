"""A job's life in Redis: one method a transition. Alone, with its runner, in running scripts and in repeating them.
How a life begins is in acceptance.py; the rest is here.

              schedule                claim (inline) ─────────────────────► ready queue
    producer ──────────► delayed ──── claim (others) ► leased ── deliver ─► ready queue, payload to the trash
                          ▲  ▲  ▲                        │ │ │
                          │  │  └── retry, release ──────┘ │ └─ bury ─► dead ── purge ─► payload to the trash
                          │  └───── reclaim (deadline) ────┘            │
                          └──────── revive ─────────────────────────────┘       cancel: from delayed or leased

Repeating, after an answer that was not seen: what finds its own work done the second time is repeated (everything but
an unkeyed schedule); for an unkeyed schedule the outcome is looked up. What cannot be known is raised as
OutcomeUnknown, never guessed.
"""

import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from service import pages
from service.acceptance import Acceptance, unknown
from service.clock import ServerClock
from service.errors import RedisFull, RetryLater
from service.keys import Keys
from service.members import text_of
from service.records import (
    Buried,
    Claimed,
    ClaimRequest,
    ClaimStatus,
    Delivered,
    Delivery,
    DueQueues,
    Failure,
    Job,
    Leased,
    Page,
    Place,
    PutBack,
    Retried,
)
from service.runner import MAX_BYTES, MAX_MEMBERS, OnScript, Runner, chunks
from service.scripts import Scripts
from service.transport import Encodable, Interrupted, Transport
from storage_backends.reference import Reference

#: Of payload freed by a call, but always one job: to free is cheaper than to move, and 32 MiB hold Redis for 3-10 ms.
MAX_FREED_BYTES: Final = 32 * 2**20
#: For this long a repeated DELETE gives the same answer, and a late schedule is refused.
MARKER_TTL_MS: Final = 3_600_000


class Ledger(Acceptance):
    """Every method may raise RedisUnavailable: nothing changed, or, where repeating is safe, it may have.

    Then the caller may repeat it.
    """

    def __init__(
        self,
        transport: Transport,
        keys: Keys,
        scripts: Scripts,
        clock: ServerClock,
        *,
        inline: str = "redis",
        lateness_bounds_ms: Sequence[int] = (),
        idempotency_ttl_ms: int = 86_400_000,
        stale_after_ms: int = 43_200_000,
        max_expiries: int = 20,
        backoff_min_ms: int = 1_000,
        backoff_max_ms: int = 600_000,
        overdraft_jobs: int = 100,
        overdraft_bytes: int = 8 * 2**20,
        on_script: OnScript = lambda name, seconds, repeats: None,
        on_overdraft: Callable[[str, int], None] = lambda queue, count: None,
    ) -> None:
        """`inline` names the backend whose payloads are in Redis. `stale_after_ms` is half the sweeper's grace.

        `on_overdraft` is told of a queue and how many of its jobs were delivered although Redis was full.
        """
        super().__init__(
            Runner(transport, keys, scripts, on_script),
            keys,
            clock,
            idempotency_ttl_ms=idempotency_ttl_ms,
            stale_after_ms=stale_after_ms,
        )
        self._inline = inline
        self._bounds = tuple(lateness_bounds_ms)
        self._max_expiries = max_expiries
        self._backoff_ms = (backoff_min_ms, backoff_max_ms)
        self._overdraft = (overdraft_jobs, overdraft_bytes)
        self._on_overdraft = on_overdraft
        self._seeds = itertools.count(random.getrandbits(30))  # two claims of one process never have the same

    # ---- dispatching -----------------------------------------------------------------------------------------------

    async def due(self, limit: int) -> DueQueues:
        """Which queues need a look, in one command whatever their number; at most `limit` of them."""
        reply = await self._runner.run("due", "", ["", limit], keys=(self._keys.queues,))
        now, later, first, *pairs = reply
        self.clock.learn(now)
        queues = [(text_of(name), int(max(0.0, float(look)))) for name, look in _groups(pairs, 2)]
        return DueQueues(now, queues, math.ceil(float(later)) if later else None, text_of(first) if first else None)

    async def claim(self, queue: str, request: ClaimRequest) -> Claimed:
        """delayed -> ready (inline) or leased. Not repeated: what an unseen answer leased comes back when it ends."""
        arguments: list[Encodable] = ["", queue, self._inline, min(request.batch, MAX_MEMBERS), request.max_ready]
        arguments += ("" if request.max_ready_bytes is None else request.max_ready_bytes, request.lease_ms, MAX_BYTES)
        seed = next(self._seeds)
        of = self._keys.queue(queue)
        arguments += (seed, of.ready_kind, of.group or "", len(self._bounds), *self._bounds)
        for name, share in request.shares.items():
            probe = "" if share.probe_in_ms is None else share.probe_in_ms
            arguments += (name, share.slots, probe, str(share.avoid or ""))
        reply = await self._runner.run("claim", queue, arguments, repeat=False)
        status, now, moved, lateness_sum, counts, leased, put_back, buried, skipped, look, expired, trash = reply
        self.clock.learn(now)
        token = now + request.lease_ms + seed % 4096 / 4096
        return Claimed(
            status=ClaimStatus(status.decode()),
            now_ms=now,
            moved=moved,
            lateness_sum_ms=int(lateness_sum),
            lateness_counts=counts,
            leased=[Leased(Reference.parse(member.decode()), token, int(due)) for member, due in _groups(leased, 2)],
            put_back=[
                PutBack(name.decode(), count, int(oldest), int(again))
                for name, count, oldest, again in _groups(put_back, 4)
            ],
            buried=[Buried(text_of(member), reason.decode()) for member, reason in _groups(buried, 2)],
            skipped=skipped,
            next_look_ms=int(look) if look else None,
            leases_expired=bool(expired),
            trash_due=bool(trash),
        )

    async def deliver(self, queue: str, jobs: Sequence[tuple[Leased, bytes]]) -> Delivered:
        """leased -> ready. A repetition answers GONE for what the first try delivered; nothing is delivered twice."""
        outcomes: list[Delivery] = []
        now_ms = 0
        for chunk in chunks(jobs, lambda job: len(job[1])):
            now_ms, some = await self._deliver_chunk(queue, chunk)
            outcomes += some
        return Delivered(now_ms, outcomes)

    async def _deliver_chunk(self, queue: str, jobs: Sequence[tuple[Leased, bytes]]) -> tuple[int, list[Delivery]]:
        body = [part for job, payload in jobs for part in (str(job.reference), job.token, payload)]
        of = self._keys.queue(queue)
        fixed: list[Encodable] = ["", queue, of.ready_kind, of.group or ""]
        try:
            reply = await self._runner.run("deliver", queue, [*fixed, "", "", *body])
        except RedisFull:
            reply = await self._runner.run("deliver_overdraft", queue, [*fixed, *self._overdraft, *body])
            self._on_overdraft(queue, [str(outcome) for outcome in reply[2:]].count(Delivery.DELIVERED))
        status, now, *outcomes = reply
        self.clock.learn(now)
        if status == b"unusable":
            return now, [Delivery.UNUSABLE] * len(jobs)
        return now, [Delivery(str(outcome)) for outcome in outcomes]

    async def extend(self, queue: str, jobs: Sequence[Leased], lease_ms: int) -> list[Leased | None]:
        """The same jobs with a later token; None where the lease is no longer this caller's."""
        extended: list[Leased | None] = []
        for chunk in chunks(jobs):
            tokens = await self._runner.run("extend", queue, [queue, lease_ms, *_members(chunk)])
            extended += [
                Leased(job.reference, float(token), job.due_ms) if token else None
                for job, token in zip(chunk, tokens, strict=True)
            ]
        return extended

    async def retry(self, queue: str, failures: Sequence[Failure], *, max_attempts: int) -> list[Retried]:
        """leased -> delayed after a backoff with jitter, or dead after the last attempt; own leases only."""
        answers: list[Retried] = []
        for chunk in chunks(failures):
            body: list[Encodable] = ["", queue, max_attempts, *self._backoff_ms]
            for failure in chunk:
                jitter = random.random()  # noqa: S311  jitter, not a secret
                wait = "" if failure.charged else failure.wait_ms
                body += (*_members([failure.job]), wait, jitter, failure.kind, failure.reason)
            reply = await self._runner.run("retry", queue, body)
            answers += [Retried(state.decode(), attempts, int(again)) for state, attempts, again in reply]
        return answers

    async def release(self, queue: str, jobs: Sequence[Leased], *, wait_ms: int = 0) -> int:
        """leased -> delayed, as it was; own leases only. Returns how many."""
        return sum(
            [await self._runner.run("release", queue, ["", queue, wait_ms, *_members(chunk)]) for chunk in chunks(jobs)]
        )

    async def bury(self, queue: str, jobs: Sequence[tuple[Leased, str]]) -> list[bool]:
        """leased -> dead, each with its reason; own leases only. Tells which were buried."""
        answers: list[bool] = []
        for chunk in chunks(jobs):
            body = [part for job, reason in chunk for part in (*_members([job]), reason, reason)]
            answers += [bool(buried) for buried in await self._runner.run("bury", queue, ["", queue, *body])]
        return answers

    async def reclaim(self, queue: str, limit: int = MAX_MEMBERS) -> list[tuple[str, str]]:
        """leased past its deadline -> delayed, or dead after too many expiries. Returns members and states."""
        reply = await self._runner.run("reclaim", queue, ["", queue, limit, self._max_expiries])
        return [(text_of(member), state.decode()) for member, state in _groups(reply, 2)]

    # ---- owners and operators --------------------------------------------------------------------------------------

    async def cancel(self, reference: Reference) -> str:
        """delayed, leased -> -. Returns `cancelled`, `dead` or `gone`; the same answer again for an hour.

        Raises OutcomeUnknown if Redis did not answer.
        """
        keys = self._keys.queue(reference.queue)
        inline = int(reference.backend == self._inline)
        arguments: list[Encodable] = ["", reference.queue, str(reference), reference.uuid, inline, MARKER_TTL_MS]
        try:
            reply = await self._runner.run(
                "cancel", reference.queue, arguments, more_keys=[keys.cancelled(reference.uuid)]
            )
        except Interrupted as error:
            raise unknown(reference, error) from error
        return str(reply.decode())

    async def reschedule(self, reference: Reference, due_ms: int) -> str:
        """delayed, leased -> delayed. Returns `delayed`, `dead` or `gone`.

        Raises OutcomeUnknown, also for a job that is gone at the second try: the first may have let it through.
        """
        arguments: list[Encodable] = [reference.queue, self._keys.wake, str(reference), reference.uuid, due_ms]
        try:
            return str((await self._runner.run("reschedule", reference.queue, arguments, repeat=False)).decode())
        except Interrupted:
            pass
        try:
            state = str((await self._runner.run("reschedule", reference.queue, arguments)).decode())
        except RetryLater as error:
            raise unknown(reference, error) from error
        if state == "gone":
            raise unknown(reference, None)
        return state

    async def lookup(self, reference: Reference) -> Job | None:
        """Where this job is; None if it is nowhere (delivered, cancelled, purged or never accepted)."""
        reply = await self._runner.run("lookup", reference.queue, [str(reference), reference.uuid])
        state, score, moved, record = map(text_of, reply)
        if state == "gone":
            return None
        return pages.job(reference, state, score, moved, record)

    async def page(self, queue: str, state: str, limit: int, after: Place | None = None) -> Page:
        """Jobs that are `delayed`, `leased` or `dead`, at most 1,000, in the order of their set.

        Begins right behind `after`, whether that member is still there or not.
        """
        score, member = ("", "") if after is None else (after.score, after.member)
        reply = await self._runner.run("page", queue, [state, min(limit, MAX_MEMBERS), score, member])
        return pages.page(queue, state, reply)

    async def revive(self, queue: str, members: Sequence[str]) -> int:
        """dead -> delayed, due now, with a clean record. Returns how many."""
        return sum(
            [await self._runner.run("revive", queue, ["", queue, self._keys.wake, *chunk]) for chunk in chunks(members)]
        )

    async def purge(self, queue: str, members: Sequence[str]) -> int:
        """dead -> -, payload and all. Returns how many."""
        purged, left = 0, members
        while left:
            arguments: list[Encodable] = ["", queue, self._inline, MAX_FREED_BYTES, *left[:MAX_MEMBERS]]
            some, looked_at = await self._runner.run("purge", queue, arguments)
            purged, left = purged + some, left[looked_at:]
        return purged

    async def pause(self, queue: str) -> bool:
        """Stop dispatching; what is leased is still delivered. Returns whether it was running."""
        return bool(await self._runner.run("pause", queue, [queue, self._keys.wake, 1]))

    async def resume(self, queue: str) -> bool:
        """Dispatch again. Returns whether it was paused."""
        return bool(await self._runner.run("pause", queue, [queue, self._keys.wake, 0]))

    # ---- keeping house ---------------------------------------------------------------------------------------------

    async def collect_trash(self, queue: str, limit: int, *, put_off_ms: int) -> list[str]:
        """Members of the trash whose deletion is due; nobody else is given them for `put_off_ms`."""
        reply = await self._runner.run("collect_trash", queue, ["", queue, limit, put_off_ms])
        return [text_of(member) for member in reply]

    async def empty_trash(self, queue: str, members: Sequence[str]) -> int:
        """trash -> -, after the backend confirmed the deletion."""
        return sum([await self._runner.run("empty_trash", queue, [queue, *chunk]) for chunk in chunks(members)])

    async def repair(self, queues: Sequence[str]) -> int:
        """Write the index anew for these queues. Returns how many had another time before."""
        repaired = 0
        for chunk in chunks(queues, most=100):
            keys = [self._keys.queues]
            for queue in chunk:
                of = self._keys.queue(queue)
                keys += (of.delayed, of.leases, of.dead, of.trash, of.paused)
            repaired += await self._runner.run("repair", "", chunk, keys=keys)
        return repaired


def _groups(flat: Sequence[Any], size: int) -> Iterator[tuple[Any, ...]]:
    return zip(*[iter(flat)] * size, strict=True)


def _members(jobs: Iterable[Leased]) -> list[Encodable]:
    return [part for job in jobs for part in (str(job.reference), job.token)]
