"""Writes what Asynq's own scripts write, key by key: the facts of its layout, which a recording of the library confirms
(tests/inspector/asynq/). Messages are encoded by a strict proto3 schema, another one than the inspector reads with.
"""

import hashlib
from collections.abc import Mapping
from functools import cache
from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from redis.asyncio import Redis

LEASE_S = 30
AGGREGATION_S = 120
_TEXT, _BYTES, _INT32, _INT64 = Field.TYPE_STRING, Field.TYPE_BYTES, Field.TYPE_INT32, Field.TYPE_INT64
TASK = {
    "type": (1, _TEXT),
    "payload": (2, _BYTES),
    "id": (3, _TEXT),
    "queue": (4, _TEXT),
    "retry": (5, _INT32),
    "retried": (6, _INT32),
    "error_msg": (7, _TEXT),
    "timeout": (8, _INT64),
    "deadline": (9, _INT64),
    "unique_key": (10, _TEXT),
    "last_failed_at": (11, _INT64),
    "retention": (12, _INT64),
    "completed_at": (13, _INT64),
    "group_key": (14, _TEXT),
}
SERVER = {
    "host": (1, _TEXT),
    "pid": (2, _INT32),
    "server_id": (3, _TEXT),
    "concurrency": (4, _INT32),
    "strict_priority": (6, Field.TYPE_BOOL),
    "status": (7, _TEXT),
    "active_worker_count": (9, _INT32),
}


def message(**fields: Any) -> bytes:
    """An encoded TaskMessage; `headers` is a dict."""
    return _classes()["TaskMessage"](**fields).SerializeToString()


def server_info(**fields: Any) -> bytes:
    """An encoded ServerInfo; `queues` maps names to priorities."""
    return _classes()["ServerInfo"](**fields).SerializeToString()


@cache
def _classes() -> dict[str, type[Message]]:
    file = FileDescriptorProto(name="asynq.proto", package="asynq", syntax="proto3")
    for name, fields, (map_field, number, kind) in (
        ("TaskMessage", TASK, ("headers", 15, _TEXT)),
        ("ServerInfo", SERVER, ("queues", 5, _INT32)),
    ):
        made = file.message_type.add(name=name)
        for field, (its_number, its_kind) in fields.items():
            made.field.add(name=field, number=its_number, type=its_kind, label=Field.LABEL_OPTIONAL)
        entry_name = f"{map_field.capitalize()}Entry"
        entry = made.nested_type.add(name=entry_name)
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, type=_TEXT, label=Field.LABEL_OPTIONAL)
        entry.field.add(name="value", number=2, type=kind, label=Field.LABEL_OPTIONAL)
        made.field.add(
            name=map_field,
            number=number,
            type=Field.TYPE_MESSAGE,
            type_name=f".asynq.{name}.{entry_name}",
            label=Field.LABEL_REPEATED,
        )
    pool = DescriptorPool()
    pool.Add(file)
    return {it.name: GetMessageClass(pool.FindMessageTypeByName(f"asynq.{it.name}")) for it in file.message_type}


