"""redis_task_queue: `rtq:queue:<queue>:delayed`, the envelope itself -> due, ms. Nothing says when it was enqueued."""

from collections.abc import Sequence
from typing import ClassVar

from service.advisor import memory
from service.advisor.delayed import Job, Member, told
from service.inspector.reading import ReadOnly
from service.keys import Keys

_START, _END = "rtq:queue:", ":delayed"


class RTQ:
    name: ClassVar[str] = "rtq"
    per_ms: ClassVar[float] = 1.0

    def __init__(self, keys: Keys) -> None:
        pass

    def queue_of(self, key: str) -> str | None:
        queue = key.removeprefix(_START).removesuffix(_END)
        return queue if queue and key == _START + queue + _END else None

    async def registered(self, reader: ReadOnly) -> list[str]:
        return []

    async def owns(self, reader: ReadOnly, key: str) -> bool:
        return True

    async def jobs(self, reader: ReadOnly, key: str, members: Sequence[Member], now_ms: int) -> list[Job]:
        return [_job(it, now_ms) for it in members]


def _job(member: Member, now_ms: int) -> Job:
    waits_ms, fault = told(member, now_ms)
    if not member.text.startswith(b"{"):
        fault = "a member is no envelope"
    return Job(len(member.text), memory.member_bytes(len(member.text)), None, waits_ms, fault=fault)
