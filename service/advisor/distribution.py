"""How long delayed jobs wait and how large they are: jobs and bytes in each cell of delay x size."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from service.advisor.estimates import Estimate, Stratum, larger, total
from service.advisor.sampling import Sample

#: Where bands end: a job of exactly so many bytes, or of so long a delay, is in the band that ends there.
SIZES_BYTES: Final = (0, 512, 2**10, 2**12, 2**14, 2**16, 2**18, 2**20)
DELAYS_MS: Final = (0, 60_000, 900_000, 3_600_000, 21_600_000, 86_400_000, 604_800_000)


@dataclass(frozen=True, slots=True)
class Band:
    """Above `over` up to `up_to`; the first holds what is exactly 0, too, and the last has no end."""

    over: int
    up_to: int | None

    def holds(self, value: int) -> bool:
        return (value > self.over or self.over == 0) and (self.up_to is None or value <= self.up_to)


@dataclass(frozen=True, slots=True)
class Cell:
    delay_ms: Band
    size_bytes: Band
    jobs: Estimate
    payload_bytes: Estimate


SIZE_BANDS: Final = [Band(low, high) for low, high in pairwise((*SIZES_BYTES, None))]  # type: ignore[arg-type]  # only the last is None
DELAY_BANDS: Final = [Band(low, high) for low, high in pairwise((*DELAYS_MS, None))]  # type: ignore[arg-type]  # likewise


def distribution(sample: Sample) -> list[Cell]:
    """Every cell, by delay and then by size. Jobs whose payload is elsewhere already are in none."""
    largest = larger([it.payload_bytes for stratum in sample.strata for it in stratum.jobs])
    return [_cell(sample, delay, size, largest) for delay in DELAY_BANDS for size in SIZE_BANDS]


def _cell(sample: Sample, delay: Band, size: Band, largest: float) -> Cell:
    counts, payloads = list[Stratum](), list[Stratum]()
    for stratum in sample.strata:
        inside = [
            it.delayed and not it.offloaded and delay.holds(it.judged_ms) and size.holds(it.payload_bytes)
            for it in stratum.jobs
        ]
        counts.append(Stratum(stratum.size, list(map(float, inside))))
        sizes = [float(it.payload_bytes) * within for it, within in zip(stratum.jobs, inside, strict=True)]
        payloads.append(Stratum(stratum.size, sizes))
    jobs, most = total(counts, most=1.0, unseen=1.0), float(size.up_to or largest)
    return Cell(delay, size, jobs, total(payloads, most=size.up_to, unseen=most))


def row(cells: Sequence[Cell], delay: Band) -> list[Cell]:
    return [it for it in cells if it.delay_ms == delay]
