"""BullMQ: `<prefix>:<queue>:delayed`, id -> due_ms * 4096 + sequence; the job in the hash `<prefix>:<queue>:<id>`.

The payload is the JSON in `data`; `timestamp` says when the job was added, `delay` for how long.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from service.advisor.delayed import Job, Member
from service.advisor.layouts.records import jobs_of
from service.inspector.bullmq.keys import PER_MS
from service.inspector.reading import ReadOnly
from service.inspector.times import LAST_MS, moment
from service.keys import Keys
from service.members import text_of

_DELAYED, _META = ":delayed", ":meta"


class BullMQ:
    name: ClassVar[str] = "bullmq"
    per_ms: ClassVar[float] = float(PER_MS)

    def __init__(self, keys: Keys) -> None:
        pass

    def queue_of(self, key: str) -> str | None:
        """Any prefix will do: it is each user's own choice."""
        head = key.removesuffix(_DELAYED)
        prefix, colon, queue = head.rpartition(":")
        return queue if head != key and colon and prefix and queue else None

    async def registered(self, reader: ReadOnly) -> list[str]:
        return []

    async def owns(self, reader: ReadOnly, key: str) -> bool:
        """Its queues have a hash with a fixed name; the small list queue, whose sets end in the same word, has none."""
        (kind,) = await reader.send([("TYPE", key.removesuffix(_DELAYED) + _META)])
        return bool(kind == b"hash")

    async def jobs(self, reader: ReadOnly, key: str, members: Sequence[Member], now_ms: int) -> list[Job]:
        start = key.removesuffix(_DELAYED) + ":"
        records = [start + text_of(it.text) for it in members]
        jobs = await jobs_of(reader, members, records, "data", now_ms)
        times = await reader.send([("HMGET", record, "timestamp", "delay") for record in records])
        return [
            replace(job, delay_ms=_delay_ms(member, reply))
            for job, member, reply in zip(jobs, members, times, strict=True)
        ]


def _delay_ms(member: Member, reply: Any) -> int | None:
    """As it was asked for; else from when it was added until it is due."""
    if not isinstance(reply, list):
        return None
    added, asked = moment(reply[0]), reply[1]
    if asked is not None and asked.isdigit() and 0 < int(asked[:16]) < LAST_MS:
        return int(asked[:16])
    return None if added is None or member.due is None else max(0, member.due.ms - added.ms)
