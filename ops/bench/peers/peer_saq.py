"""SAQ: one worker on uvloop.

python peer_saq.py REDIS_URL JOBS CONCURRENCY
"""

import asyncio
import sys
from typing import Any

import noop
import uvloop
from saq import Queue, Worker

_FILL = 20


async def job(context: dict[str, Any]) -> None:
    noop.meter.job()


async def main(url: str, jobs: int, concurrency: int) -> None:
    queue = Queue.from_url(url, name="bench")
    await queue.connect()
    for start in range(0, jobs, _FILL):
        await asyncio.gather(*(queue.enqueue("job") for _ in range(min(_FILL, jobs - start))))
    noop.meter.jobs = jobs
    await Worker(queue, functions=[job], concurrency=concurrency).start()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
