"""Asynq: `asynq:{<queue>}:scheduled` and `retry`, id -> unix seconds; the task in the hash `asynq:{<queue>}:t:<id>`.

The payload is the protobuf message in `msg`. Nothing says when a task was enqueued.
"""

import re
from collections.abc import Sequence
from typing import ClassVar

from service.advisor.delayed import Job, Member, members_of_set
from service.advisor.layouts.records import jobs_of
from service.inspector.reading import ReadOnly
from service.keys import Keys
from service.members import text_of

_QUEUES = 1000
_key = re.compile(r"asynq:\{([^{}]+)\}:(?:scheduled|retry)")


class Asynq:
    name: ClassVar[str] = "asynq"
    per_ms: ClassVar[float] = 0.001

    def __init__(self, keys: Keys) -> None:
        pass

    def queue_of(self, key: str) -> str | None:
        match = _key.fullmatch(key)
        return match[1] if match else None

    async def registered(self, reader: ReadOnly) -> list[str]:
        queues = [text_of(it) for it in await members_of_set(reader, f"{self.name}:queues", _QUEUES)]
        return [f"asynq:{{{queue}}}:{state}" for queue in queues for state in ("scheduled", "retry")]

    async def owns(self, reader: ReadOnly, key: str) -> bool:
        return True

    async def jobs(self, reader: ReadOnly, key: str, members: Sequence[Member], now_ms: int) -> list[Job]:
        tasks = key.rpartition(":")[0] + ":t:"
        return await jobs_of(reader, members, [tasks + text_of(it.text) for it in members], "msg", now_ms)
