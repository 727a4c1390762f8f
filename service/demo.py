"""`coatcheck dev --demo`: a mix of jobs over HTTP, and how each of them arrives."""

import asyncio
import os
import time
from dataclasses import dataclass
from typing import Any, Final, cast

import httpx
from redis.asyncio import Redis
from rich.console import Console
from rich.table import Table

from service.keys import Keys

QUEUE: Final = "demo"
#: So that "long" can be watched; the default is 15 minutes.
ENVIRONMENT: Final = {"COATCHECK_ROUTING__INLINE_MAX_DELAY": "2s"}
_WITHIN_S: Final = 20.0  #: the last job is due after 3 s; a slow machine gets its time
_ID: Final = 8


@dataclass(frozen=True, slots=True)
class _Kind:
    name: str
    count: int
    size_bytes: int
    delay: str


_KINDS: Final = (
    _Kind("small and short", 5, 200, "1s"),
    _Kind("large", 3, 200_000, "1500ms"),
    _Kind("long", 3, 2_000, "3s"),
)


async def demo(api_url: str, redis_url: str, console: Console) -> None:
    """Prints a table, a line a job. Raises TimeoutError if a job does not arrive."""
    jobs = sum(kind.count for kind in _KINDS)
    console.print(f"\nSending {jobs} jobs to [bold]{api_url}/v1/queues/{QUEUE}/jobs[/bold] …")
    async with httpx.AsyncClient(base_url=api_url) as http, Redis.from_url(redis_url) as redis:
        sent = [await _send(http, kind) for kind in _KINDS for _ in range(kind.count)]
        console.print(f"… accepted; waiting for them with BRPOP {Keys().queue(QUEUE).ready}\n")
        async with asyncio.timeout(_WITHIN_S):
            arrived = await _receive(redis, len(sent))
    console.print(_table(sent, arrived))
    console.print(f"[green]All {len(sent)} jobs arrived, none early.[/green]")


async def _send(http: httpx.AsyncClient, kind: _Kind) -> tuple[_Kind, str, dict[str, Any]]:
    name = os.urandom(_ID // 2).hex()
    payload = name.encode() + os.urandom(kind.size_bytes - _ID)
    response = await http.post(f"/v1/queues/{QUEUE}/jobs", params={"delay": kind.delay}, content=payload)
    response.raise_for_status()
    return kind, name, response.json()


async def _receive(redis: Redis, count: int) -> dict[str, tuple[int, int]]:
    """name -> when it arrived, ms, and its size."""
    arrived: dict[str, tuple[int, int]] = {}
    while len(arrived) < count:
        _, payload = cast(tuple[bytes, bytes], await redis.brpop([Keys().queue(QUEUE).ready]))
        arrived[payload[:_ID].decode()] = (time.time_ns() // 1_000_000, len(payload))
    return arrived


def _table(sent: list[tuple[_Kind, str, dict[str, Any]]], arrived: dict[str, tuple[int, int]]) -> Table:
    table = Table("job", "bytes", "delay", "payload kept in", "because it is", "late", title="Jobs, as they arrived")
    for column in table.columns:
        column.justify = "right" if column.header in ("bytes", "late") else "left"
    for kind, name, answer in sent:
        at_ms, size = arrived[name]
        ts_ms = int(answer["reference"].split("::")[2])
        late_ms = at_ms - ts_ms
        if late_ms < 0:
            raise RuntimeError(f"{answer['reference']} arrived {-late_ms} ms early")
        reason = answer["reason"].replace("_", " ")
        table.add_row(kind.name, f"{size:,}", kind.delay, answer["backend"], reason, f"{late_ms} ms")
    return table
