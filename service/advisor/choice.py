"""Which settings to take: those that cost least in a month, among the grid's and "keep everything in Redis"."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from service.advisor.grid import Outcome, Thresholds
from service.configuration.shape import in_environment
from service.units import format_duration


@dataclass(frozen=True, slots=True)
class Advice:
    """What to set, and how sure that is."""

    outcome: Outcome
    settings: Mapping[str, str]  #: as the environment spells them
    sure: bool  #: that it costs no more than the jobs do now, or, if nothing is to be offloaded, than any other
    fits: bool  #: what is left in Redis stays within the wanted size, by its whole interval; also if none is wanted


def choose(
    inline: Outcome,
    outcomes: Sequence[Outcome],
    present: Thresholds,
    *,
    offload_to: str = "s3",
    at_most_bytes: int | None = None,
) -> Advice:
    """The cheapest; of equal ones that which offloads least, and then that nearest to what is set at present.

    With `at_most_bytes` the cheapest of those that leave no more in Redis; if none does, the one that leaves least.
    """
    every = [inline, *outcomes]
    fitting = [it for it in every if at_most_bytes is None or it.redis_bytes.high <= at_most_bytes]

    def merit(it: Outcome) -> tuple[float, float, float]:
        return it.dollars.point, it.offloaded_a_month.point + it.s3_bytes.point, _distance(it.thresholds, present)

    best = min(fitting, key=merit) if fitting else min(every, key=lambda it: (it.redis_bytes.high, *merit(it)))
    return Advice(best, _settings(best, offload_to), _sure(best, outcomes), bool(fitting))


def _sure(best: Outcome, outcomes: Sequence[Outcome]) -> bool:
    if best.thresholds is not None:
        return best.saving.low > 0
    return all(it.saving.high <= max(best.saving.low, 0.0) for it in outcomes)


def _distance(thresholds: Thresholds | None, present: Thresholds) -> float:
    """In doublings. Offloading nothing is nearest."""
    if thresholds is None:
        return 0.0
    size = math.log2((thresholds.inline_max_bytes + 1) / (present.inline_max_bytes + 1))
    return abs(size) + abs(math.log2((thresholds.inline_max_delay_ms + 1) / (present.inline_max_delay_ms + 1)))


def _settings(outcome: Outcome, offload_to: str) -> Mapping[str, str]:
    if outcome.thresholds is None:
        return {in_environment(("routing", "offload_to")): ""}
    return {
        in_environment(("routing", "offload_to")): offload_to,
        in_environment(("routing", "offload_min_bytes")): str(outcome.thresholds.offload_min_bytes),
        in_environment(("routing", "inline_max_bytes")): str(outcome.thresholds.inline_max_bytes),
        in_environment(("routing", "inline_max_delay")): format_duration(outcome.thresholds.inline_max_delay_ms),
    }
