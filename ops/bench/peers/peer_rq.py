"""RQ: one worker, no results kept.

python peer_rq.py REDIS_URL JOBS SimpleWorker    jobs run in the worker's own process
python peer_rq.py REDIS_URL JOBS Worker          each in a process forked for it, as with `rq worker`
"""

import os
import sys
import time

import noop
import rq
from redis import Redis

_FILL = 500


def main(url: str, jobs: int, kind: str) -> None:
    redis = Redis.from_url(url)
    queue = rq.Queue("bench", connection=redis)
    for start in range(0, jobs, _FILL):
        some = min(_FILL, jobs - start)
        queue.enqueue_many([rq.Queue.prepare_data(noop.job, result_ttl=0) for _ in range(some)])
    forks = kind == "Worker"
    noop.meter.jobs = 0 if forks else jobs  # what forked processes count is not seen here
    worker = getattr(rq, kind)([queue], connection=redis, log_job_description=False)
    began_s = time.perf_counter()
    worker.work(burst=True, logging_level="WARNING")
    if forks:
        took_s, used = time.perf_counter() - began_s, os.times()
        noop.tell(jobs_per_s=jobs / took_s, cpu_us=(used.children_user + used.children_system) / jobs * 1e6)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
