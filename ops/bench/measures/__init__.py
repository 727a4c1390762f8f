"""One file a kind of work. A measure takes the stage and gives its figures."""

from collections.abc import Callable, Sequence
from typing import Final

from bench.figures import Figure
from bench.measures import accept, claim, depth, idle, lateness, offload, start, worker
from bench.stage import Stage

Measure = Callable[[Stage], Sequence[Figure]]

MEASURES: Final[dict[str, Measure]] = {
    "claim-200": claim.small,
    "claim-1k": claim.kilobyte,
    "claim-64": claim.many_queues,
    "offload": offload.measure,
    "lateness": lateness.alone,
    "lateness-busy": lateness.beside_a_backlog,
    "accept": accept.measure,
    "http": accept.over_http,
    "depth": depth.measure,
    "worker": worker.throughput,
    "worker-wake": worker.wake,
    "start": start.measure,
    "idle-100": idle.hundred,
    "idle-10k": idle.ten_thousand,
}
