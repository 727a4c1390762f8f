"""What a pair of thresholds would make of the jobs that a Redis holds now: memory left, requests, dollars.

Memory and storage follow from the jobs that wait now. Requests follow from how many come and go, which a single look
does not see; it takes the set as being in a steady state, where as many come as go:

- A job that waits for D until it is due stands for 1 / D jobs a unit of time (Little's law: what is there at one
  moment is the rate times the time that each stays). Overdue jobs stay for longer than that, and are left out.
- Where D is not recorded (Asynq, redis_task_queue), as many jobs with D > T come as jobs pass the mark "T is left":
  those that will within FLOW_MS are counted.

Each figure is thus a sum over jobs, and its interval that of such a sum (service.advisor.estimates).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from service.advisor import memory
from service.advisor.costs import MONTH_MS, Prices
from service.advisor.delayed import Job
from service.advisor.estimates import Estimate, Stratum, larger, total
from service.advisor.sampling import Sample

SIZES_BYTES: Final = (2**10, 2**12, 2**14, 2**16, 2**20)
DELAYS_MS: Final = (900_000, 3_600_000, 21_600_000, 86_400_000, 604_800_000)
FLOW_MS: Final = 3_600_000
_SHORTEST_MS: Final = 1_000  #: what is delayed by less is offloaded for its size alone, and is seldom met


@dataclass(frozen=True, slots=True)
class Thresholds:
    """As settings have them: what is larger, or due later, is offloaded, unless it is smaller than the minimum."""

    inline_max_bytes: int = 16_384
    inline_max_delay_ms: int = 900_000
    offload_min_bytes: int = 512

    def offloads(self, payload_bytes: int, delay_ms: int) -> bool:
        """As service.router decides, with the backend at hand."""
        if payload_bytes < self.offload_min_bytes:
            return False
        return payload_bytes > self.inline_max_bytes or delay_ms > self.inline_max_delay_ms


@dataclass(frozen=True, slots=True)
class Outcome:
    """With these thresholds; None: with everything in Redis, as Coatcheck keeps it."""

    thresholds: Thresholds | None
    redis_bytes: Estimate
    s3_bytes: Estimate
    offloaded_a_month: Estimate  #: jobs: so many PUT, GET, and objects deleted
    dollars: Estimate  #: a month
    saving: Estimate  #: dollars a month less than the same jobs cost as they are kept now


def grid(
    sample: Sample,
    prices: Prices,
    sizes_bytes: Sequence[int] = SIZES_BYTES,
    delays_ms: Sequence[int] = DELAYS_MS,
    offload_min_bytes: int = 512,
) -> list[Outcome]:
    """An outcome for each pair, by size and then by delay."""
    pairs = [Thresholds(size, delay, offload_min_bytes) for size in sizes_bytes for delay in delays_ms]
    return [outcome(sample, pair, prices) for pair in pairs]


def outcome(sample: Sample, thresholds: Thresholds | None, prices: Prices) -> Outcome:
    every = [[_Fate.of(job, thresholds) for job in stratum.jobs] for stratum in sample.strata]
    sizes = [stratum.size for stratum in sample.strata]
    unseen = _Unseen.of(sample, thresholds)

    def summed(figure: Callable[["_Fate"], float], **bounds: float) -> Estimate:
        strata = [Stratum(size, list(map(figure, fates))) for size, fates in zip(sizes, every, strict=True)]
        return total(strata, **bounds)

    redis_bytes = summed(lambda fate: fate.redis_bytes, unseen=unseen.redis_bytes)
    s3_bytes = summed(lambda fate: fate.s3_bytes, unseen=unseen.s3_bytes)
    a_month = summed(lambda fate: fate.a_month, unseen=unseen.a_month)
    # Of each job what it holds now and what it would: the two go together, so that their difference is surer than each.
    freed = summed(lambda fate: fate.held_bytes - fate.redis_bytes, unseen=unseen.s3_bytes)
    outside = s3_bytes.times(prices.stored(1)).plus(a_month.times(prices.offloaded_job))
    return Outcome(
        thresholds,
        redis_bytes,
        s3_bytes,
        a_month,
        dollars=redis_bytes.times(prices.memory(1)).plus(outside),
        saving=freed.times(prices.memory(1)).plus(outside.times(-1)),
    )


@dataclass(frozen=True, slots=True)
class _Unseen:
    """What one job may come to that is of a rare kind, judged by the jobs of the sample that are not of that kind."""

    redis_bytes: float = 0.0
    s3_bytes: float = 0.0
    a_month: float = 0.0

    @classmethod
    def of(cls, sample: Sample, thresholds: Thresholds | None) -> "_Unseen":
        jobs = [job for stratum in sample.strata for job in stratum.jobs if job.delayed and not job.offloaded]
        if thresholds is None or not jobs:
            return cls()
        inline = [job.payload_bytes for job in jobs if not thresholds.offloads(job.payload_bytes, 0)]
        return cls(
            redis_bytes=memory.inline_bytes(max(inline, default=0)),
            s3_bytes=larger([job.payload_bytes for job in jobs]),
            a_month=max(_flow(job, 0) for job in jobs),
        )


@dataclass(frozen=True, slots=True)
class _Fate:
    """What becomes of one job."""

    held_bytes: int  #: now
    redis_bytes: int = 0
    s3_bytes: int = 0
    a_month: float = 0.0  #: jobs like it that are offloaded in a month

    @classmethod
    def of(cls, job: Job, thresholds: Thresholds | None) -> "_Fate":
        if not job.delayed:
            return cls(0)
        if job.offloaded:
            return cls(job.held_bytes, job.held_bytes)
        a_month = _a_month(job, thresholds) if thresholds else 0.0
        if thresholds and thresholds.offloads(job.payload_bytes, job.judged_ms):
            return cls(job.held_bytes, memory.REFERENCE_BYTES, job.payload_bytes, a_month)
        return cls(job.held_bytes, memory.inline_bytes(job.payload_bytes), 0, a_month)


def _a_month(job: Job, thresholds: Thresholds) -> float:
    if job.delay_ms is not None:
        return _flow(job, 0) if thresholds.offloads(job.payload_bytes, job.judged_ms) else 0.0
    if not thresholds.offloads(job.payload_bytes, thresholds.inline_max_delay_ms + 1):
        return 0.0
    return _flow(job, 0 if job.payload_bytes > thresholds.inline_max_bytes else thresholds.inline_max_delay_ms)


def _flow(job: Job, mark_ms: int) -> float:
    """How many jobs a month this one stands for; without a recorded delay those that pass the mark."""
    if job.delay_ms is not None:
        return MONTH_MS / max(job.delay_ms, _SHORTEST_MS) if job.waits_ms >= 0 else 0.0
    return MONTH_MS / FLOW_MS if mark_ms <= job.waits_ms < mark_ms + FLOW_MS else 0.0
