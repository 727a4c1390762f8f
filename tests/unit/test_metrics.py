"""What is counted, under which labels, and how many series that can ever be."""

from typing import get_args

import pytest
from hypothesis import given, strategies as st
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import service.errors
from service.breaker import State
from service.catalogue import (
    BREAKER_STATES,
    BYTES_BUCKETS,
    CATALOGUE,
    LATENESS_BUCKETS_MS,
    LATENESS_BUCKETS_S,
    REASONS,
    REFUSALS,
    SECONDS_BUCKETS,
)
from service.instruments import BulkHistogram, WithoutCreated
from service.metrics import STATES, Metrics, QueueGauges
from service.router import Reason


def some_metrics(**configured: object) -> Metrics:
    usual = {"backends": ("redis", "s3"), "queues": ("mail",), "tenants": ("acme",), "scripts": ("claim",)}
    return Metrics("1.2.3", **{**usual, "loops": ("dispatcher",), **configured})


def series(metrics: Metrics) -> dict[tuple[str, frozenset], float]:
    text, _ = metrics.render()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return series(metrics).get((f"coatcheck_{name}", frozenset(labels.items())))


def use_everything(metrics: Metrics, queue: str, tenant: str | None, backend: str = "s3") -> None:
    """Calls every method once with names of a caller's choosing."""
    metrics.accepted(queue, backend, "large", tenant, 20_000)
    metrics.delivered(queue, backend, 3)
    metrics.happened("retried", queue, backend)
    metrics.buried(queue, backend, "payload_missing")
    metrics.trimmed(queue, 2)
    metrics.lateness(queue, backend, 0.02)
    metrics.observe_histogram_counts(queue, "redis", [0] * len(LATENESS_BUCKETS_MS) + [1], 4_000.0)
    metrics.reenqueued(queue, backend, 0.02)
    metrics.enqueued(0.004)
    metrics.refused("redis-full")
    metrics.replayed()
    metrics.upload_abandoned(backend)
    metrics.redis_up(True)
    metrics.snapshot([QueueGauges(queue, overdue=3, oldest_overdue_s=9)], unlisted=0, memory_ratio=0.1, at_ms=1)
    metrics.script("claim", 0.001, 1)
    metrics.index_repaired(1)
    metrics.loop_round("dispatcher", 1_000)
    metrics.loop_failed("dispatcher")
    metrics.slice_ended(0.01)
    metrics.suspended({"ready_full": 2})
    metrics.ready_unusable(queue)
    metrics.overdraft(queue)
    metrics.lease_extended(backend)
    metrics.lease_lost(backend)
    metrics.storage_operation(backend, "put", "ok", 0.1)
    metrics.storage_payload(backend, "put", 20_000)
    metrics.fetch_failed(backend, "throttled")
    metrics.breaker(backend, "open")
    metrics.ownership(backend, ours=False)
    metrics.inflight(backend, 3, 9_000)
    metrics.trash_deleted(backend, 1)
    metrics.trash_failed(backend, 1)
    metrics.worker_job(queue, "send_email", "done", 0.01)
    metrics.worker_waited(queue, 0.5)
    metrics.worker_now(3, 4)
    metrics.worker_lost(queue)
    metrics.worker_missing(queue, 1)
    metrics.worker_reaped(queue, 2)
    metrics.responded("enqueue", 201)


