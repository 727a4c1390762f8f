"""arq: one worker on uvloop, no results kept. Polls each 10 ms, not each 500: after a burst it waits for the next poll.

python peer_arq.py REDIS_URL JOBS MAX_JOBS
"""

import asyncio
import sys
from typing import Any

import noop
import uvloop
from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker

_FILL = 20


async def job(context: dict[str, Any]) -> None:
    noop.meter.job()


async def main(url: str, jobs: int, max_jobs: int) -> None:
    settings = RedisSettings.from_dsn(url)
    pool = await create_pool(settings)
    for start in range(0, jobs, _FILL):
        await asyncio.gather(*(pool.enqueue_job("job") for _ in range(min(_FILL, jobs - start))))
    await pool.aclose()
    noop.meter.jobs = jobs
    worker = Worker([job], redis_settings=settings, max_jobs=max_jobs, keep_result=0, poll_delay=0.01)
    await worker.async_run()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
