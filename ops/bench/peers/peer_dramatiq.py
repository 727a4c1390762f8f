"""Dramatiq: what one of its worker processes runs, with its default middleware.

python peer_dramatiq.py REDIS_URL JOBS THREADS [PREFETCH]    messages fetched ahead; by default two a thread
"""

import os
import sys
import threading

import noop


def main(url: str, jobs: int, threads: int, prefetch: str) -> None:
    os.environ["dramatiq_queue_prefetch"] = prefetch  # noqa: SIM112  # as dramatiq spells it, which reads it when imported
    import dramatiq  # noqa: PLC0415  # it reads that setting when it is imported
    from dramatiq.brokers.redis import RedisBroker  # noqa: PLC0415  # likewise

    broker = RedisBroker(url=url)
    dramatiq.set_broker(broker)
    job = dramatiq.actor(queue_name="bench")(noop.job)
    for _ in range(jobs):
        job.send()
    noop.meter.jobs = jobs
    dramatiq.Worker(broker, worker_threads=threads).start()
    threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] if len(sys.argv) > 4 else "0")
