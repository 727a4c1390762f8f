"""`Metrics`: counts what `service/catalogue.py` lists. Nothing else creates a metric or spells a label.

Labels come from closed sets or are capped (`LABEL_LIMIT` queues and as many tenants, then `other`); no payload,
reference or error text ever is one. Everything that can be born at zero is, so that the first failure is an increase.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from platform import python_version
from typing import Final

from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from service.catalogue import (
    BREAKER_STATES,
    CATALOGUE,
    FAILURE_KINDS,
    OPERATIONS,
    REASONS,
    REFUSALS,
    SUSPENSIONS,
    JobOutcome,
)
from service.instruments import Capped, Instruments, WithoutCreated

_MAX_CALLS = 100  #: pairs of API call and status are few; more would be a mistake in the caller


@dataclass(frozen=True, slots=True)
class QueueGauges:
    """One queue in a snapshot of Redis. The six whole numbers are the states of `backlog_jobs`."""

    queue: str
    future: int = 0
    overdue: int = 0
    leased: int = 0
    ready: int = 0
    dead: int = 0
    trash: int = 0
    oldest_overdue_s: float = 0.0
    paused: bool = False


STATES: Final = tuple(field.name for field in fields(QueueGauges))[1:7]


class Metrics:
    """What this process counts, on a registry of its own. Called from one thread; `render` from any.

    `backends`, `queues`, `tenants`, `scripts`, `loops`: what is configured. Each has its own label, born at zero; but
    of queues and of tenants no more than `label_limit`, the first ones.
    """

    def __init__(
        self,
        version: str,
        *,
        backends: Iterable[str],
        queues: Iterable[str] = (),
        tenants: Iterable[str] = (),
        scripts: Iterable[str] = (),
        loops: Iterable[str] = (),
        label_limit: int = 200,
    ) -> None:
        self._configured_queues = tuple(queues)[:label_limit]
        self._label_limit = label_limit
        values = {
            "backend": Capped(0, backends),
            "queue": Capped(label_limit, self._configured_queues),
            "tenant": Capped(label_limit, ("", *tenants)[:label_limit]),
            "script": Capped(0, scripts),
            "loop": Capped(0, loops),
            "reason": Capped(0, REASONS),
            "kind": Capped(0, FAILURE_KINDS),
            "operation": Capped(0, OPERATIONS),
            "code": Capped(0, REFUSALS),
            "cause": Capped(0, SUSPENSIONS),
            "task": Capped(label_limit),
            "call": Capped(_MAX_CALLS),
            "status": Capped(_MAX_CALLS),
            "version": Capped(1),
            "python": Capped(1),
        }
        self._all = Instruments(CATALOGUE, values)
        ProcessCollector(registry=self._all.registry)
        self._all.set("build_info", 1, version, python_version())
        self._replace_queues(())

    # Jobs

    def accepted(self, queue: str, backend: str, reason: str, tenant: str | None, *sizes_bytes: int) -> None:
        """Jobs accepted and written, as many as there are sizes."""
        n = len(sizes_bytes)
        self._all.count("jobs_total", queue, backend, "accepted", n=n)
        self._all.count("routing_decisions_total", backend, reason, n=n)
        self._all.count("accepted_total", tenant or "", n=n)
        for size_bytes in sizes_bytes:
            self._all.observe("accepted_payload_bytes", size_bytes, backend)

    def delivered(self, queue: str, backend: str, n: int = 1) -> None:
        self._all.count("jobs_total", queue, backend, "delivered", n=n)

    def happened(self, outcome: JobOutcome, queue: str, backend: str, n: int = 1) -> None:
        """`n` jobs were retried (charged), deferred (not charged), expired (lease ran out), cancelled or purged."""
        self._all.count("jobs_total", queue, backend, outcome, n=n)

    def buried(self, queue: str, backend: str, kind: str) -> None:
        self._all.count("jobs_total", queue, backend, "buried")
        self._all.count("buried_total", backend, kind)

    def trimmed(self, queue: str, n: int) -> None:
        self._all.count("dead_trimmed_total", queue, n=n)

    def lateness(self, queue: str, backend: str, seconds: float) -> None:
        """One fetched job: due to delivered."""
        self._all.observe("reenqueue_lateness_seconds", max(0.0, seconds), queue, backend)

    def observe_histogram_counts(self, queue: str, backend: str, counts: Sequence[int], sum_s: float) -> None:
        """What claim counted by LATENESS_BUCKETS_MS inside Redis: one count a bound and one beyond, not cumulated."""
        self._all.add("reenqueue_lateness_seconds", counts, sum_s, queue, backend)

    def reenqueued(self, queue: str, backend: str, seconds: float) -> None:
        """One fetched job: claimed to delivered."""
        self._all.observe("reenqueue_seconds", seconds, queue, backend)

    # Accepting

    def enqueued(self, seconds: float) -> None:
        """One request to accept, single or batch, was answered."""
        self._all.observe("enqueue_seconds", seconds)

    def refused(self, code: str) -> None:
        """One job was not accepted; `code` is that of `service.errors`."""
        self._all.count("refused_total", code)

    def upload_abandoned(self, backend: str) -> None:
        """The payload of a job that was not accepted may be in `backend`; only a sweep will find it."""
        self._all.count("uploads_abandoned_total", backend)

    def replayed(self) -> None:
        self._all.count("replayed_total")

    # Redis

    def redis_up(self, up: bool) -> None:
        self._all.set("redis_up", up)

    def snapshot(self, queues: Sequence[QueueGauges], *, unlisted: int, memory_ratio: float, at_ms: int) -> None:
        """What Redis holds now; series of queues that are not in it disappear, except configured ones, which are 0.

        At most `label_limit` queues are shown, configured ones first, then in the order given; `unlisted` more exist.
        """
        unlisted += self._replace_queues(queues)
        self._all.set("queues_paused", sum(queue.paused for queue in queues))
        self._all.set("queues_unlisted", unlisted)
        self._all.set("redis_memory_ratio", memory_ratio)
        self._all.set("redis_snapshot_timestamp_seconds", at_ms / 1000)

    def script(self, name: str, seconds: float, repeats: int = 0) -> None:
        self._all.observe("script_seconds", seconds, name)
        self._all.count("script_repeats_total", name, n=repeats)

    def index_repaired(self, n: int) -> None:
        self._all.count("index_repairs_total", n=n)

    # The loops

    def loop_round(self, loop: str, at_ms: int) -> None:
        """A loop ended a round, well or not."""
        self._all.count("loop_rounds_total", loop)
        self._all.set("loop_last_round_timestamp_seconds", at_ms / 1000, loop)

    def loop_failed(self, loop: str) -> None:
        self._all.count("loop_errors_total", loop)

    def slice_ended(self, seconds: float) -> None:
        self._all.observe("slice_seconds", seconds)

    def suspended(self, queues_by_cause: Mapping[str, int]) -> None:
        """How many queues wait for which cause; causes that are left out are 0."""
        for cause in SUSPENSIONS:
            self._all.set("queues_suspended", queues_by_cause.get(cause, 0), cause)

    def ready_unusable(self, queue: str) -> None:
        self._all.count("ready_unusable_total", queue)

    def overdraft(self, queue: str, n: int = 1) -> None:
        self._all.count("overdraft_total", queue, n=n)

    def lease_extended(self, backend: str, n: int = 1) -> None:
        self._all.count("leases_extended_total", backend, n=n)

    def lease_lost(self, backend: str, n: int = 1) -> None:
        self._all.count("leases_lost_total", backend, n=n)

    # Backends

    def storage_operation(self, backend: str, operation: str, outcome: str, seconds: float) -> None:
        self._all.count("storage_operations_total", backend, operation, outcome)
        self._all.observe("storage_operation_seconds", seconds, backend, operation)

    def storage_payload(self, backend: str, operation: str, size_bytes: int) -> None:
        self._all.observe("storage_payload_bytes", size_bytes, backend, operation)

    def fetch_failed(self, backend: str, kind: str) -> None:
        self._all.count("fetch_failures_total", backend, kind)

    def breaker(self, backend: str, state: str) -> None:
        """The breaker of `backend` has just changed to `state`."""
        self._all.set("breaker_state", BREAKER_STATES[state], backend)
        self._all.count("breaker_opened_total", backend, n=state == "open")

    def ownership(self, backend: str, *, ours: bool) -> None:
        self._all.set("ownership_mismatch", not ours, backend)

    def inflight(self, backend: str, payloads: int, size_bytes: int) -> None:
        self._all.set("inflight_payloads", payloads, backend)
        self._all.set("inflight_bytes", size_bytes, backend)

    # Cleaning up

    def trash_deleted(self, backend: str, n: int) -> None:
        self._all.count("trash_deleted_total", backend, n=n)

    def trash_failed(self, backend: str, n: int) -> None:
        self._all.count("trash_failures_total", backend, n=n)

    # Workers

    def worker_job(self, queue: str, task: str, outcome: str, seconds: float) -> None:
        """One attempt ended. `task` is a registered one, or empty."""
        self._all.count("worker_jobs_total", queue, task, outcome)
        self._all.observe("worker_job_seconds", seconds, queue, task)

    def worker_waited(self, queue: str, seconds: float) -> None:
        self._all.observe("worker_wait_seconds", max(0.0, seconds), queue)

    def worker_now(self, running: int, waiting: int) -> None:
        self._all.set("worker_running_jobs", running)
        self._all.set("worker_waiting_jobs", waiting)

    def worker_lost(self, queue: str) -> None:
        self._all.count("worker_taken_for_dead_total", queue)

    def worker_missing(self, queue: str, n: int) -> None:
        self._all.count("worker_not_ours_total", queue, n=n)

    def worker_reaped(self, queue: str, n: int) -> None:
        self._all.count("worker_reaped_total", queue, n=n)

    # The process

    def responded(self, call: str, status: int) -> None:
        """One HTTP answer; `call` is the route's name, never its path."""
        self._all.count("http_responses_total", call, str(status))

    def render(self) -> tuple[bytes, str]:
        """The exposition in Prometheus' text format, and its content type."""
        return generate_latest(WithoutCreated(self._all.registry)), CONTENT_TYPE_PLAIN_0_0_4

    def _replace_queues(self, queues: Sequence[QueueGauges]) -> int:
        """Replaces the series of all queues; returns how many did not get one."""
        snapshot = {queue.queue: queue for queue in queues}
        names = dict.fromkeys((*self._configured_queues, *snapshot))
        shown = [snapshot.get(name, QueueGauges(name)) for name in names][: self._label_limit]
        self._all.replace("backlog_jobs", {(q.queue, state): getattr(q, state) for q in shown for state in STATES})
        self._all.replace("oldest_overdue_seconds", {(q.queue,): q.oldest_overdue_s for q in shown})
        return len(names) - len(shown)
