"""Sidekiq: `schedule` and `retry`, the job's JSON itself -> unix seconds; a namespace may stand in front (`app:retry`).

`created_at` says when a job was made, `retried_at` and `failed_at` when its last try failed: unix seconds up to release
7, milliseconds from 8 on.
"""

import json
from collections.abc import Sequence
from typing import Any, ClassVar

from service.advisor import memory
from service.advisor.delayed import READ_BYTES, Job, Member, told
from service.advisor.moments import counted
from service.inspector.reading import ReadOnly
from service.inspector.times import Moment
from service.keys import Keys

_NAMES = ("schedule", "retry")


class Sidekiq:
    name: ClassVar[str] = "sidekiq"
    per_ms: ClassVar[float] = 0.001

    def __init__(self, keys: Keys) -> None:
        pass

    def queue_of(self, key: str) -> str | None:
        """All queues share these sets."""
        return key if key.rpartition(":")[2] in _NAMES else None

    async def registered(self, reader: ReadOnly) -> list[str]:
        return list(_NAMES)

    async def owns(self, reader: ReadOnly, key: str) -> bool:
        """These are words that anybody may use: some member of either end must be one of its jobs."""
        ends = await reader.send([("ZRANGE", key, 0, 0), ("ZRANGE", key, -1, -1)], raising=True)
        return any(_fields(text) is not None for reply in ends for text in reply)

    async def jobs(self, reader: ReadOnly, key: str, members: Sequence[Member], now_ms: int) -> list[Job]:
        return [_job(it, now_ms) for it in members]


def _job(member: Member, now_ms: int) -> Job:
    size = len(member.text)
    waits_ms, fault = told(member, now_ms)
    since = None
    if size <= READ_BYTES:
        fields = _fields(member.text)
        fault = "a member is no job" if fields is None else fault
        since = _since(fields or {})
    delay_ms = None if since is None or member.due is None else max(0, member.due.ms - since.ms)
    return Job(size, memory.member_bytes(size), delay_ms, waits_ms, fault=fault)


def _since(fields: dict[str, Any]) -> Moment | None:
    """When its present wait began."""
    return next((at for name in ("retried_at", "failed_at", "created_at") if (at := counted(fields.get(name)))), None)


def _fields(text: bytes) -> dict[str, Any] | None:
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) and "class" in fields and "args" in fields else None
