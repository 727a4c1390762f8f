"""Delayed jobs of every library, written as each of them does, with contents that the test knows.

known = Known(payload_bytes=[…], delays_ms=[…], waits_ms=[…]); await FILLERS["sidekiq"](redis, known, now_ms)
"""

import base64
import json
import random
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from redis.asyncio import Redis

from service.keys import Keys
from storage_backends.reference import Reference

DAY_MS = 86_400_000
_AT_ONCE_BYTES = 2**20


@dataclass(frozen=True)
class Known:
    """What is put in, job by job. Sizes are those that a reader should find, envelope included where it counts."""

    sizes_bytes: Sequence[int]
    delays_ms: Sequence[int]
    waits_ms: Sequence[int]  #: what is left of the delay

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        return zip(self.sizes_bytes, self.delays_ms, self.waits_ms, strict=True)

    @property
    def payload_bytes(self) -> int:
        return sum(self.sizes_bytes)

    def left_bytes(self, inline_max_bytes: int, inline_max_delay_ms: int) -> int:
        """Payload that stays in Redis with these thresholds."""
        return sum(
            size
            for size, delay_ms, _ in self
            if size < 512 or (size <= inline_max_bytes and delay_ms <= inline_max_delay_ms)
        )


def known(jobs: int, size: Callable[[random.Random], float], seed: int = 0, longest_ms: int = 7 * DAY_MS) -> Known:
    """So many jobs; sizes from `size`, at least 400 bytes; delays up to `longest_ms`, each anywhere within its own."""
    chance = random.Random(seed)
    sizes = [max(400, min(2**20, round(size(chance)))) for _ in range(jobs)]
    delays = [chance.randrange(60_000, longest_ms) for _ in range(jobs)]
    return Known(sizes, delays, [chance.randrange(delay) for delay in delays])


Filler = Callable[[Redis, Known, int], Awaitable[None]]


async def _written(redis: Redis, jobs: Iterator[list[tuple[Any, ...]]]) -> None:
    """In pieces: whoever follows MONITOR is sent all of it."""
    pipe, pending_bytes = redis.pipeline(transaction=False), 0
    for commands in jobs:
        for command in commands:
            pipe.execute_command(*command)
            pending_bytes += 100 + sum(len(part) for part in command if isinstance(part, str | bytes))
        if pending_bytes > _AT_ONCE_BYTES:
            await pipe.execute()
            pending_bytes = 0
    await pipe.execute()


def _uuid7(at_ms: int, chance: random.Random) -> str:
    return str(
        uuid.UUID(
            int=(at_ms << 80) | (0x7 << 76) | (chance.getrandbits(12) << 64) | (0b10 << 62) | chance.getrandbits(62)
        )
    )


async def coatcheck(redis: Redis, known: Known, now_ms: int, queue: str = "emails") -> None:
    """All of them inline."""
    of, chance = Keys().queue(queue), random.Random(1)

    def jobs() -> Iterator[list[tuple[Any, ...]]]:
        for size, delay_ms, wait_ms in known:
            due_ms = now_ms + wait_ms
            reference = Reference("redis", queue, due_ms, _uuid7(due_ms - delay_ms, chance))
            yield [("HSET", of.bodies, reference.uuid, b"x" * size), ("ZADD", of.delayed, due_ms, str(reference))]

    await _written(redis, jobs())
    await redis.zadd(Keys().queues, {queue: now_ms})


