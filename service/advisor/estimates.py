"""Totals over all jobs, from a sample of them, each with an interval that holds. Pure.

A population is divided into strata whose sizes are known; of each, a simple random sample without replacement was read.
The total of a figure (bytes, dollars, 1 for "is long") is estimated by expansion, each stratum's mean times its size,
with the usual variance (Cochran, Sampling Techniques, 3rd ed., sections 2.6 and 5.4: finite population correction,
strata added). The interval around it has two parts:

- **Three standard errors.** Payload sizes are skewed, so that no normal law may be assumed; but for whatever has one
  peak, three standard errors hold in at least 1 - 4/81 = 95.06% of samples (Vysochanskij and Petunin, 1980; Pukelsheim,
  The Three Sigma Rule, 1994).
- **What the sample has not seen.** The standard error itself is too small when the few largest jobs, which make up the
  total, are not in the sample. Of the jobs that were not read, at most a share of _UNSEEN / n is larger than all that
  were, with 97.5% certainty: the rule of three (Hanley and Lippman-Hand, 1983; exp(-3.69) = 0.025). What one of these
  holds is extrapolated as the mean of a Pareto tail that begins at the largest value read, its index that of Hill
  (1975), two of its standard errors on the heavy side. (Peng, Statistics & Probability Letters 52, 2001, has means
  of heavy tails that way.) Where that mean is all but infinite, _LARGER times the largest is taken. Never more than
  `most`, where a bound is known. And never less than `unseen`, where something else tells what such a job may hold:
  what is 0 for nearly all jobs, such as the bytes of what is both large and due soon, may be 0 for all that were read.

tests/unit/test_advisor_estimates.py holds this to 100 seeds of each of many shapes, Pareto of index 1.1 among them.
Where it ends: jobs so rare that the sample holds none of their kind cannot be told from jobs that do not exist. With
10,000 read, that is a kind with fewer than 4 in 10,000.
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

CONFIDENCE: Final = 0.95
_ERRORS: Final = 3.0  #: standard errors to each side
_UNSEEN: Final = 3.69
_LARGER: Final = 10.0
_HEAVIEST: Final = 0.9  #: inverse of the tail's index from which on a mean says nothing; it is infinite at 1


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure and the interval that holds it with CONFIDENCE. All three are equal if everything was read."""

    point: float
    low: float
    high: float

    def plus(self, other: "Estimate") -> "Estimate":
        """Of two figures together, as if both were at the same end at once: wide, and right however they depend."""
        return Estimate(self.point + other.point, self.low + other.low, self.high + other.high)

    def times(self, factor: float) -> "Estimate":
        """By a known factor, which may be negative."""
        low, high = sorted((self.low * factor, self.high * factor))
        return Estimate(self.point * factor, low, high)

    def blurred(self, share: float) -> "Estimate":
        """Of a figure that is not negative, and comes from a model that is off by up to this share of it."""
        return Estimate(self.point, self.low * (1 - share), self.high * (1 + share))

    def within(self, least: float, most: float) -> "Estimate":
        """Cut to what is known to be possible."""
        return Estimate(*(min(max(value, least), most) for value in (self.point, self.low, self.high)))


@dataclass(frozen=True, slots=True)
class Stratum:
    """So many jobs, and one figure of each job that was read."""

    size: int  #: at least as many as values
    values: Sequence[float]


def total(strata: Sequence[Stratum], most: float | None = None, unseen: float = 0.0) -> Estimate:
    """The sum of the figure over all jobs of all strata; a figure may be negative.

    `most`: no single job's figure is farther from 0. `unseen`: what it may come to for a job of a kind that the sample
    does not hold.
    """
    point = sum(it.size * sum(it.values) / len(it.values) for it in strata if it.values)
    error = _ERRORS * math.sqrt(sum(map(_variance, strata)))
    unread = max((_weight(it) for it in strata), default=0.0)
    if unread == 0:
        return Estimate(point, point, point)
    values = [value for it in strata if len(it.values) < it.size for value in it.values]
    above = max(larger(values), unseen)
    below = larger([-value for value in values]) if min(values, default=0.0) < 0 else 0.0
    if most is not None:
        above, below = min(above, most), min(below, most)
    above, below = _UNSEEN * unread * above, _UNSEEN * unread * below
    return _at_least_what_was_read(strata, Estimate(point, point - error - below, point + error + above))


def _at_least_what_was_read(strata: Sequence[Stratum], estimate: Estimate) -> Estimate:
    """Where no figure is negative, the total is at least the sum of those that were read."""
    if any(value < 0 for it in strata for value in it.values):
        return estimate
    read = sum(sum(it.values) for it in strata)
    return Estimate(estimate.point, max(estimate.low, read), max(estimate.high, read))


def _variance(stratum: Stratum) -> float:
    """Of the stratum's estimated total."""
    n, values = len(stratum.values), stratum.values
    if n < 2 or n >= stratum.size:
        return 0.0
    mean = sum(values) / n
    spread = sum((value - mean) ** 2 for value in values) / (n - 1)
    return stratum.size**2 * (1 - n / stratum.size) * spread / n


def _weight(stratum: Stratum) -> float:
    """How many jobs that were not read stand behind each one that was."""
    return max(0, stratum.size - len(stratum.values)) / max(1, len(stratum.values))


def larger(values: Sequence[float]) -> float:
    """What a job holds that holds more than all of these, by its expectation; 0 if none of them is positive."""
    count = max(10, min(len(values) // 10, round(2 * math.sqrt(len(values)))))
    *top, base = heapq.nlargest(count + 1, values) or [0.0]
    largest = top[0] if top else base
    if largest <= 0:
        return 0.0
    if base <= 0 or not top:
        return largest * _LARGER
    hill = sum(math.log(value / base) for value in top) / len(top)
    heavy = hill * (1 + 2 / math.sqrt(len(top)))
    return largest / (1 - heavy) if heavy < _HEAVIEST else largest * _LARGER
