"""A worker's throughput beside other libraries' workers, and how soon an idle one is at work."""

import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from redis import Redis

from bench import workers
from bench.figures import Figure, Target, at_most, ratio_at_least, ratio_at_most
from bench.stage import Stage
from bench.workers import Measured, Peer, WorkerProcess
from service.envelope import build
from service.keys import Keys

_QUEUE = "bench"
_FILL = 1000
_WITHIN_S = 120

#: Those with handlers of the same kind. Fewer threads, more, and what is fetched ahead: as far as each can be told.
_BESIDE_ASYNC = (Peer("arq", 3000, ("10", "50", "200")), Peer("saq", 3000, ("5", "10", "50")))
_BESIDE_SYNC = (
    Peer("rq", 1500, ("SimpleWorker", "Worker")),
    Peer("dramatiq", 12_000, ("8", "16", "2 1000", "8 1000", "16 1000")),
    Peer("huey", 12_000, ("1", "4", "8", "16")),
)

#: Kind of handlers, kind of ready queue.
_OURS = {"async": ("async", "list"), "sync": ("sync", "list"), "stream": ("async", "stream")}

_WAKE_QUEUES = [f"wake-{number}" for number in range(10)]
_PAUSE_S = (0.005, 0.03)  #: between two jobs
_SETTLE_S = 2.0