async def asynq(redis: Redis, known: Known, now_ms: int, queue: str = "mail") -> None:
    """Half of them as retries."""

    def jobs() -> Iterator[list[tuple[Any, ...]]]:
        for at, (size, _, wait_ms) in enumerate(known):
            start, state = f"asynq:{{{queue}}}:", "retry" if at % 2 else "scheduled"
            task = str(uuid.UUID(int=at))
            yield [
                ("HSET", f"{start}t:{task}", "msg", b"x" * size, "state", state),
                ("ZADD", start + state, (now_ms + wait_ms) // 1000, task),
            ]

    await _written(redis, jobs())
    await redis.sadd("asynq:queues", queue)


async def bullmq(redis: Redis, known: Known, now_ms: int, queue: str = "video", prefix: str = "bull") -> None:
    def jobs() -> Iterator[list[tuple[Any, ...]]]:
        for at, (size, delay_ms, wait_ms) in enumerate(known):
            start, due_ms = f"{prefix}:{queue}:", now_ms + wait_ms
            record = {"name": "encode", "data": b"x" * size, "opts": '{"attempts":0}', "delay": delay_ms, "priority": 0}
            fields = [part for pair in {**record, "timestamp": due_ms - delay_ms}.items() for part in pair]
            yield [("HSET", f"{start}{at}", *fields), ("ZADD", start + "delayed", due_ms * 4096 + at % 7, at)]

    await _written(redis, jobs())
    await redis.hset(f"{prefix}:{queue}:meta", "version", "bullmq:5.0.0")


async def rtq(redis: Redis, known: Known, now_ms: int, queue: str = "reports") -> None:
    def jobs() -> Iterator[list[tuple[Any, ...]]]:
        for at, (size, _, wait_ms) in enumerate(known):
            envelope = _padded(
                size,
                lambda pad, at=at: json.dumps(
                    {
                        "id": str(uuid.UUID(int=at)),
                        "task": {"type": "t", "payload": pad},
                        "queue": queue,
                        "max_retries": 3,
                        "attempt": 0,
                    }
                ),
            )
            yield [("ZADD", f"rtq:queue:{queue}:delayed", now_ms + wait_ms, envelope)]

    await _written(redis, jobs())


async def celery(redis: Redis, known: Known, now_ms: int, prefix: str = "") -> None:
    """Beside each delayed task stands one that is being worked on."""

    def jobs() -> Iterator[list[tuple[Any, ...]]]:
        for at, (size, delay_ms, wait_ms) in enumerate(known):
            taken_ms, tag = now_ms + wait_ms - delay_ms, str(uuid.UUID(int=at))
            eta = datetime.fromtimestamp((now_ms + wait_ms) / 1000, UTC).isoformat()
            message = _padded(size, lambda pad, eta=eta, tag=tag: json.dumps([_message(pad, eta, tag), "", "celery"]))
            other, work = str(uuid.UUID(int=2**64 + at)), json.dumps([_message("e30=", None, "now"), "", "celery"])
            yield [
                ("HSET", prefix + "unacked", tag, message, other, work),
                ("ZADD", prefix + "unacked_index", taken_ms / 1000, tag, now_ms / 1000, other),
            ]

    await _written(redis, jobs())


def _message(body: str, eta: str | None, id_: str) -> dict[str, Any]:
    headers = {"lang": "py", "task": "tasks.add", "id": id_, "eta": eta, "expires": None, "retries": 0}
    return {
        "body": body,
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": headers,
        "properties": {"delivery_tag": id_, "body_encoding": "base64"},
    }


async def rq(redis: Redis, known: Known, now_ms: int, queue: str = "default") -> None:
    def jobs() -> Iterator[list[tuple[Any, ...]]]:
        for at, (size, delay_ms, wait_ms) in enumerate(known):
            made = datetime.fromtimestamp((now_ms + wait_ms - delay_ms) / 1000, UTC)
            job, spelt = str(uuid.UUID(int=at)), made.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            record = ("status", "scheduled", "origin", queue, "created_at", spelt, "data", b"x" * size, "timeout", 180)
            yield [
                ("HSET", f"rq:job:{job}", *record),
                ("ZADD", f"rq:scheduled:{queue}", (now_ms + wait_ms) // 1000, job),
            ]

    await _written(redis, jobs())
    await redis.sadd("rq:queues", f"rq:queue:{queue}")


async def sidekiq(redis: Redis, known: Known, now_ms: int, namespace: str = "") -> None:
    """Half of them as retries, whose time of making is long past; a third with the times of release 7."""

    def jobs() -> Iterator[list[tuple[Any, ...]]]:
        for at, (size, delay_ms, wait_ms) in enumerate(known):
            since_ms = now_ms + wait_ms - delay_ms
            times = {"created_at": since_ms - 10**9, "failed_at": since_ms} if at % 2 else {"created_at": since_ms}
            spelt = {name: ms / 1000 for name, ms in times.items()} if at % 3 == 0 else times
            fields = {"class": "HardJob", "queue": "default", "jid": f"{at:024x}", "retry": True, **spelt}
            job = _padded(size, lambda pad, fields=fields: json.dumps({**fields, "args": [pad]}))
            yield [("ZADD", namespace + ("retry" if at % 2 else "schedule"), (now_ms + wait_ms) / 1000, job)]

    await _written(redis, jobs())


def _padded(size: int, made: Callable[[str], str]) -> str:
    """What `made` makes, with as much padding as it takes to be so long."""
    bare = len(made(""))
    assert bare <= size, f"{bare} bytes are needed, without a payload"
    return made(base64.b64encode(b"p" * size).decode()[: size - bare])


FILLERS: dict[str, Filler] = {
    "coatcheck": coatcheck,
    "asynq": asynq,
    "bullmq": bullmq,
    "rtq": rtq,
    "celery": celery,
    "rq": rq,
    "sidekiq": sidekiq,
}
