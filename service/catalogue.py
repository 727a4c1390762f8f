"""The catalogue of metrics: what there is, with which labels and what it says. `service/metrics.py` counts.

A metric exists because it is listed here; the README's table is held to this one by a test.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

PREFIX: Final = "coatcheck_"
#: Upper bounds of the lateness histogram; claim counts inline jobs by them inside Redis.
LATENESS_BUCKETS_MS: Final = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(1_000, 2_000, 5_000, 10_000, 30_000),
    *(60_000, 300_000, 900_000, 3_600_000),
)
LATENESS_BUCKETS_S: Final = tuple(bound / 1000 for bound in LATENESS_BUCKETS_MS)
SECONDS_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
BYTES_BUCKETS: Final = tuple(float(4**n) for n in range(4, 13))  #: 256 B to 16 MiB

JobOutcome = Literal[
    "accepted", "delivered", "retried", "deferred", "expired", "buried", "cancelled", "revived", "purged"
]
JOB_OUTCOMES: Final[tuple[str, ...]] = get_args(JobOutcome)
REASONS: Final = ("disabled", "tiny", "large", "long", "small_and_short", "fallback")
OPERATIONS: Final = ("start", "put", "get", "delete", "scan", "check")
STORAGE_OUTCOMES: Final = ("ok", "missing", "corrupt", "denied", "throttled", "unavailable", "cancelled", "error")
FAILURE_KINDS: Final = (
    *("payload_missing", "payload_corrupt", "access_denied", "storage_unavailable", "throttled", "breaker_open"),
    *("no_room", "unknown_backend", "not_a_reference", "lease_expired", "unexpected"),
    *("attempts_exhausted", "unknown_task", "invalid_payload", "not_an_envelope", "worker_died"),  # workers' reasons
)
WORKER_OUTCOMES: Final = ("done", "retried", "dead", "discarded", "skipped")
REFUSALS: Final = ("redis-full", "redis-unavailable", "backend-unavailable", "outcome-unknown", "payload-too-large")
SUSPENSIONS: Final = ("slots", "ready_full", "redis_full", "ready_unusable", "error")
BREAKER_STATES: Final[Mapping[str, int]] = {"closed": 0, "half_open": 1, "open": 2}
_SAME = " (describes Redis, so it is the same from every replica: use max by, never sum)"


@dataclass(frozen=True, slots=True)
class Spec:
    """One metric, as the README's table shows it."""

    name: str  #: in full
    type: Literal["counter", "gauge", "snapshot", "histogram"]  #: a snapshot is a gauge to Prometheus
    labels: tuple[str, ...]
    help: str
    buckets: tuple[float, ...] = ()
    outcomes: tuple[str, ...] = ()  #: what its label `outcome` may be

    @property
    def shown_type(self) -> str:
        """As `# TYPE` and the README say it."""
        return "gauge" if self.type == "snapshot" else self.type


_Type = Literal["counter", "gauge", "snapshot"]


def _spec(type_: _Type, name: str, labels: str, help_text: str, outcomes: tuple[str, ...] = ()) -> Spec:
    return Spec(PREFIX + name, type_, tuple(labels.split()), help_text, outcomes=outcomes)


def _histogram(name: str, labels: str, help_text: str, buckets: tuple[float, ...] = SECONDS_BUCKETS) -> Spec:
    return Spec(PREFIX + name, "histogram", tuple(labels.split()), help_text, buckets)


