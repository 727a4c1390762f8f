"""Writes what redis_task_queue (Dart) writes: envelopes as its jsonEncode spells them, dead entries old and new."""

import json
from typing import Any

from redis.asyncio import Redis


def envelope(id_: str, queue: str = "default", **fields: Any) -> bytes:
    """Without blanks, as Dart does."""
    told = {
        "id": id_,
        "task": {"type": fields.pop("type", "mail"), "payload": fields.pop("payload", {"n": 1})},
        "queue": queue,
        "max_retries": fields.pop("max_retries", 5),
        "attempt": fields.pop("attempt", 0),
        **fields,
    }
    return json.dumps(told, separators=(",", ":"), ensure_ascii=False).encode()


def dead_entry(entry: bytes, error: str, dead_at_ms: int) -> bytes:
    """As from 0.8.0 on; before, `entry` itself was pushed."""
    told = {"envelope": json.loads(entry), "error": error, "dead_at": dead_at_ms}
    return json.dumps(told, separators=(",", ":"), ensure_ascii=False).encode()


class RtqWriter:
    """One queue, written as its client and a worker write it."""

    def __init__(self, redis: Redis, queue: str, prefix: str = "rtq") -> None:
        self.redis, self.queue, self.prefix = redis, queue, prefix
        self.pending, self.delayed = f"{prefix}:queue:{queue}", f"{prefix}:queue:{queue}:delayed"
        self.dead = f"{prefix}:dead"

    def in_flight(self, worker: str) -> str:
        return f"{self.prefix}:inflight:{worker}"

    async def enqueue(self, id_: str, due_ms: float | None = None, **fields: Any) -> bytes:
        entry = envelope(id_, self.queue, **fields)
        if due_ms is None:
            await self.redis.lpush(self.pending, entry)
        else:
            await self.redis.zadd(self.delayed, {entry: due_ms})
        return entry

    async def claim(self, worker: str) -> bytes:
        entry: bytes = await self.redis.lmove(self.pending, self.in_flight(worker), "RIGHT", "LEFT")
        return entry

    async def retry(self, worker: str, entry: bytes, due_ms: float) -> bytes:
        told = json.loads(entry)
        again = json.dumps({**told, "attempt": told["attempt"] + 1}, separators=(",", ":"), ensure_ascii=False).encode()
        await self.redis.lrem(self.in_flight(worker), 1, entry)
        await self.redis.zadd(self.delayed, {again: due_ms})
        return again

    async def bury(self, worker: str, entry: bytes, dead_at_ms: int | None, error: str = "it failed") -> None:
        """`dead_at_ms` None: as releases before 0.8.0 did."""
        await self.redis.lrem(self.in_flight(worker), 1, entry)
        await self.redis.lpush(self.dead, entry if dead_at_ms is None else dead_entry(entry, error, dead_at_ms))

    async def done(self, worker: str, entry: bytes) -> None:
        await self.redis.lrem(self.in_flight(worker), 1, entry)
