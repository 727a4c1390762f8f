"""Jobs through a running service: in over HTTP, out of Redis."""

import os
import time

import httpx
from redis import Redis

from ops.image.buildah import Failed
from service.keys import Keys

QUEUE = "image-check"
#: Where the payload must lie meanwhile -> its size.
SIZES = {"redis": 200, "s3": 100_000}


def pass_through(port: int, redis_url: str) -> None:
    """One job that stays in Redis, and one whose payload goes to S3. Raises Failed unless both arrive, unchanged."""
    sent = {}
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http:
        for backend, size in SIZES.items():
            payload = os.urandom(size)
            answer = http.post(f"/v1/queues/{QUEUE}/jobs", params={"delay": "300ms"}, content=payload)
            if answer.status_code != 201 or answer.json()["backend"] != backend:
                raise Failed(f"a job of {size} bytes was answered with {answer.status_code}: {answer.text}")
            sent[payload] = int(answer.json()["reference"].split("::")[2])
    with Redis.from_url(redis_url) as redis:
        for _ in SIZES:
            arrived = redis.brpop([Keys().queue(QUEUE).ready], timeout=20)
            if arrived is None:
                raise Failed("a job did not arrive within 20 s")
            if sent.pop(arrived[1], time.time() * 1000) > time.time() * 1000:
                raise Failed("a job arrived early")
    if sent:
        raise Failed("a payload arrived that was not sent")
