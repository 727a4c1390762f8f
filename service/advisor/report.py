"""All that advise tells: values, and their JSON. Holds names of queues and figures, and no byte of a payload."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from service.advisor import memory
from service.advisor.choice import Advice, choose
from service.advisor.costs import Prices
from service.advisor.delayed import Job
from service.advisor.distribution import Cell, distribution
from service.advisor.estimates import CONFIDENCE, Estimate, Stratum, total
from service.advisor.figures import name
from service.advisor.grid import DELAYS_MS, SIZES_BYTES, Outcome, Thresholds, grid, outcome
from service.advisor.survey import Survey
from service.units import format_duration

_NAMED: Final = 20  #: keys in a problem of which there may be one a key


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a survey."""

    prices: Prices = field(default_factory=Prices)
    sizes_bytes: Sequence[int] = SIZES_BYTES
    delays_ms: Sequence[int] = DELAYS_MS
    present: Thresholds = field(default_factory=Thresholds)  #: what the settings say now; is in the grid, too
    offload_to: str = "s3"
    at_most_bytes: int | None = None  #: what Redis may keep of these jobs


@dataclass(frozen=True, slots=True)
class Report:
    survey: Survey
    question: Question
    delayed_jobs: Estimate
    payload_bytes: Estimate  #: of delayed jobs, in Redis
    held_bytes: Estimate  #: all that they take of Redis, payload and the rest
    dollars: Estimate  #: a month, as they are kept now
    unrecorded: Estimate  #: jobs whose delay nothing tells
    cells: Sequence[Cell]
    inline: Outcome
    grid: Sequence[Outcome]
    advice: Advice

    @property
    def nothing_read(self) -> bool:
        """Whether there are jobs, and not one of them is known: it then only seems that they cost nothing."""
        return not self.survey.sample.size and self.survey.sample.population > 0

    @property
    def problems(self) -> list[str]:
        """What was in the way, and what does not fit; one sentence each."""
        faults = sorted(self.survey.sample.faults.items(), key=lambda it: -it[1])
        told = [f"{layout}: {fault} ({count:,} of the jobs that were read)" for (layout, fault), count in faults]
        told += [f"{name(key)} is no sorted set, or may not be read" for key in self.survey.found.unreadable[:_NAMED]]
        if self.nothing_read:
            told.append("none of these jobs could be read: of their sizes and delays nothing is known")
        if unnamed := self.survey.found.unreadable[_NAMED:]:
            told.append(f"{len(unnamed):,} keys more are no sorted sets, or may not be read")
        if self.survey.found.unasked:
            told.append(f"there are too many sets: {self.survey.found.unasked:,} were left out")
        if not self.survey.found.all_scanned:
            told.append("not all keys were scanned: sets that no registry lists may be missing")
        if self.survey.sample.cut_short:
            told.append("the sample is smaller than wanted: its jobs are too large for --most-bytes")
        return told


def report(survey: Survey, question: Question) -> Report:
    """Pure."""
    most = float(survey.memory.data_bytes)
    sizes = sorted({*question.sizes_bytes, question.present.inline_max_bytes})
    delays = sorted({*question.delays_ms, question.present.inline_max_delay_ms})
    outcomes = grid(survey.sample, question.prices, sizes, delays, question.present.offload_min_bytes)
    inline = outcome(survey.sample, None, question.prices)
    held = _sum(survey, lambda job: float(job.held_bytes)).blurred(memory.ERROR).within(0, most)
    return Report(
        survey,
        question,
        delayed_jobs=_sum(survey, lambda job: 1.0, most=1.0, unseen=1.0).within(0, survey.sample.population),
        payload_bytes=_sum(survey, lambda job: float(job.payload_bytes)).within(0, most),
        held_bytes=held,
        dollars=held.times(question.prices.memory(1)),
        unrecorded=_sum(survey, lambda job: float(job.delay_ms is None), most=1.0, unseen=1.0).within(
            0, survey.sample.population
        ),
        cells=distribution(survey.sample),
        inline=inline,
        grid=outcomes,
        advice=choose(
            inline,
            outcomes,
            question.present,
            offload_to=question.offload_to,
            at_most_bytes=question.at_most_bytes,
        ),
    )


def plain(report: Report) -> dict[str, Any]:
    """For JSON. Bytes, ms, dollars a month; each estimate as point, low, high."""
    survey, redis = report.survey, report.survey.memory
    used = max(1, redis.used_bytes)
    return {
        "redis": {"version": redis.version, "used_bytes": redis.used_bytes, "max_bytes": redis.max_bytes},
        "sample": {"jobs": survey.sample.population, "read": survey.sample.size, "confidence": CONFIDENCE},
        "delayed_jobs": asdict(report.delayed_jobs),
        "payload_bytes": asdict(report.payload_bytes),
        "payload_share": asdict(report.payload_bytes.times(1 / used)),
        "held_bytes": asdict(report.held_bytes),
        "held_share": asdict(report.held_bytes.times(1 / used)),
        "dollars": asdict(report.dollars),
        "jobs_without_recorded_delay": asdict(report.unrecorded),
        "sets": [
            {"layout": it.layout, "queue": it.queue, "key": it.key, "jobs": it.jobs, "read": read}
            for it, read in survey.sets
        ],
        "distribution": [_cell(it) for it in report.cells],
        "prices": asdict(report.question.prices),
        "all_in_redis": _outcome(report.inline),
        "grid": [_outcome(it) for it in report.grid],
        "advice": {
            **_outcome(report.advice.outcome),
            "sure": report.advice.sure and not report.nothing_read,
            "fits": report.advice.fits,
            "settings": dict(report.advice.settings),
        },
        "problems": report.problems,
    }


def _sum(survey: Survey, figure: Callable[[Job], float], **bounds: float) -> Estimate:
    """Over delayed jobs."""
    strata = [Stratum(it.size, [figure(job) if job.delayed else 0.0 for job in it.jobs]) for it in survey.sample.strata]
    return total(strata, **bounds)


def _cell(cell: Cell) -> Mapping[str, Any]:
    return {
        "delay_over_ms": cell.delay_ms.over,
        "delay_up_to_ms": cell.delay_ms.up_to,
        "size_over_bytes": cell.size_bytes.over,
        "size_up_to_bytes": cell.size_bytes.up_to,
        "jobs": asdict(cell.jobs),
        "payload_bytes": asdict(cell.payload_bytes),
    }


def _outcome(outcome: Outcome) -> Mapping[str, Any]:
    pair = outcome.thresholds
    return {
        "inline_max_bytes": pair.inline_max_bytes if pair else None,
        "inline_max_delay": format_duration(pair.inline_max_delay_ms) if pair else None,
        "redis_bytes": asdict(outcome.redis_bytes),
        "s3_bytes": asdict(outcome.s3_bytes),
        "put_requests": asdict(outcome.offloaded_a_month),
        "get_requests": asdict(outcome.offloaded_a_month),
        "deleted_objects": asdict(outcome.offloaded_a_month),
        "dollars": asdict(outcome.dollars),
        "saving": asdict(outcome.saving),
    }
