"""RQ: `rq:scheduled:<queue>`, id -> unix seconds; the job in the hash `rq:job:<id>`.

The payload is the serialised call in `data`; `created_at` says when the job was made.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from service.advisor.delayed import Job, Member, members_of_set
from service.advisor.layouts.records import jobs_of
from service.advisor.moments import written
from service.inspector.reading import ReadOnly
from service.keys import Keys
from service.members import text_of

_QUEUES = 1000
_SCHEDULED, _JOB, _QUEUE = "rq:scheduled:", "rq:job:", "rq:queue:"


class RQ:
    name: ClassVar[str] = "rq"
    per_ms: ClassVar[float] = 0.001

    def __init__(self, keys: Keys) -> None:
        pass

    def queue_of(self, key: str) -> str | None:
        return key.removeprefix(_SCHEDULED) if key.startswith(_SCHEDULED) and key != _SCHEDULED else None

    async def registered(self, reader: ReadOnly) -> list[str]:
        queues = [text_of(it) for it in await members_of_set(reader, f"{self.name}:queues", _QUEUES)]
        return [_SCHEDULED + queue.removeprefix(_QUEUE) for queue in queues]

    async def owns(self, reader: ReadOnly, key: str) -> bool:
        return True

    async def jobs(self, reader: ReadOnly, key: str, members: Sequence[Member], now_ms: int) -> list[Job]:
        records = [_JOB + text_of(it.text) for it in members]
        jobs = await jobs_of(reader, members, records, "data", now_ms)
        created = await reader.send([("HMGET", record, "created_at") for record in records])
        return [
            replace(job, delay_ms=_delay_ms(member, reply))
            for job, member, reply in zip(jobs, members, created, strict=True)
        ]


def _delay_ms(member: Member, reply: Any) -> int | None:
    made = written(reply[0]) if isinstance(reply, list) else None
    return None if made is None or member.due is None else max(0, member.due.ms - made.ms)