class TestTheCatalogue:
    def test_every_series_has_the_labels_that_the_catalogue_names(self):
        metrics = some_metrics()
        use_everything(metrics, "mail", "acme")
        text, _ = metrics.render()
        shown = {family.name: family for family in text_string_to_metric_families(text.decode())}
        for spec in CATALOGUE:
            family = shown[spec.name.removesuffix("_total") if spec.type == "counter" else spec.name]
            assert family.type == spec.shown_type
            assert family.documentation == spec.help
            assert family.samples, spec.name
            for sample in family.samples:
                assert set(sample.labels) - {"le"} == set(spec.labels), spec.name

    def test_nothing_is_shown_that_is_not_in_it_but_the_process_itself(self):
        text, content_type = some_metrics().render()
        names = {family.name for family in text_string_to_metric_families(text.decode())}
        known = {spec.name.removesuffix("_total") for spec in CATALOGUE}
        assert {name for name in names - known if not name.startswith("process_")} == set()
        assert content_type.startswith("text/plain; version=0.0.4")

    def test_names_say_their_unit_and_counters_end_in_total(self):
        for spec in CATALOGUE:
            assert spec.name.startswith("coatcheck_")
            assert spec.name.endswith("_total") == (spec.type == "counter")
            assert spec.type != "histogram" or spec.name.endswith(("_seconds", "_bytes"))
            assert spec.help.endswith(".")

    def test_gauges_that_describe_redis_say_how_to_read_them_from_several_replicas(self):
        says = {spec.name for spec in CATALOGUE if "use max by, never sum" in spec.help}
        assert {"coatcheck_backlog_jobs", "coatcheck_oldest_overdue_seconds", "coatcheck_redis_memory_ratio"} <= says

    def test_its_closed_sets_are_those_of_the_code_that_fills_them(self):
        assert get_args(Reason) == REASONS
        assert set(get_args(State)) == set(BREAKER_STATES)
        codes = {getattr(error, "code", None) for error in vars(service.errors).values() if isinstance(error, type)}
        assert set(REFUSALS) <= codes
        assert STATES == ("future", "overdue", "leased", "ready", "dead", "trash")

    @pytest.mark.parametrize("buckets", [LATENESS_BUCKETS_S, SECONDS_BUCKETS, BYTES_BUCKETS])
    def test_buckets_rise(self, buckets):
        assert list(buckets) == sorted(set(buckets))


class TestBornAtZero:
    def test_an_alert_on_an_increase_sees_the_first_failure(self):
        metrics = some_metrics()
        for name, labels in [
            ("jobs_total", {"queue": "mail", "backend": "s3", "outcome": "buried"}),
            ("jobs_total", {"queue": "other", "backend": "redis", "outcome": "delivered"}),
            ("accepted_total", {"tenant": "acme"}),
            ("accepted_total", {"tenant": ""}),
            ("buried_total", {"backend": "s3", "kind": "payload_missing"}),
            ("routing_decisions_total", {"backend": "redis", "reason": "fallback"}),
            ("storage_operations_total", {"backend": "s3", "operation": "get", "outcome": "denied"}),
            ("refused_total", {"code": "redis-full"}),
            ("loop_errors_total", {"loop": "dispatcher"}),
            ("script_repeats_total", {"script": "claim"}),
            ("replayed_total", {}),
            ("breaker_state", {"backend": "s3"}),
            ("ownership_mismatch", {"backend": "s3"}),
            ("redis_up", {}),
            ("backlog_jobs", {"queue": "mail", "state": "dead"}),
            ("oldest_overdue_seconds", {"queue": "mail"}),
            ("enqueue_seconds_count", {}),
            ("reenqueue_lateness_seconds_bucket", {"queue": "mail", "backend": "s3", "le": "+Inf"}),
        ]:
            assert value(metrics, name, **labels) == 0, name

    def test_a_queue_met_later_is_born_with_all_its_outcomes(self):
        metrics = some_metrics()
        metrics.accepted("new", "s3", "large", None, 20_000)
        assert value(metrics, "jobs_total", queue="new", backend="s3", outcome="delivered") == 0

    def test_the_release_is_shown(self):
        assert [k for k in series(some_metrics()) if k[0] == "coatcheck_build_info" and ("version", "1.2.3") in k[1]]