def throughput(stage: Stage) -> list[Figure]:
    python, jobs = workers.peers_python(stage), stage.scaled(60_000, 30_000)
    peers = [*_BESIDE_ASYNC, *_BESIDE_SYNC]
    chosen = {peer.name: _best_setting(stage, python, peer) for peer in peers}
    ours, theirs = stage.interleaved(
        lambda: {name: _ours(stage, *how, jobs) for name, how in _OURS.items()},
        lambda: {
            peer.name: _theirs(stage, python, peer, chosen[peer.name], stage.scaled(peer.jobs, peer.jobs // 2))
            for peer in peers
        },
    )
    beside = [
        _beside(peer, chosen[peer.name], kind, [run[kind] for run in ours], [run[peer.name] for run in theirs])
        for kind, libraries in (("async", _BESIDE_ASYNC), ("sync", _BESIDE_SYNC))
        for peer in libraries
    ]
    from_stream = [run["stream"]["jobs_per_s"] for run in ours]
    return [*beside, Figure("worker", "no-op jobs, async handlers; the ready queue a stream", "jobs/s", from_stream)]


def _beside(peer: Peer, setting: str, kind: str, ours: Sequence[Measured], theirs: Sequence[Measured]) -> Figure:
    rates, cpu_us = ([[run[what] for run in runs] for runs in (ours, theirs)] for what in ("jobs_per_s", "cpu_us"))
    return Figure(
        "worker",
        f"no-op jobs, {kind} handlers; beside {peer.version}",
        "jobs/s",
        *rates,
        ratio_at_least(1),
        note="CPU of the process a job: {:.0f} and {:.0f} µs; setting {}".format(*map(median, cpu_us), setting),
    )


def wake(stage: Stage) -> list[Figure]:
    jobs = stage.scaled(500, 150)
    ours, bound = stage.interleaved(lambda: _our_wake(stage, jobs), lambda: _bare_wake(stage, jobs))
    work = f"idle worker, a job on one of {len(_WAKE_QUEUES)} queues: from LPUSH to its handler"
    late = {which: [[each[f"{which}_ms"] for each in runs] for runs in (ours, bound)] for which in ("p50", "p99")}
    return [
        Figure("worker-wake", f"{work}, p50", "ms", *late["p50"], target=at_most(2)),
        Figure("worker-wake", f"{work}, p99", "ms", *late["p99"], target=ratio_at_most(2)),
        _idle(stage, 3, at_most(3)),
        _idle(stage, len(_WAKE_QUEUES), None),
    ]


def _idle(stage: Stage, queues: int, target: Target | None) -> Figure:
    seconds, names = stage.scaled(60, 15), _WAKE_QUEUES[:queues]
    stage.told(f"idle for {seconds} s")
    with Redis.from_url(stage.redis.url) as client, _idle_worker(stage, client, names, jobs=1):
        before, began_s = _commands(client), time.perf_counter()
        time.sleep(seconds)
        rate = (_commands(client) - before - 1) / (time.perf_counter() - began_s)  # INFO counts itself when it is over
    return Figure("worker-wake", f"idle worker on {queues} queues: commands by INFO", "a second", [rate], target=target)


def _best_setting(stage: Stage, python: Path, peer: Peer) -> str:
    rates = {each: _theirs(stage, python, peer, each, peer.jobs // 5)["jobs_per_s"] for each in peer.settings}
    stage.told(f"{peer.version}: " + ", ".join(f"{setting}: {rate:,.0f}/s" for setting, rate in rates.items()))
    return max(rates, key=lambda setting: rates[setting])


def _theirs(stage: Stage, python: Path, peer: Peer, setting: str, jobs: int) -> Measured:
    with Redis.from_url(stage.bound_url) as client:
        client.flushdb()
        with workers.program(python, f"peer_{peer.name}", stage.bound_url, jobs, *setting.split()) as process:
            measured = process.measured(_WITHIN_S)
        client.flushdb()
    return measured


def _ours(stage: Stage, kind: str, ready_kind: str, jobs: int) -> Measured:
    of = Keys().queue(_QUEUE)
    with Redis.from_url(stage.redis.url) as client:
        client.flushdb()
        _filled(client, of.ready, kind, ready_kind, jobs)
        with workers.ours(stage, [_QUEUE], jobs, ready_kind) as process:
            measured = process.measured(_WITHIN_S)
        left = {key.decode() for key in client.scan_iter("*{*")} - {of.departed}
        if ready_kind == "stream" and not client.xlen(of.ready):
            left.discard(of.ready)  # entries are deleted when they are acknowledged, and the empty stream stays
        if left:
            raise RuntimeError(f"jobs were not settled: {left}")
        client.flushdb()
    return measured


def _filled(client: Redis, ready: str, kind: str, ready_kind: str, jobs: int) -> None:
    for _ in range(0, jobs, _FILL):
        with client.pipeline(transaction=False) as pipe:
            for _ in range(_FILL):
                envelope = build(kind, None, _QUEUE)
                if ready_kind == "stream":
                    pipe.xadd(ready, {"payload": envelope, "reference": "", "due": int(time.time() * 1000)})
                else:
                    pipe.lpush(ready, envelope)
            pipe.execute()


def _our_wake(stage: Stage, jobs: int) -> Measured:
    with (
        Redis.from_url(stage.redis.url) as client,
        _idle_worker(stage, client, _WAKE_QUEUES, jobs) as process,
    ):
        _send_now_and_then(jobs, lambda: _send(client, random.choice(_WAKE_QUEUES), time.monotonic_ns()))
        return process.measured(_WITHIN_S)


@contextmanager
def _idle_worker(stage: Stage, client: Redis, queues: Sequence[str], jobs: int) -> Iterator[WorkerProcess]:
    """Each of its queues had a job, and that was a while ago."""
    client.flushdb()
    with workers.ours(stage, queues, jobs) as process:
        for queue in queues:
            _send(client, queue, 0)
        while client.exists(*(Keys().queue(queue).ready for queue in queues)):
            time.sleep(0.01)
        time.sleep(_SETTLE_S)
        yield process
    client.flushdb()


def _send(client: Redis, queue: str, sent_ns: int) -> None:
    client.lpush(Keys().queue(queue).ready, build("wake", sent_ns, queue))


def _bare_wake(stage: Stage, jobs: int) -> Measured:
    with Redis.from_url(stage.bound_url) as client:
        client.flushdb()
        with workers.program(sys.executable, "bare_blmove", stage.bound_url, jobs) as process:
            client.lpush("bare:ready", 0)
            while client.exists("bare:ready"):
                time.sleep(0.01)
            time.sleep(_SETTLE_S)
            _send_now_and_then(jobs, lambda: client.lpush("bare:ready", time.monotonic_ns()))
            late = process.measured(_WITHIN_S)
        client.flushdb()
    return late


def _send_now_and_then(jobs: int, send: Callable[[], object]) -> None:
    for _ in range(jobs):
        time.sleep(random.uniform(*_PAUSE_S))
        send()


def _commands(client: Redis) -> int:
    return int(client.info("stats")["total_commands_processed"])
