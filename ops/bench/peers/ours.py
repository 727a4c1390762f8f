"""Coatcheck's own worker: `coatcheck worker ours:worker`, with BENCH_JOBS in its environment."""

import os

import noop

from service.worker import Worker

worker = Worker()
lateness = noop.Lateness()
lateness.jobs = noop.meter.jobs = int(os.environ["BENCH_JOBS"])


@worker.task("async")
async def in_the_loop(payload: None) -> None:
    noop.meter.job()


@worker.task("sync")
def in_a_thread(payload: None) -> None:
    noop.meter.job()


@worker.task("wake")
async def woken(sent_ns: int) -> None:
    if sent_ns:
        lateness.job(sent_ns)
