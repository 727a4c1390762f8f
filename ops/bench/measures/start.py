"""From `coatcheck serve` until it is ready, beside importing the same libraries and making one S3 client."""

import subprocess
import sys
import time

from bench.figures import Figure, ratio_at_most
from bench.stage import ServiceProcess, Stage

_LIBRARIES = (
    "boto3, fastapi, hiredis, httptools, prometheus_client, pydantic_settings, redis.asyncio, rich.console, structlog, "
    "typer, uuid_utils, uvicorn, uvloop"
)
_BARE = f"import {_LIBRARIES}\nboto3.session.Session().client('s3', region_name='us-east-1')"


def measure(stage: Stage) -> list[Figure]:
    ours, bound = stage.interleaved(lambda: _ours(stage), _bound)
    return [Figure("start", "start to ready, best of all runs", "s", ours, bound, ratio_at_most(1.6), best=True)]


def _ours(stage: Stage) -> float:
    process = ServiceProcess("all", stage.environment())
    try:
        return process.wait_until_ready()
    finally:
        process.stop()


def _bound() -> float:
    began_s = time.perf_counter()
    subprocess.run([sys.executable, "-c", _BARE], check=True, timeout=60)
    return time.perf_counter() - began_s