class AsynqWriter:
    """One queue, written as Asynq's client, servers and inspector write it. Times are unix seconds, unless named."""

    def __init__(self, redis: Redis, queue: str, now_s: int) -> None:
        self.redis, self.queue, self.now_s = redis, queue, now_s

    def key(self, name: str) -> str:
        return f"asynq:{{{self.queue}}}:{name}"

    def message(self, id_: str, **fields: Any) -> bytes:
        told = {"type": "mail", "payload": b'{"n":1}', "retry": 25, "timeout": 1800, **fields}
        return message(id=id_, queue=self.queue, **told)

    async def enqueue(self, id_: str, since_s: float | None = None, *, unique_s: int = 0, **fields: Any) -> None:
        since_ns = int((self.now_s if since_s is None else since_s) * 1_000_000_000)
        record = await self._new(id_, "pending", unique_s, fields)
        await self.redis.hset(self.key(f"t:{id_}"), mapping={**record, "pending_since": since_ns})
        await self.redis.lpush(self.key("pending"), id_)

    async def schedule(self, id_: str, due_s: float, *, unique_s: int = 0, **fields: Any) -> None:
        record = await self._new(id_, "scheduled", unique_s, fields)
        await self.redis.hset(self.key(f"t:{id_}"), mapping=record)
        await self.redis.zadd(self.key("scheduled"), {id_: due_s})

    async def group(self, id_: str, group: str, joined_s: int | None = None, **fields: Any) -> None:
        record = await self._new(id_, "aggregating", 0, {"group_key": group, **fields})
        await self.redis.hset(self.key(f"t:{id_}"), mapping={**record, "group": group})
        await self.redis.zadd(self.key(f"g:{group}"), {id_: joined_s or self.now_s})
        await self.redis.sadd(self.key("groups"), group)

    async def aggregate(self, group: str, set_id: str, back_s: int | None = None) -> None:
        """All of a group into an aggregation set."""
        own = self.key(f"g:{group}")
        members = await self.redis.zrange(own, 0, -1, withscores=True)
        await self.redis.zadd(f"{own}:{set_id}", dict(members))
        await self.redis.delete(own)
        await self.redis.zadd(self.key("aggregation_sets"), {f"{own}:{set_id}": back_s or self.now_s + AGGREGATION_S})
        await self.redis.srem(self.key("groups"), group)

    async def dequeue(self, lease_s: float | None = None) -> str:
        """The oldest pending task into a worker's hands."""
        id_ = (await self.redis.rpoplpush(self.key("pending"), self.key("active"))).decode()
        await self.redis.hset(self.key(f"t:{id_}"), "state", "active")
        await self.redis.hdel(self.key(f"t:{id_}"), "pending_since")
        await self.redis.zadd(self.key("lease"), {id_: self.now_s + LEASE_S if lease_s is None else lease_s})
        return id_

    async def retry(self, id_: str, due_s: float, **fields: Any) -> None:
        told = {"retried": 1, "error_msg": "it failed", "last_failed_at": self.now_s, **fields}
        await self._end(id_, "retry", due_s, told)
        await self._count("processed", "failed")

    async def archive(self, id_: str, died_s: float | None = None, **fields: Any) -> None:
        told = {"error_msg": "it failed", "last_failed_at": self.now_s, **fields}
        await self._end(id_, "archived", self.now_s if died_s is None else died_s, told)
        await self._count("processed", "failed")

    async def complete(self, id_: str, retention_s: int = 3600, result: bytes | None = None, **fields: Any) -> None:
        if result is not None:
            await self.redis.hset(self.key(f"t:{id_}"), "result", result)
        told = {"retention": retention_s, "completed_at": self.now_s, **fields}
        await self._end(id_, "completed", self.now_s + retention_s, told)
        await self._count("processed")

    async def done(self, id_: str) -> None:
        """Without retention nothing is left of it."""
        await self._leave(id_)
        await self.redis.delete(self.key(f"t:{id_}"))
        await self._count("processed")

    async def requeue(self, id_: str) -> None:
        """A server that stops gives back what it holds: without a time since when it is pending."""
        await self._leave(id_)
        await self.redis.rpush(self.key("pending"), id_)
        await self.redis.hset(self.key(f"t:{id_}"), "state", "pending")

    async def pause(self) -> None:
        await self.redis.set(self.key("paused"), self.now_s)

    async def serve(self, *queues: str, expires_s: int | None = None, tasks: Mapping[str, bytes] | None = None) -> str:
        """A server that says that it lives, and what its workers do."""
        name = "{web-1:4711:5e0f}"
        info = server_info(
            host="web-1",
            pid=4711,
            server_id="5e0f",
            concurrency=10,
            queues=dict.fromkeys(queues, 1),
            status="active",
            active_worker_count=len(tasks or {}),
        )
        expires_s = self.now_s + 10 if expires_s is None else expires_s
        await self.redis.zadd("asynq:servers", {f"asynq:servers:{name}": expires_s})
        await self.redis.zadd("asynq:workers", {f"asynq:workers:{name}": expires_s})
        await self.redis.set(f"asynq:servers:{name}", info)
        if tasks:
            await self.redis.hset(f"asynq:workers:{name}", mapping=dict(tasks))
        return name

    async def _new(self, id_: str, state: str, unique_s: int, fields: dict[str, Any]) -> dict[str, Any]:
        await self.redis.sadd("asynq:queues", self.queue)
        if not unique_s:
            return {"msg": self.message(id_, **fields), "state": state}
        payload = fields.get("payload", b'{"n":1}')
        digest = hashlib.md5(payload, usedforsecurity=False).hexdigest()
        lock = self.key(f"unique:{fields.get('type', 'mail')}:{digest}")
        await self.redis.set(lock, id_, ex=unique_s)
        return {"msg": self.message(id_, unique_key=lock, **fields), "state": state, "unique_key": lock}

    async def _leave(self, id_: str) -> None:
        await self.redis.lrem(self.key("active"), 0, id_)
        await self.redis.zrem(self.key("lease"), id_)

    async def _end(self, id_: str, state: str, score: float, fields: dict[str, Any]) -> None:
        await self._leave(id_)
        await self.redis.zadd(self.key(state), {id_: score})
        await self.redis.hset(self.key(f"t:{id_}"), mapping={"msg": self.message(id_, **fields), "state": state})

    async def _count(self, *counters: str) -> None:
        for counter in counters:
            await self.redis.incr(self.key(counter))