class TestTheCap:
    def test_ten_thousand_queues_and_tenants_make_no_more_series_than_the_limit_allows(self):
        metrics = some_metrics(label_limit=20)
        for n in range(30):
            use_everything(metrics, f"queue-{n}", f"tenant-{n}", backend=f"backend_{n}")
        full = len(series(metrics))
        for n in range(10_000):
            metrics.accepted(f"q{n}", "s3", "large", f"t{n}", 1)
            metrics.delivered(f"q{n}", "s3")
            metrics.lateness(f"q{n}", f"b{n}", 1.0)
            metrics.refused(f"code-{n}")
            metrics.storage_operation("s3", f"op-{n}", f"outcome-{n}", 1.0)
            metrics.responded(f"call-{n}", n)
        capped = series(metrics)
        assert len(capped) < full + 1_500
        for label in ("queue", "tenant"):
            assert len({dict(labels).get(label) for _, labels in capped} - {None}) <= 20 + 2
        assert value(metrics, "accepted_total", tenant="other") >= 9_980
        assert value(metrics, "jobs_total", queue="other", backend="s3", outcome="delivered") >= 9_980

    def test_what_is_configured_comes_first_and_is_within_the_limit_too(self):
        """A file of ten thousand queues is no reason for ten thousand times fifty series in every process."""
        many = [f"q{n}" for n in range(10_000)]
        metrics = some_metrics(queues=many, tenants=[f"t{n}" for n in range(10_000)], label_limit=20)
        for queue in ("q19", "q20", "stranger"):
            metrics.delivered(queue, "s3")
        assert value(metrics, "jobs_total", queue="q19", backend="s3", outcome="delivered") == 1
        assert value(metrics, "jobs_total", queue="other", backend="s3", outcome="delivered") == 2
        metrics.snapshot([QueueGauges("q20", ready=1)], unlisted=0, memory_ratio=0.5, at_ms=2_000)
        assert value(metrics, "queues_unlisted") == 1
        for label in ("queue", "tenant"):
            assert len({dict(labels).get(label) for _, labels in series(metrics)} - {None, "other"}) == 20

    def test_a_backend_that_is_not_configured_is_other(self):
        metrics = some_metrics()
        metrics.buried("mail", "s3_gone", "unknown_backend")
        assert value(metrics, "buried_total", backend="other", kind="unknown_backend") == 1

    def test_a_failure_kind_of_a_strangers_backend_is_other(self):
        metrics = some_metrics()
        metrics.fetch_failed("s3", "disk_on_fire")
        assert value(metrics, "fetch_failures_total", backend="s3", kind="other") == 1


class TestASnapshot:
    def snapshot(self, metrics: Metrics, *queues: QueueGauges, unlisted: int = 0) -> None:
        metrics.snapshot(queues, unlisted=unlisted, memory_ratio=0.5, at_ms=2_000)

    def test_it_replaces_the_last_one_and_what_is_gone_disappears(self):
        metrics = some_metrics()
        self.snapshot(metrics, QueueGauges("mail", overdue=3, oldest_overdue_s=7), QueueGauges("old", dead=1))
        assert value(metrics, "backlog_jobs", queue="mail", state="overdue") == 3
        assert value(metrics, "oldest_overdue_seconds", queue="mail") == 7
        assert value(metrics, "backlog_jobs", queue="old", state="dead") == 1
        self.snapshot(metrics, QueueGauges("new", paused=True))
        assert value(metrics, "backlog_jobs", queue="old", state="dead") is None
        assert value(metrics, "oldest_overdue_seconds", queue="old") is None
        assert value(metrics, "backlog_jobs", queue="mail", state="overdue") == 0
        assert value(metrics, "queues_paused") == 1
        assert value(metrics, "redis_snapshot_timestamp_seconds") == 2

    def test_it_shows_configured_queues_first_and_counts_what_it_cannot_show(self):
        metrics = some_metrics(label_limit=3)
        self.snapshot(
            metrics, *(QueueGauges(f"q{n}", ready=1) for n in range(5)), QueueGauges("mail", ready=9), unlisted=7
        )
        assert value(metrics, "backlog_jobs", queue="mail", state="ready") == 9
        assert value(metrics, "backlog_jobs", queue="q1", state="ready") == 1
        assert value(metrics, "backlog_jobs", queue="q2", state="ready") is None
        assert value(metrics, "queues_unlisted") == 7 + 3

    def test_queues_that_come_and_go_never_use_up_the_places(self):
        metrics = some_metrics(label_limit=3)
        for n in range(100):
            self.snapshot(metrics, QueueGauges(f"q{n}", ready=1))
        assert value(metrics, "backlog_jobs", queue="q99", state="ready") == 1


