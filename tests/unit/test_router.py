"""The router's table, held to its boundaries. Pure: no server, no clock."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from service.errors import BackendUnavailable
from service.router import FIELDS, Decision, Facts, Resolved, RoutingRules, Setting, StorageRouter, in_rollout
from storage_backends.reference import new_uuid

ON = Resolved(offload_to="s3")
UP = frozenset({"redis", "s3"})
DOWN = frozenset({"redis"})


def facts(**changes: object) -> Facts:
    """A job of 1,000 bytes due in a second, everything healthy, with `changes`."""
    usual = Facts(1_000, 1_000, None, "emails", "0193f2a4-7c1e-7b3a-9d57-6f0a1c2b3d4e", UP)
    return replace(usual, **changes)


def decide(defaults: Resolved = ON, **changes: object) -> Decision:
    return StorageRouter(defaults).decide(facts(**changes))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"payload_bytes": 0}, Decision("redis", "tiny")),
        ({"payload_bytes": 511}, Decision("redis", "tiny")),
        ({"payload_bytes": 512}, Decision("redis", "small_and_short")),
        ({"payload_bytes": 16_384}, Decision("redis", "small_and_short")),
        ({"payload_bytes": 16_385}, Decision("s3", "large")),
        ({"delay_ms": -5}, Decision("redis", "small_and_short")),
        ({"delay_ms": 900_000}, Decision("redis", "small_and_short")),
        ({"delay_ms": 900_001}, Decision("s3", "long")),
    ],
)
def test_every_threshold_belongs_to_the_side_that_the_table_names(changes, expected):
    assert decide(**changes) == expected


@pytest.mark.parametrize(
    ("defaults", "changes", "reason"),
    [
        (Resolved(), {"payload_bytes": 10**7, "delay_ms": 10**10}, "disabled"),
        (replace(ON, rollout_percent=0), {"payload_bytes": 10**7, "delay_ms": 10**10}, "disabled"),
        (Resolved(), {"payload_bytes": 1}, "disabled"),
        (ON, {"payload_bytes": 1, "delay_ms": 10**10}, "tiny"),
        (replace(ON, offload_min_bytes=2_000, inline_max_bytes=500), {"payload_bytes": 1_000}, "tiny"),
        (ON, {"payload_bytes": 10**7, "delay_ms": 10**10}, "large"),
    ],
)
def test_the_first_line_of_the_table_that_fits_decides(defaults, changes, reason):
    assert decide(defaults, **changes).reason == reason


def test_a_disabled_offload_never_asks_whether_the_backend_is_there():
    assert decide(Resolved(), payload_bytes=10**7, available=frozenset(), redis_memory_ratio=1.0).reason == "disabled"


@pytest.mark.parametrize(("size", "taken"), [(65_536, True), (65_537, False)])
def test_redis_stands_in_for_an_absent_backend_up_to_a_size(size, taken):
    if taken:
        assert decide(payload_bytes=size, available=DOWN) == Decision("redis", "fallback")
    else:
        with pytest.raises(BackendUnavailable, match="fallback_max_bytes") as refusal:
            decide(payload_bytes=size, available=DOWN)
        assert refusal.value.retry_after_s > 0


def test_redis_stands_in_for_a_long_delay_too():
    assert decide(delay_ms=10**9, available=DOWN) == Decision("redis", "fallback")


@pytest.mark.parametrize("ratio", [0.8, 0.81, 1.0, 1.2])
def test_an_outage_of_the_backend_does_not_fill_redis(ratio):
    with pytest.raises(BackendUnavailable, match="watermark"):
        decide(delay_ms=10**9, available=DOWN, redis_memory_ratio=ratio)


def test_below_the_watermark_redis_stands_in():
    assert decide(delay_ms=10**9, available=DOWN, redis_memory_ratio=0.799).reason == "fallback"


def test_the_watermark_is_no_business_of_what_is_inline_anyway():
    assert decide(available=DOWN, redis_memory_ratio=0.99).reason == "small_and_short"


def test_refuse_refuses_at_once():
    with pytest.raises(BackendUnavailable, match="refuse"):
        decide(replace(ON, when_unavailable="refuse"), delay_ms=10**9, available=DOWN)


class TestTheMostSpecificWins:
    router = StorageRouter(
        ON,
        tenants={"acme": RoutingRules(offload_to="s3_acme", inline_max_bytes=2_000)},
        queues={"mail": RoutingRules(inline_max_bytes=4_000, offload_min_bytes=0, when_unavailable="refuse")},
    )

    def test_field_by_field_in_the_order_tenant_queue_default(self):
        assert self.router.resolved("acme", "mail") == Resolved(
            offload_to="s3_acme", inline_max_bytes=2_000, offload_min_bytes=0, when_unavailable="refuse"
        )

    def test_an_explanation_names_each_fields_source(self):
        settings = self.router.explain(facts(tenant="acme", queue="mail")).settings
        assert [setting.name for setting in settings] == list(FIELDS)
        by_name = {setting.name: setting for setting in settings}
        assert by_name["inline_max_bytes"] == Setting("inline_max_bytes", 2_000, "tenant")
        assert by_name["offload_min_bytes"] == Setting("offload_min_bytes", 0, "queue")
        assert by_name["fallback_max_bytes"] == Setting("fallback_max_bytes", 65_536, "default")

    def test_a_name_without_rules_gets_the_defaults_and_takes_no_memory(self):
        """Queue names come from callers: a cache keyed by them would be theirs to fill."""
        for n in range(10_000):
            assert self.router.resolved(f"tenant-{n}", f"queue-{n}") == ON
        assert self.router._cached.cache_info().currsize <= 4

    def test_a_tenant_can_switch_off_what_its_queue_switches_on(self):
        router = StorageRouter(
            Resolved(), tenants={"small": RoutingRules(offload_to="")}, queues={"mail": RoutingRules(offload_to="s3")}
        )
        big = facts(queue="mail", payload_bytes=10**6)
        assert router.decide(big).backend == "s3"
        assert router.decide(replace(big, tenant="small")) == Decision("redis", "disabled")

    def test_a_zero_is_a_setting_not_an_absence(self):
        router = StorageRouter(ON, queues={"mail": RoutingRules(rollout_percent=0)})
        assert router.decide(facts(queue="mail", payload_bytes=10**6)).reason == "disabled"


class TestTheRollout:
    def test_it_is_the_same_in_every_process_and_release(self):
        """A constant: were it to change, a rollout at 10% would move to other jobs with the deploy."""
        uuids = [f"0193f2a4-7c1e-7b3a-9d57-{n:012x}" for n in range(20)]
        assert [n for n, uuid in enumerate(uuids) if in_rollout(uuid, 25)] == [7, 9, 19]

    @given(st.uuids(), st.floats(0, 100), st.floats(0, 100))
    def test_raising_the_percentage_only_adds_jobs(self, uuid, one, other):
        low, high = sorted((one, other))
        assert in_rollout(str(uuid), low) <= in_rollout(str(uuid), high)

    @given(st.uuids())
    def test_nobody_is_in_at_0_and_everybody_at_100(self, uuid):
        assert not in_rollout(str(uuid), 0)
        assert in_rollout(str(uuid), 100)

    @pytest.mark.parametrize("percent", [1, 12.5, 50, 99])
    def test_its_share_is_what_it_says(self, percent):
        """Made from UUIDv7 of one moment, whose leading digits are all alike."""
        share = sum(in_rollout(new_uuid(), percent) for _ in range(20_000)) / 20_000
        assert abs(share - percent / 100) < 0.02


@given(
    st.builds(
        facts,
        payload_bytes=st.integers(0, 200_000),
        delay_ms=st.integers(-10, 2_000_000),
        available=st.sampled_from([UP, DOWN]),
        redis_memory_ratio=st.floats(0, 1.2),
        uuid=st.uuids().map(str),
    ),
    st.sampled_from([0, 30, 100]),
    st.sampled_from(["inline", "refuse"]),
)
def test_an_explanation_always_tells_what_was_decided(job, percent, when_unavailable):
    router = StorageRouter(replace(ON, rollout_percent=percent, when_unavailable=when_unavailable))
    explained = router.explain(job)
    assert explained.rule
    if explained.decision is None:
        assert explained.preferred.backend not in job.available
        with pytest.raises(BackendUnavailable) as refusal:
            router.decide(job)
        assert explained.rule.endswith(str(refusal.value))
    else:
        assert router.decide(job) == explained.decision
        assert explained.decision.backend in job.available


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "neither large nor long"),
        ({"payload_bytes": 3}, "3 bytes are less than offload_min_bytes 512"),
        ({"payload_bytes": 20_000}, "20000 bytes are more than inline_max_bytes 16384"),
        (
            {"delay_ms": 10**6, "available": DOWN},
            "a delay of 1000000 ms is over inline_max_delay_ms 900000; s3 is unav",
        ),
    ],
)
def test_an_explanation_names_the_figures_that_decided(changes, said):
    assert StorageRouter(ON).explain(facts(**changes)).rule.startswith(said)


@pytest.mark.parametrize("defaults", [Resolved(), replace(ON, rollout_percent=0)])
def test_an_explanation_tells_the_two_ways_of_being_disabled_apart(defaults):
    rule = StorageRouter(defaults).explain(facts()).rule
    assert rule == ("the job's uuid is outside rollout_percent 0" if defaults.offload_to else "offload_to is empty")


@pytest.mark.parametrize(
    "wrong",
    [
        {"rollout_percent": 101},
        {"rollout_percent": -1},
        {"rollout_percent": float("nan")},
        {"offload_min_bytes": -1},
        {"when_unavailable": "panic"},
        {"offload_to": "redis"},
    ],
)
@pytest.mark.parametrize("kind", [RoutingRules, Resolved])
def test_rules_that_cannot_be_are_refused_where_they_are_made(kind, wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        kind(**wrong)
