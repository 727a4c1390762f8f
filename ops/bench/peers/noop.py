"""The job that does nothing, the same in every library, and what is measured of it.

A worker's process tells it in a line `{"measured": {…}}` when the last job has begun; who started the process ends it.
"""

import itertools
import json
import time


def tell(**figures: float) -> None:
    print(json.dumps({"measured": figures}), flush=True)


class Meter:
    """Jobs a second and CPU of this process a job, from the beginning of the first job to that of the last.

    Safe across threads.
    """

    def __init__(self) -> None:
        self.jobs = 0  #: how many there will be
        self._calls = itertools.count(1)  # one step of the interpreter: no lock that slows those with threads
        self._began_s = self._cpu_s = 0.0

    def job(self) -> None:
        call = next(self._calls)
        if call == 1:
            self._began_s, self._cpu_s = time.perf_counter(), time.process_time()
        elif call == self.jobs:
            took_s, used_s, jobs = time.perf_counter() - self._began_s, time.process_time() - self._cpu_s, call - 1
            tell(jobs_per_s=jobs / took_s, cpu_us=used_s / jobs * 1e6)


class Lateness:
    """Of jobs that say when they were sent, by the clock that all processes of a machine share. For one thread."""

    def __init__(self) -> None:
        self.jobs = 0
        self._late_ms: list[float] = []

    def job(self, sent_ns: int) -> None:
        self._late_ms.append((time.monotonic_ns() - sent_ns) / 1e6)
        if len(self._late_ms) == self.jobs:
            late = sorted(self._late_ms)
            tell(p50_ms=late[self.jobs // 2], p99_ms=late[self.jobs * 99 // 100], max_ms=late[-1])


meter = Meter()


def job() -> None:
    """For libraries that find a job by its module."""
    meter.job()