class TestTheBulkHistogram:
    @given(st.lists(st.integers(0, 10_000), max_size=50))
    def test_counts_added_in_bulk_equal_single_observations_and_those_of_prometheus_client(self, lateness_ms):
        bounds_ms = (1, 2, 500, 1_000, 5_000)
        bounds_s = tuple(bound / 1_000 for bound in bounds_ms)
        counts = [0] * (len(bounds_ms) + 1)
        for late in lateness_ms:
            counts[sum(late > bound for bound in bounds_ms)] += 1  # as claim.lua counts
        bulk, single = (BulkHistogram("late_seconds", "Late.", ("queue",), bounds_s) for _ in range(2))
        theirs = Histogram("late_seconds", "Late.", ("queue",), buckets=bounds_s, registry=None)
        bulk.add(counts, sum(lateness_ms) / 1_000, "mail")
        single.touch("mail")
        theirs.labels("mail")
        for late in lateness_ms:
            single.observe(late / 1_000, "mail")
            theirs.labels("mail").observe(late / 1_000)
        texts = [self.exposed(histogram) for histogram in (bulk, single, theirs)]
        assert texts[0] == texts[1] == texts[2]

    def exposed(self, histogram: BulkHistogram | Histogram) -> dict[str, float]:
        registry = CollectorRegistry()
        registry.register(histogram)
        lines = generate_latest(WithoutCreated(registry)).decode().splitlines()
        samples = [line.rsplit(" ", 1) for line in lines if line[0] != "#"]
        return {name: round(float(value), 9) for name, value in samples}

    def test_a_value_on_a_bound_is_within_it(self):
        histogram = BulkHistogram("late_seconds", "Late.", (), (1.0, 2.0))
        histogram.observe(1.0)
        assert histogram.touch()[0] == [1, 0, 0]

    def test_it_refuses_counts_of_other_buckets(self):
        """A script that counts by bounds other than these would be shown as if it had counted by these."""
        with pytest.raises(ValueError, match="buckets"):
            some_metrics().observe_histogram_counts("mail", "redis", [1, 2, 3], 1.0)

    def test_it_refuses_labels_that_it_does_not_have(self):
        with pytest.raises(ValueError, match="labels"):
            BulkHistogram("late_seconds", "Late.", ("queue",), (1.0,)).observe(1.0)

    def test_single_and_bulk_meet_in_one_series(self):
        metrics = some_metrics()
        metrics.lateness("mail", "s3", 0.001)
        metrics.observe_histogram_counts("mail", "s3", [5] + [0] * len(LATENESS_BUCKETS_MS[1:]) + [1], 4_000.0)
        lateness = "reenqueue_lateness_seconds"
        assert value(metrics, f"{lateness}_bucket", queue="mail", backend="s3", le="0.001") == 6
        assert value(metrics, f"{lateness}_count", queue="mail", backend="s3") == 7
        assert value(metrics, f"{lateness}_sum", queue="mail", backend="s3") == pytest.approx(4_000.001)


def test_two_of_them_share_nothing():
    """A second service in one process, as tests start them, must neither clash nor add to the first."""
    one, other = some_metrics(), some_metrics()
    one.replayed()
    assert value(other, "replayed_total") == 0


def test_an_opened_breaker_is_seen_as_a_state_and_as_an_event():
    metrics = some_metrics()
    for state in ("open", "half_open", "closed"):
        metrics.breaker("s3", state)
        assert value(metrics, "breaker_state", backend="s3") == BREAKER_STATES[state]
    assert value(metrics, "breaker_opened_total", backend="s3") == 1


def test_no_label_holds_what_only_a_payload_or_a_reference_can():
    metrics = some_metrics(label_limit=5)
    use_everything(metrics, "mail", None)
    labels = {label for spec in CATALOGUE for label in spec.labels}
    assert labels & {"uuid", "reference", "payload", "key", "worker", "error", "path"} == set()
