"""What advise makes of a sample: pure figures, held to the router, to the arithmetic, and to each other."""

import random
import re
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from service.advisor import figures, memory
from service.advisor.choice import choose
from service.advisor.costs import GIB, MONTH_MS, Prices
from service.advisor.delayed import DelayedSet, Job
from service.advisor.distribution import distribution
from service.advisor.estimates import Estimate
from service.advisor.finding import Found
from service.advisor.grid import Outcome, Thresholds, grid, outcome
from service.advisor.picture import page
from service.advisor.report import Question, Report, report
from service.advisor.sampling import Read, Sample, allotted, drawn, strata_of
from service.advisor.survey import Memory, Survey
from service.router import Facts, Resolved, StorageRouter
from service.settings import load
from storage_backends.reference import new_uuid

DAY_MS = 86_400_000
NOTHING = Estimate(0, 0, 0)


def a_sample(*jobs: Job, population: int | None = None) -> Sample:
    return Sample([Read(population or len(jobs), jobs)], {}, {}, cut_short=False)


def an_outcome(
    dollars: float, thresholds: Thresholds | None = None, redis_bytes: float = 0, **more: Estimate
) -> Outcome:
    point = {name: Estimate(it, it, it) for name, it in (("dollars", dollars), ("redis_bytes", redis_bytes))}
    rest = {"s3_bytes": NOTHING, "offloaded_a_month": NOTHING, "saving": Estimate(1, 1, 1)}
    return Outcome(thresholds, **{**rest, **point, **more})


def a_report(*jobs: Job, key: str = "rtq:queue:a:delayed", queue: str = "a", **question) -> Report:
    of = DelayedSet("rtq", queue, key, len(jobs))
    sample = Sample([Read(len(jobs), jobs)], {of: len(jobs)}, {("rtq", "a member is no envelope"): 1}, cut_short=True)
    survey = Survey(Memory("9", 10**9, 10**6, 2 * 10**9), 0, Found([of], False, ["\x1b[2J"]), sample)
    return report(survey, Question(**question))


def some_jobs(count: int = 500) -> list[Job]:
    chance = random.Random(1)
    sizes = [round(chance.lognormvariate(8, 1.5)) for _ in range(count)]
    delays = [chance.randrange(1_000, 30 * DAY_MS) for _ in range(count)]
    return [
        Job(size, memory.inline_bytes(size), delay, chance.randrange(delay))
        for size, delay in zip(sizes, delays, strict=True)
    ]


# ---- what it costs ---------------------------------------------------------------------------------------------------


def test_the_model_of_memory_says_what_was_measured():
    """The README's figures: 176 bytes a reference; 1,000 bytes of payload take 290 more, 1,024 take 522 more."""
    reference = "s3::emails::1764547200000::0193f2a4-7c1e-7b3a-9d57-6f0a1c2b3d4e"
    assert memory.member_bytes(len(reference)) == memory.REFERENCE_BYTES == 176
    assert memory.inline_bytes(1_000) == 1_000 + 290
    assert memory.inline_bytes(1_024) == 1_024 + 522


@given(st.integers(0, 2**26))
def test_memory_grows_with_the_payload_and_never_by_more_than_a_quarter(size):
    assert memory.inline_bytes(size) <= memory.inline_bytes(size + 1)
    assert size < memory.inline_bytes(size) <= size * 1.25 + 400


@given(
    st.integers(0, 10**6),
    st.integers(0, 10**9),
    st.integers(0, 10**6),
    st.integers(0, 10**9),
    st.integers(0, 10**6),
)
def test_thresholds_decide_as_the_router_does(size, delay_ms, inline_max_bytes, inline_max_delay_ms, least):
    """An advisor that knew other rules would promise what does not come."""
    rules = Resolved("s3", 100, least, inline_max_bytes, inline_max_delay_ms)
    facts = Facts(size, delay_ms, None, "q", new_uuid(), {"s3"})
    thresholds = Thresholds(inline_max_bytes, inline_max_delay_ms, least)
    assert thresholds.offloads(size, delay_ms) == (StorageRouter(rules).decide(facts).backend == "s3")


