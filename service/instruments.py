"""What prometheus_client lacks: capped labels, a histogram that takes counts in bulk, gauges replaced as a whole.

`Instruments` makes one instrument for each entry of a catalogue, and lets no label past its cap.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from service.catalogue import PREFIX, Spec

OTHER: Final = "other"  #: all label values beyond the cap; a queue or tenant that really has this name shares it


class Capped:
    """At most `limit` label values, and `other` for the rest: whoever may choose names must not choose our memory.

    `first` (what is configured) have their place for sure, even if they are more than `limit`; then it is first come,
    first served. A value keeps its place until the process ends: series that come and go read as resets.
    """

    def __init__(self, limit: int, first: Iterable[str] = ()) -> None:
        self._known = {name: name for name in first}
        self._limit = max(limit, len(self._known))

    def label(self, name: str) -> str:
        known = self._known.get(name)
        if known is not None:
            return known
        if len(self._known) >= self._limit:
            return OTHER
        return self._known.setdefault(name, name)

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._known))


class BulkHistogram(Collector):
    """A histogram to which others add what they have counted themselves.

    `bounds` are upper bounds, rising, in the unit of what is observed; a value equal to a bound is within it; +Inf is
    added here. The samples are those of prometheus_client's own Histogram. Written from one thread, read from any.
    """

    def __init__(self, name: str, help_text: str, labels: Sequence[str], bounds: Sequence[float]) -> None:
        self._name, self._help, self._labels = name, help_text, tuple(labels)
        self._bounds = tuple(bounds)
        self._le = (*map(_spelt, bounds), "+Inf")
        self._series: dict[tuple[str, ...], tuple[list[int], list[float]]] = {}

    def knows(self, labels: tuple[str, ...]) -> bool:
        return labels in self._series

    def touch(self, *labels: str) -> tuple[list[int], list[float]]:
        """This series, born at zero if it is new: counts by bucket, and a list that holds the sum alone."""
        series = self._series.get(labels)
        if series is None:
            if len(labels) != len(self._labels):
                raise ValueError(f"{self._name} has the labels {self._labels}, not {len(labels)}")
            series = self._series[labels] = ([0] * len(self._le), [0.0])
        return series

    def observe(self, value: float, *labels: str) -> None:
        counts, total = self.touch(*labels)
        counts[bisect_left(self._bounds, value)] += 1
        total[0] += value

    def add(self, counts: Sequence[int], total: float, *labels: str) -> None:
        """As if `sum(counts)` values had been observed that add up to `total`; `counts[-1]` are beyond the last bound.

        Raises ValueError unless there is one count a bound and one beyond.
        """
        if len(counts) != len(self._le):
            raise ValueError(f"{self._name} has {len(self._le)} buckets, not {len(counts)}")
        own, own_total = self.touch(*labels)
        for bucket, count in enumerate(counts):
            own[bucket] += count
        own_total[0] += total

    def collect(self) -> Iterable[Metric]:
        family = HistogramMetricFamily(self._name, self._help, labels=self._labels)
        for labels, (counts, total) in tuple(self._series.items()):
            below, cumulated = 0, []
            for le, count in zip(self._le, tuple(counts), strict=True):
                below += count
                cumulated.append((le, float(below)))
            family.add_metric(labels, cumulated, total[0])
        yield family


class SnapshotGauge(Collector):
    """A gauge whose series are what the last snapshot held, and no others: what is gone disappears."""

    def __init__(self, name: str, help_text: str, labels: Sequence[str]) -> None:
        self._name, self._help, self._labels = name, help_text, tuple(labels)
        self._values: Mapping[tuple[str, ...], float] = {}

    def replace(self, values: Mapping[tuple[str, ...], float]) -> None:
        self._values = dict(values)

    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily(self._name, self._help, labels=self._labels)
        for labels, value in self._values.items():
            family.add_metric(labels, value)
        yield family


class Instruments:
    """The instruments of a catalogue, by name without the prefix. `values` caps each label, but `outcome`."""

    def __init__(self, catalogue: Iterable[Spec], values: Mapping[str, Capped]) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self._values = values
        self._specs = {spec.name.removeprefix(PREFIX): spec for spec in catalogue}
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        self._histograms: dict[str, BulkHistogram] = {}
        self._snapshots: dict[str, SnapshotGauge] = {}
        self._series: dict[tuple[str, ...], Counter] = {}  # saves the library's own look-up, half of a count's time
        for name, spec in self._specs.items():
            self._make(name, spec)
            for labels in product(*(self._born_with(spec, label) for label in spec.labels)):
                self._bear(name, labels)

    def count(self, name: str, *labels: str, n: float = 1) -> None:
        """Adds `n`, which may be 0. The first sight of a series bears its other outcomes, too."""
        series = self._series.get((name, *labels))  # a series under these very labels: they are within their caps
        if series is None:
            capped = self._capped(name, labels)
            series = self._series.get((name, *capped))
        if series is None:
            for outcome in self._specs[name].outcomes:
                self._bear(name, (*capped[:-1], outcome))
            self._bear(name, capped)
            series = self._series[(name, *capped)]
        if n:
            series.inc(n)

    def observe(self, name: str, value: float, *labels: str) -> None:
        histogram = self._histograms[name]
        histogram.observe(value, *(labels if histogram.knows(labels) else self._capped(name, labels)))

    def add(self, name: str, counts: Sequence[int], total: float, *labels: str) -> None:
        self._histograms[name].add(counts, total, *self._capped(name, labels))

    def set(self, name: str, value: float, *labels: str) -> None:
        gauge = self._gauges[name]
        capped = self._capped(name, labels)
        (gauge.labels(*capped) if capped else gauge).set(value)

    def replace(self, name: str, values: Mapping[tuple[str, ...], float]) -> None:
        """The caller caps: what was shown before is to disappear, and must not keep its place."""
        self._snapshots[name].replace(values)

    def _make(self, name: str, spec: Spec) -> None:
        if spec.type == "counter":
            self._counters[name] = Counter(spec.name, spec.help, spec.labels, registry=self.registry)
        elif spec.type == "gauge":
            self._gauges[name] = Gauge(spec.name, spec.help, spec.labels, registry=self.registry)
        elif spec.type == "histogram":
            self._histograms[name] = BulkHistogram(spec.name, spec.help, spec.labels, spec.buckets)
            self.registry.register(self._histograms[name])
        else:
            self._snapshots[name] = SnapshotGauge(spec.name, spec.help, spec.labels)
            self.registry.register(self._snapshots[name])

    def _born_with(self, spec: Spec, label: str) -> tuple[str, ...]:
        """The values that are known before anything happens; none for snapshots, and for what only calls can tell."""
        if label == "outcome":
            return spec.outcomes
        known = tuple(self._values.get(label, ()))
        return (*known, OTHER) if label in ("queue", "tenant") else known

    def _bear(self, name: str, labels: tuple[str, ...]) -> None:
        if name in self._counters:
            counter = self._counters[name]
            self._series[(name, *labels)] = counter.labels(*labels) if labels else counter
        elif name in self._gauges and labels:
            self._gauges[name].labels(*labels)
        elif name in self._histograms:
            self._histograms[name].touch(*labels)

    def _capped(self, name: str, labels: tuple[str, ...]) -> tuple[str, ...]:
        spec = self._specs[name]
        return tuple(
            self._values[label].label(value) if label != "outcome" else value if value in spec.outcomes else OTHER
            for label, value in zip(spec.labels, labels, strict=True)
        )


class WithoutCreated(Collector):
    """The same families without their `_created` samples, which nobody reads and which are many."""

    def __init__(self, inner: Collector) -> None:
        self._inner = inner

    def collect(self) -> Iterable[Metric]:
        for family in self._inner.collect():
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            yield family


def _spelt(bound: float) -> str:
    return str(floatToGoString(bound))  # type: ignore[no-untyped-call]  # not annotated there; as its own Histogram does
