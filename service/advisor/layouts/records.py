"""What libraries with a hash for each job share: the sizes of its record, read without reading it."""

from collections.abc import Sequence
from typing import Any

from service.advisor import memory
from service.advisor.delayed import Job, Member, number, told, usage
from service.inspector.reading import ReadOnly


async def jobs_of(
    reader: ReadOnly, members: Sequence[Member], keys: Sequence[str], field: str, now_ms: int
) -> list[Job]:
    """One for each member, whose record is the hash at its key and whose payload is in `field`. No delay is told."""
    replies = await reader.send([command for key in keys for command in (("HSTRLEN", key, field), usage(key))])
    return [
        _job(member, size, held, now_ms)
        for member, size, held in zip(members, replies[::2], replies[1::2], strict=True)
    ]


def _job(member: Member, size: Any, held: Any, now_ms: int) -> Job:
    waits_ms, fault = told(member, now_ms)
    if isinstance(size, Exception):
        fault = "a record is of another type"
    elif held is None:
        fault = "an id has no record"
    elif not size:
        fault = "a record has no payload"
    held_bytes = memory.member_bytes(len(member.text)) + number(held)
    return Job(number(size), held_bytes, None, waits_ms, fault=fault)