CATALOGUE: Final = (
    # Jobs
    _histogram("reenqueue_lateness_seconds", "queue backend", "Due to delivered.", LATENESS_BUCKETS_S),
    _histogram("reenqueue_seconds", "queue backend", "Claimed to delivered, of jobs whose payload had to be fetched."),
    _spec("counter", "jobs_total", "queue backend outcome", "What happened to jobs, by this process.", JOB_OUTCOMES),
    _spec("counter", "buried_total", "backend kind", "Jobs given up on, payload kept, by what was wrong."),
    _spec("counter", "dead_trimmed_total", "queue", "Dead jobs discarded for their age or number, payload and all."),
    # Accepting
    _histogram("enqueue_seconds", "", "One accepted job, or one accepted batch, from request to answer."),
    _spec("counter", "routing_decisions_total", "backend reason", "Accepted jobs: where the payload went, and why."),
    _spec("counter", "accepted_total", "tenant", "Accepted jobs; tenant is empty for jobs without one."),
    _histogram("accepted_payload_bytes", "backend", "Payloads of accepted jobs, as stored.", BYTES_BUCKETS),
    _spec("counter", "refused_total", "code", "Jobs not accepted for a reason that is not the caller's mistake."),
    _spec("counter", "uploads_abandoned_total", "backend", "Uploads without a job that only a sweep will find."),
    _spec("counter", "replayed_total", "", "Requests answered by their idempotency key with the first answer."),
    # Redis
    _spec("snapshot", "backlog_jobs", "queue state", "Jobs by queue and state" + _SAME + "."),
    _spec("snapshot", "oldest_overdue_seconds", "queue", "How long the oldest overdue job has waited" + _SAME + "."),
    _spec("gauge", "queues_paused", "", "Queues whose dispatching is paused" + _SAME + "."),
    _spec("gauge", "queues_unlisted", "", "Queues beyond LABEL_LIMIT, not among the gauges" + _SAME + "."),
    _spec("gauge", "redis_memory_ratio", "", "used_memory / maxmemory, 0 without maxmemory" + _SAME + "."),
    _spec("gauge", "redis_up", "", "1 if Redis answered this process when last asked."),
    _spec("gauge", "redis_snapshot_timestamp_seconds", "", "When this process last read the gauges about Redis."),
    _histogram("script_seconds", "script", "Redis scripts, from call to answer, repeats included."),
    _spec("counter", "script_repeats_total", "script", "Scripts sent again because the answer was lost."),
    _spec("counter", "index_repairs_total", "", "Queues whose entry in the index was wrong and has been repaired."),
    # The loops
    _spec("gauge", "loop_last_round_timestamp_seconds", "loop", "When the loop last ended a round; old: it hangs."),
    _spec("counter", "loop_rounds_total", "loop", "Rounds that a loop has ended."),
    _spec("counter", "loop_errors_total", "loop", "Rounds that failed and will be repeated."),
    _histogram("slice_seconds", "", "One queue's turn in a round of the dispatcher."),
    _spec("gauge", "queues_suspended", "cause", "Queues with due jobs that this dispatcher lets wait, by cause."),
    _spec("counter", "ready_unusable_total", "queue", "Times a ready key was found to be of another type."),
    _spec("counter", "overdraft_total", "queue", "Jobs delivered although Redis was full."),
    _spec("counter", "leases_extended_total", "backend", "Leases extended because a fetch was slow."),
    _spec("counter", "leases_lost_total", "backend", "Fetched payloads whose job was no longer ours to deliver."),
    # Backends
    _histogram("storage_operation_seconds", "backend operation", "Calls to a backend, its own repeats included."),
    _spec("counter", "storage_operations_total", "backend operation outcome", "Calls, by their end.", STORAGE_OUTCOMES),
    _histogram("storage_payload_bytes", "backend operation", "Payloads that went over the wire.", BYTES_BUCKETS),
    _spec("counter", "fetch_failures_total", "backend kind", "Payloads that could not be fetched to be delivered."),
    _spec("gauge", "breaker_state", "backend", "0 closed, 1 half-open, 2 open, in this process."),
    _spec("counter", "breaker_opened_total", "backend", "Times the breaker of a backend opened."),
    _spec("gauge", "ownership_mismatch", "backend", "1 if the place belongs to another installation."),
    _spec("gauge", "inflight_payloads", "backend", "Fetch slots in use in this process."),
    _spec("gauge", "inflight_bytes", "backend", "Bytes of payloads in hand in this process."),
    # Cleaning up
    _spec("counter", "trash_deleted_total", "backend", "Payloads deleted because their job had ended."),
    _spec("counter", "trash_failures_total", "backend", "Deletions that failed and will be repeated."),
    # Workers
    _histogram("worker_job_seconds", "queue task", "One attempt at a job, from begin to end."),
    _histogram("worker_wait_seconds", "queue", "Due to begun, of jobs that say when they were due."),
    _spec("counter", "worker_jobs_total", "queue task outcome", "Attempts at jobs, by their end.", WORKER_OUTCOMES),
    _spec("gauge", "worker_running_jobs", "", "Jobs whose handlers run now, in this process."),
    _spec("gauge", "worker_waiting_jobs", "", "Jobs taken and not yet begun, in this process."),
    _spec("counter", "worker_taken_for_dead_total", "queue", "Times this worker was taken for dead and began anew."),
    _spec("counter", "worker_not_ours_total", "queue", "Jobs that ended after others had them."),
    _spec("counter", "worker_reaped_total", "queue", "Jobs of dead workers that this one returned."),
    # The process
    _spec("counter", "http_responses_total", "call status", "HTTP answers, by the API's call and status."),
    _spec("gauge", "build_info", "version python", "1; which release this is."),
)
