"""The bound for a worker's wake: BLMOVE and LREM in a loop, on one list, by a client that does nothing else.

python bare_blmove.py REDIS_URL JOBS    of `bare:ready`, each of which is when it was sent, monotonic ns
"""

import sys

import noop
from redis import Redis

_BLOCK_S = 2


def main(url: str, jobs: int) -> None:
    lateness = noop.Lateness()
    lateness.jobs = jobs
    redis = Redis.from_url(url, socket_timeout=None)
    while True:
        if sent := redis.blmove("bare:ready", "bare:inflight", _BLOCK_S, "RIGHT", "LEFT"):
            if int(sent):
                lateness.job(int(sent))
            redis.lrem("bare:inflight", 1, sent)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
