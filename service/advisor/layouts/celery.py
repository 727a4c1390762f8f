"""Celery over Kombu: `unacked_index`, delivery tag -> when a worker took it, unix seconds; the message in `unacked`.

A task with an ETA or a countdown waits in a worker's hands: taken from its list at once and kept in these two until its
time has come. They hold all other unacknowledged tasks as well, so that only those whose header `eta` lies ahead of
their taking count. A `global_keyprefix` stands in front of both names.
"""

import json
from collections.abc import Sequence
from typing import Any, ClassVar

from service.advisor import memory
from service.advisor.delayed import READ_BYTES, Job, Member, number
from service.advisor.moments import written
from service.inspector.reading import ReadOnly
from service.inspector.times import Moment
from service.keys import Keys

_INDEX, _MESSAGES = "unacked_index", "unacked"
_TOO_LARGE = "a message is too large to be read; taken for a delayed one"


class Celery:
    name: ClassVar[str] = "celery"
    per_ms: ClassVar[float] = 0.001

    def __init__(self, keys: Keys) -> None:
        pass

    def queue_of(self, key: str) -> str | None:
        """One for all queues."""
        return key.removesuffix(_INDEX) + _MESSAGES if key.endswith(_INDEX) else None

    async def registered(self, reader: ReadOnly) -> list[str]:
        return [_INDEX]

    async def owns(self, reader: ReadOnly, key: str) -> bool:
        return True

    async def jobs(self, reader: ReadOnly, key: str, members: Sequence[Member], now_ms: int) -> list[Job]:
        messages = self.queue_of(key) or ""
        sizes = await reader.send([("HSTRLEN", messages, it.text) for it in members])
        small = [it.text for it, size in zip(members, sizes, strict=True) if 0 < number(size) <= READ_BYTES]
        read = dict(zip(small, await reader.send([("HGET", messages, tag) for tag in small]), strict=True))
        return [_job(it, size, read.get(it.text), now_ms) for it, size in zip(members, sizes, strict=True)]


def _job(member: Member, size: Any, message: Any, now_ms: int) -> Job:
    if isinstance(size, Exception):
        return Job(fault="the messages are of another type", delayed=False)
    if not size:
        return Job(fault="a delivery tag has no message", delayed=False)
    held = memory.member_bytes(len(member.text)) + memory.field_bytes(size)
    if size > READ_BYTES:
        return Job(size, held, fault=_TOO_LARGE)
    try:
        eta = _eta(message)
    except (ValueError, TypeError, LookupError, RecursionError):
        return Job(fault="a message does not parse", delayed=False)
    if eta is None or (member.due is not None and eta.ms <= member.due.ms):
        return Job(delayed=False)
    delay_ms = None if member.due is None else eta.ms - member.due.ms
    return Job(size, held, delay_ms, eta.ms - now_ms)


def _eta(message: bytes) -> Moment | None:
    """Of a message as Kombu keeps it: `[{"headers": {"eta": …}, …}, exchange, routing key]`."""
    headers = json.loads(message)[0]["headers"]
    if not isinstance(headers, dict):
        raise TypeError("headers are no object")
    return written(headers.get("eta"))
