"""Looking at a queue of 2,000,000 jobs: an answer in under a second, and no command that holds Redis for over 5 ms.

The machine may be busy with other things: what counts is the best of five looks, and a command that is slow in each.
"""

import json
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from service.inspector.inspector import Inspector
from service.inspector.layouts import LAYOUTS
from service.keys import Keys
from service.transport import Transport, connect
from tests.kit.inspecting import USER, inspected_server, inspectors_url

JOBS = 2_000_000
QUEUE = "big"
NOW_MS = int(time.time() * 1000)
SLOW_US = 5_000
LOOKS = 5
_CHUNK = 1000

Command = tuple[bytes, ...]


def uuid(n: int) -> bytes:
    return b"%08x-0000-7000-8000-%012x" % (n, n)


def reference(n: int) -> bytes:
    """One in ten is inline."""
    backend = b"s3" if n % 10 else b"redis"
    return b"%s::big::%d::%s" % (backend, NOW_MS + n, uuid(n))


def gathered(command: bytes, key: str, entries: Iterable[tuple[bytes, ...]]) -> Iterator[Command]:
    """Many entries a command."""
    flat: list[bytes] = []
    for entry in entries:
        flat += entry
        if len(flat) >= _CHUNK:
            yield (command, key.encode(), *flat)
            flat = []
    if flat:
        yield (command, key.encode(), *flat)


def coatcheck() -> Iterator[Command]:
    """All in the delayed set, a tenth of the payloads in Redis; as many payloads in the ready list."""
    of = Keys().queue(QUEUE)
    yield (b"ZADD", Keys().queues.encode(), b"%d" % NOW_MS, QUEUE.encode())
    yield from gathered(b"ZADD", of.delayed, ((b"%d" % (NOW_MS + n), reference(n)) for n in range(JOBS)))
    yield from gathered(b"HSET", of.bodies, ((uuid(n), b"x" * 100) for n in range(0, JOBS, 10)))
    yield from gathered(b"ZADD", of.dead, ((b"%d" % NOW_MS, reference(JOBS + n)) for n in range(JOBS // 20)))
    yield from gathered(b"ZADD", of.leases, ((b"%d" % NOW_MS, reference(2 * JOBS + n)) for n in range(JOBS // 20)))
    yield from gathered(b"LPUSH", of.ready, ((b"payload %d" % n,) for n in range(JOBS)))


def asynq() -> Iterator[Command]:
    """All in the list of what waits, with a record for each."""
    yield (b"SADD", b"asynq:queues", QUEUE.encode())
    yield from gathered(b"LPUSH", "asynq:{big}:pending", ((uuid(n),) for n in range(JOBS)))
    for n in range(JOBS):
        message = b"\x0a\x04mail\x12\x02{}\x1a\x24%s\x22\x03big" % uuid(n)
        yield (b"HSET", b"asynq:{big}:t:%s" % uuid(n), b"msg", message, b"state", b"pending")


def bullmq() -> Iterator[Command]:
    """The same."""
    yield (b"HSET", b"bull:big:meta", b"version", b"bullmq:6.2.0")
    yield from gathered(b"LPUSH", "bull:big:wait", ((b"%d" % n,) for n in range(1, JOBS + 1)))
    for n in range(1, JOBS + 1):
        yield (b"HSET", b"bull:big:%d" % n, b"name", b"mail", b"data", b"{}", b"timestamp", b"%d" % NOW_MS)


def rtq() -> Iterator[Command]:
    """All in the list of envelopes."""
    task = {"type": "mail", "payload": {}}
    for first in range(0, JOBS, _CHUNK):
        envelopes = [
            json.dumps({"id": f"job-{n}", "task": task, "queue": QUEUE, "max_retries": 3, "attempt": 0}).encode()
            for n in range(first, first + _CHUNK)
        ]
        yield (b"LPUSH", b"rtq:queue:big", *envelopes)


#: How each is filled, and an id from the middle.
FILLING: dict[str, tuple[Callable[[], Iterator[Command]], str]] = {
    "coatcheck": (coatcheck, reference(JOBS // 2).decode()),
    "asynq": (asynq, uuid(JOBS // 2).decode()),
    "bullmq": (bullmq, str(JOBS // 2)),
    "rtq": (rtq, f"job-{JOBS // 2}"),
}


def fill(client: redis.Redis, commands: Iterator[Command]) -> None:
    """As `redis-cli --pipe` does: packed here, answers only counted."""
    connection = client.connection_pool.get_connection()
    waiting: list[bytes] = []

    def flush() -> None:
        connection.send_packed_command([b"".join(waiting)])
        for _ in waiting:
            connection.read_response()
        waiting.clear()

    for command in commands:
        parts = b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in command)
        waiting.append(b"*%d\r\n%s" % (len(command), parts))
        if len(waiting) == _CHUNK or len(command) > 100:
            flush()
    flush()
    client.connection_pool.release(connection)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("layout", LAYOUTS)
async def test_a_look_at_two_million_jobs_is_quick_and_holds_nobody_up(tmp_path: Path, layout: str) -> None:
    """An inspector of the field stopped a Redis for six minutes; LPOS alone over such a list takes 29 ms."""
    filling, middle = FILLING[layout]
    with inspected_server(tmp_path, slowlog_max_len=1000) as server:
        admin = redis.Redis.from_url(server.url)
        pool = connect(inspectors_url(server.url), timeout_s=30, max_connections=16, client_name=USER)
        try:
            fill(admin, filling())
            inspector = Inspector(Transport(pool), Keys(), layouts={layout: LAYOUTS[layout]})
            looks: dict[str, Callable[[], Awaitable[Any]]] = {
                "inspect": inspector.overview,
                "inspect QUEUE": lambda: inspector.queue(QUEUE),
                "inspect QUEUE ID": lambda: inspector.job(QUEUE, middle),
                "inspect QUEUE NOBODY": lambda: inspector.job(QUEUE, "nobody"),
                "inspect --problems": inspector.problems,
            }
            for name, look in looks.items():
                best_s, slow = await measured(admin, look)
                print(f"{layout}: {name}: {best_s * 1000:.0f} ms", *slow)
                assert best_s < 1, name
                assert not slow, f"{name}: {slow}"
            [summary] = (await inspector.overview()).summaries
            assert sum(count or 0 for count in summary.states.values()) >= JOBS
            assert summary.problems == ()
            [job] = await inspector.job(QUEUE, middle)
            if not job.places:
                assert "not in the first and last" in str(job.unsought[0])
        finally:
            await pool.disconnect()
            admin.close()


async def measured(admin: redis.Redis, look: Callable[[], Awaitable[Any]]) -> tuple[float, list[str]]:
    """Seconds of the quickest look, and those of its commands that took long in every one."""
    best_s, slow_in_all = float("inf"), None
    for _ in range(LOOKS):
        admin.config_set("slowlog-log-slower-than", SLOW_US)
        admin.slowlog_reset()
        begun_s = time.monotonic()
        await look()
        best_s = min(best_s, time.monotonic() - begun_s)
        told = admin.slowlog_get(1000)
        slow = {entry["command"].split()[0].decode() for entry in told}
        admin.execute_command("DEBUG", "SLEEP", 2 * SLOW_US / 1_000_000)
        assert len(admin.slowlog_get(1000)) == len(told) + 1, "the server tells of what is slow"
        slow_in_all = slow if slow_in_all is None else slow_in_all & slow
    return best_s, sorted(slow_in_all or ())
