"""Huey: one consumer with worker threads, which takes jobs by BRPOP: those that it holds when it dies are gone.

python peer_huey.py REDIS_URL JOBS WORKERS
"""

import sys

import noop
from huey import RedisHuey


def main(url: str, jobs: int, workers: int) -> None:
    huey = RedisHuey("bench", url=url)
    job = huey.task()(noop.job)
    for _ in range(jobs):
        job()
    noop.meter.jobs = jobs
    huey.create_consumer(workers=workers, worker_type="thread", periodic=False).run()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
