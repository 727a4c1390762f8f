"""Coatcheck's own: `<prefix>:{q}:delayed`, reference -> due, ms; inline payloads in `<prefix>:{q}:bodies`.

A reference made by us tells when the job was accepted (UUIDv7) and when it was due then.
"""

from collections.abc import Sequence
from typing import ClassVar

from service.advisor import memory
from service.advisor.delayed import Job, Member, number, told
from service.inspector.reading import ReadOnly
from service.keys import Keys
from service.members import reference_of, text_of
from service.router import INLINE
from storage_backends.reference import Reference

_QUEUES = 1000  #: that the index leads to; SCAN finds the rest


class Coatcheck:
    name: ClassVar[str] = "coatcheck"
    per_ms: ClassVar[float] = 1.0

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    def queue_of(self, key: str) -> str | None:
        queue = self._keys.queue_of(key)
        return queue if queue is not None and key == self._keys.queue(queue).delayed else None

    async def registered(self, reader: ReadOnly) -> list[str]:
        (queues,) = await reader.send([("ZRANGE", self._keys.queues, 0, _QUEUES - 1)])
        return [] if isinstance(queues, Exception) else [self._keys.queue(text_of(it)).delayed for it in queues]

    async def owns(self, reader: ReadOnly, key: str) -> bool:
        return True

    async def jobs(self, reader: ReadOnly, key: str, members: Sequence[Member], now_ms: int) -> list[Job]:
        queue = self.queue_of(key) or ""
        bodies = self._keys.queue(queue).bodies
        references = [reference_of(text_of(it.text), queue) for it in members]
        inline = [it.uuid for it in references if it and it.backend == INLINE]
        replies = await reader.send(
            [command for uuid in inline for command in (("HSTRLEN", bodies, uuid), ("HEXISTS", bodies, uuid))]
        )
        found = dict(zip(inline, zip(replies[::2], replies[1::2], strict=True), strict=True))
        return [
            _job(member, it, found.get(it.uuid) if it else None, now_ms)
            for member, it in zip(members, references, strict=True)
        ]


def _job(member: Member, reference: Reference | None, body: tuple[object, object] | None, now_ms: int) -> Job:
    waits_ms, fault = told(member, now_ms)
    if reference is None:
        held = memory.member_bytes(len(member.text))
        return Job(held_bytes=held, waits_ms=waits_ms, fault="a member is no reference of its queue")
    accepted_ms = _made_ms(reference)
    delay_ms = None if accepted_ms is None else max(0, reference.ts_ms - accepted_ms)
    if body is None:
        return Job(0, memory.REFERENCE_BYTES, delay_ms, waits_ms, offloaded=True, fault=fault)
    size, there = body
    if there != 1:
        return Job(0, memory.REFERENCE_BYTES, delay_ms, waits_ms, fault="a reference has no payload")
    return Job(number(size), memory.inline_bytes(number(size)), delay_ms, waits_ms, fault=fault)


def _made_ms(reference: Reference) -> int | None:
    """When a UUIDv7 was made (RFC 9562, section 5.7); None for another UUID."""
    digits = reference.uuid.replace("-", "")
    return int(digits[:12], 16) if digits[12] == "7" else None