def test_dollars_are_memory_storage_and_requests():
    """1 MiB for a day each, a thousand of them at any moment: 30.4 thousand a month come and go."""
    job = Job(2**20, memory.inline_bytes(2**20), DAY_MS, DAY_MS // 2)
    prices = Prices(
        redis_gib_month=10, s3_gib_month=0.02, put_thousand=0.005, get_thousand=0.0004, delete_thousand=0.001
    )
    found = outcome(a_sample(*[job] * 1000), Thresholds(1024, 900_000), prices)
    a_month = 1000 * MONTH_MS / DAY_MS
    assert found.offloaded_a_month.point == pytest.approx(a_month)
    assert found.redis_bytes.point == 1000 * 176
    assert found.s3_bytes.point == 1000 * 2**20
    expected = 176_000 / GIB * 10 + 1000 * 2**20 / GIB * 0.02 + a_month * 0.0064 / 1000
    assert found.dollars.point == pytest.approx(expected)
    assert found.saving.point == pytest.approx(1000 * job.held_bytes / GIB * 10 - expected)


def test_overdue_jobs_tell_nothing_of_how_many_come():
    """They stay for longer than their delay: a stuck queue would look like a busy one."""
    late = Job(2**20, 2**20, 60_000, -5_000)
    found = outcome(a_sample(late, late), Thresholds(), Prices())
    assert found.offloaded_a_month.point == 0
    assert found.s3_bytes.point == 2 * 2**20


def test_payloads_that_are_elsewhere_already_are_left_there():
    job = Job(0, 176, DAY_MS, 1, offloaded=True)
    found = outcome(a_sample(job), Thresholds(0, 0, 0), Prices())
    assert (found.redis_bytes.point, found.s3_bytes.point, found.offloaded_a_month.point) == (176, 0, 0)
    assert all(cell.jobs.point == 0 for cell in distribution(a_sample(job)))


SIZES = {
    "pareto": lambda chance: round(400 * chance.paretovariate(1.3)),
    "uniform": lambda chance: chance.randrange(400, 20_000),
    "one in twenty is large": lambda chance: 60_000 if chance.random() < 0.05 else 600,
}


@pytest.mark.parametrize("recorded", [True, False], ids=["delays recorded", "delays not recorded"])
@pytest.mark.parametrize("shape", SIZES)
def test_the_grid_holds_in_95_of_100_seeds_down_to_kinds_that_the_sample_has_none_of(shape, recorded):
    """Four jobs of 3,000 are over 64 KiB, or due within the quarter: most samples of 300 hold none of them, and an
    interval from nothing to nothing would be a lie."""
    held, pairs = Counter[str](), [Thresholds(4096, 7 * DAY_MS), Thresholds(65536, 900_000)]
    for seed in range(100):
        chance, jobs = random.Random(seed), list[Job]()
        for _ in range(3_000):
            size, delay_ms = min(2**24, SIZES[shape](chance)), chance.randrange(60_000, 7 * DAY_MS)
            jobs.append(Job(size, 300 + size, delay_ms if recorded else None, chance.randrange(delay_ms)))
        for pair in pairs:
            found = outcome(a_sample(*chance.sample(jobs, 300), population=3_000), pair, Prices())
            truth = outcome(a_sample(*jobs), pair, Prices())
            for name in ("redis_bytes", "s3_bytes", "offloaded_a_month", "dollars", "saving"):
                estimate, point = getattr(found, name), getattr(truth, name).point
                slack = 1e-9 * abs(point)
                held[f"{name} {pair}"] += estimate.low - slack <= point <= estimate.high + slack
    assert {what: times for what, times in held.items() if times < 95} == {}


def test_higher_thresholds_leave_more_in_redis():
    every = [(it.thresholds, it) for it in grid(a_sample(*some_jobs(), population=5_000), Prices())]
    for a, low in every:
        for b, high in every:
            if a.inline_max_bytes <= b.inline_max_bytes and a.inline_max_delay_ms <= b.inline_max_delay_ms:
                assert low.redis_bytes.point <= high.redis_bytes.point
                assert low.s3_bytes.point >= high.s3_bytes.point
                assert low.offloaded_a_month.point >= high.offloaded_a_month.point


def test_the_cells_of_the_distribution_are_all_there_is():
    jobs = [*some_jobs(), Job(0), Job(512, delay_ms=60_000), Job(10**9, delay_ms=10**12), Job(5, waits_ms=-7)]
    cells = distribution(a_sample(*jobs))
    assert sum(it.jobs.point for it in cells) == len(jobs)
    assert sum(it.payload_bytes.point for it in cells) == sum(it.payload_bytes for it in jobs)


# ---- what to choose --------------------------------------------------------------------------------------------------


def test_the_cheapest_is_chosen_and_spelt_as_settings_take_it():
    outcomes = [an_outcome(3, Thresholds(1024, 900_000)), an_outcome(1, Thresholds(65536, DAY_MS))]
    advice = choose(an_outcome(2), outcomes, Thresholds(), offload_to="s3_acme")
    assert advice.outcome is outcomes[1]
    assert advice.sure
    settings = load(
        {
            "COATCHECK_BACKENDS__S3_ACME__KIND": "s3",
            "COATCHECK_BACKENDS__S3_ACME__BUCKET": "payloads",
            **advice.settings,
        }
    )
    assert settings.routing.offload_to == "s3_acme"
    assert settings.routing.inline_max_bytes == 65536
    assert settings.routing.inline_max_delay_ms == DAY_MS


def test_nothing_is_offloaded_where_that_does_not_pay():
    advice = choose(an_outcome(1), [an_outcome(2, Thresholds())], Thresholds())
    assert advice.outcome.thresholds is None
    assert load(dict(advice.settings)).routing.offload_to == ""


def test_of_equal_ones_the_one_nearest_to_the_present():
    """No change for its own sake."""
    every = [an_outcome(1, Thresholds(size, delay)) for size in (1024, 16384, 2**20) for delay in (900_000, DAY_MS)]
    assert choose(an_outcome(9), every, Thresholds(16384, 900_000)).outcome is every[2]
    assert choose(an_outcome(9), every, Thresholds(2**20, DAY_MS)).outcome is every[5]


def test_what_must_fit_fits_by_its_whole_interval():
    tight = an_outcome(5, Thresholds(1024, 0), redis_bytes=90)
    loose = an_outcome(1, Thresholds(4096, 0), redis_bytes=95)
    loose = replace(loose, redis_bytes=Estimate(95, 80, 120))
    assert choose(an_outcome(9, redis_bytes=999), [tight, loose], Thresholds(), at_most_bytes=100).outcome is tight
    nothing_fits = choose(an_outcome(9, redis_bytes=999), [tight, loose], Thresholds(), at_most_bytes=10)
    assert nothing_fits.outcome is tight
    assert not nothing_fits.fits


def test_it_says_if_it_is_not_sure():
    unsure = an_outcome(1, Thresholds(), saving=Estimate(1, -1, 3))
    assert not choose(an_outcome(2), [unsure], Thresholds()).sure
    better = an_outcome(3, Thresholds(), saving=Estimate(-1, -5, 3))
    assert not choose(an_outcome(2, saving=NOTHING), [better], Thresholds()).sure


# ---- the sample ------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 10**7), min_size=1, max_size=64), st.integers(100, 20_000))
def test_no_stratum_gives_more_than_it_has_nor_nothing(sizes, wanted):
    counts = allotted(sizes, wanted)
    assert all(0 < count <= size for count, size in zip(counts, sizes, strict=True))
    assert sum(counts) <= max(wanted, 20 * len(sizes))
    assert sum(counts) >= min(sum(sizes), wanted) - len(sizes)


def test_what_is_short_enough_is_read_as_a_whole():
    assert allotted([3, 500, 9_000], 10_000) == [3, 500, 9_000]


def test_each_job_of_each_set_is_drawn_as_often():
    """20,000 draws of 5 out of 25 in three sets: each 4,000 times, up to chance (five standard deviations)."""
    sets = [DelayedSet("rtq", str(jobs), str(jobs), jobs) for jobs in (3, 20, 2)]
    chance, counts = random.Random(1), dict[tuple[str, int], int]()
    for _ in range(20_000):
        some = list(drawn(sets, 5, chance))
        assert len(set(some)) == 5
        for of, rank in some:
            assert 0 <= rank < of.jobs
            counts[of.key, rank] = counts.get((of.key, rank), 0) + 1
    assert len(counts) == 25
    assert all(abs(it - 4_000) < 5 * 57 for it in counts.values())


def test_short_sets_share_a_stratum_when_there_are_very_many():
    sets = [DelayedSet("rtq", str(jobs), str(jobs), jobs) for jobs in range(200)]
    strata = strata_of(sets, 10)
    assert [len(it) for it in strata] == [1] * 9 + [190]
    assert sum(it.jobs for stratum in strata for it in stratum) == sum(range(200))


# ---- for people ------------------------------------------------------------------------------------------------------


def test_the_picture_loads_nothing_and_runs_nothing():
    html = page(a_report(*some_jobs()))
    assert re.findall(r"(?i)https?:|src=|href=|<script|<link|<img|@import|url\(|\son\w+=", html) == []
    assert "default-src 'none'" in html
    assert html.count("<rect") == 7 * 8


def test_names_in_the_picture_are_other_people_s():
    html = page(a_report(Job(1), queue='<b onclick="x">', key="</table>\x1b\udcff"))
    assert "<b onclick" not in html
    assert "&lt;b" in html
    assert "\x1b" not in html
    html.encode("utf-8")


def test_every_trouble_is_a_sentence():
    assert a_report(*some_jobs(3)).problems == [
        "rtq: a member is no envelope (1 of the jobs that were read)",
        "\\x1b[2J is no sorted set, or may not be read",
        "not all keys were scanned: sets that no registry lists may be missing",
        "the sample is smaller than wanted: its jobs are too large for --most-bytes",
    ]


def test_delayed_jobs_are_never_more_than_redis_holds():
    """The model of memory is a model: what Redis says of itself goes before it."""
    found = a_report(*[Job(2**30, 2**31, 1, 1)] * 5)
    assert found.held_bytes.high == found.payload_bytes.high == 10**9 - 10**6


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (figures.size(0), "0 B"),
        (figures.size(1023), "1023 B"),
        (figures.size(1536), "1.5 KiB"),
        (figures.size(300 * 2**20), "300 MiB"),
        (figures.size(2**60), "1,024 PiB"),
        (figures.money(0.004), "$0.00"),
        (figures.money(-1.5), "-$1.50"),
        (figures.money(12345), "$12,345"),
        (figures.count(0.25), "0.25"),
        (figures.count(1234.5), "1,234"),
        (figures.threshold(16384), "16KiB"),
        (figures.threshold(1000), "1000"),
        (figures.threshold(0), "0"),
        (figures.spread(Estimate(2, 1, 3), figures.count), "2 (1 to 3)"),
        (figures.spread(Estimate(2, 2, 2), figures.count), "2"),
        (figures.name("a\x1b\n\udcffü"), "a\\x1b\\n\\xffü"),
    ],
)
def test_figures_are_short(shown, text):
    assert shown == text
