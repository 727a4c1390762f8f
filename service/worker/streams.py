"""`StreamSource`: a ready stream as a source of jobs. What a worker has in hand is pending under its name in the group.

Two consumers of the group are no workers: under `~returned` are entries that came back from other hands, which are the
next to be taken, and under `~suspects` those with which more than one worker died. See scripts/lib/hands.lua.
"""

import json
from collections.abc import Sequence
from typing import Any, Final

from redis.exceptions import ResponseError

from service.transport import Encodable
from service.worker.ready import ReadySource
from service.worker.source import Entry

_RETURNED: Final = b"~returned"
_SUSPECTS: Final = b"~suspects"
_NO_GROUP: Final = frozenset({"NOGROUP", "WRONGTYPE"})  #: what Redis answers then, the first word
_HOLDINGS_A_PAGE: Final = 100
_MAX_MS: Final = 2**53 - 1


class StreamSource(ReadySource):
    """An entry's handle is its id. At any time there may be no such group: whoever takes a turn makes it."""

    async def wait(self) -> Entry | None:
        worker = self.worker
        block_ms = max(1, round(self._block_s * 1000))  # 0 would be for ever
        group, stream = str(self._of.group), self._of.ready
        reading = ("XREADGROUP", "GROUP", group, worker, "COUNT", 1, "BLOCK", block_ms, "STREAMS", stream, ">")
        read = await self._sleeper.pop(reading, self._block_s)
        if read is None:
            return None
        [[_, [(id_, fields)]]] = read
        return _entry(id_, fields, worker)

    async def holdings(self) -> list[Entry]:
        found: list[Entry] = []
        first = b"-"
        while True:
            page = (first, "+", _HOLDINGS_A_PAGE, self.worker)
            ids = [id_ for id_, *_ in await self._pending(page)]
            for id_, read in zip(ids, await self._read(ids), strict=True):
                # What was deleted by hand is let go of like any other that is no job.
                found.append(_entry(id_, read[0][1] if read else [], self.worker))
            if len(ids) < _HOLDINGS_A_PAGE:
                return found
            first = b"(" + ids[-1]

    async def _held(self, worker: str) -> int:
        return (await self._counts()).get(worker.encode(), 0)

    async def _apart(self) -> int:
        counts = await self._counts()
        return counts.get(_RETURNED, 0) + counts.get(_SUSPECTS, 0)

    async def _counts(self) -> dict[bytes, int]:
        """By name, how many entries are pending."""
        told = await self._pending()
        return {name: int(count) for name, count in told[3] or []} if told else {}

    async def _pending(self, page: tuple[Encodable, ...] = ()) -> Any:
        """What XPENDING says; nothing where there is no such group."""
        try:
            return (await self._runner.read([("XPENDING", self._of.ready, str(self._of.group), *page)]))[0]
        except ResponseError as error:
            if str(error).partition(" ")[0] in _NO_GROUP:
                return []
            raise

    async def _read(self, ids: Sequence[bytes]) -> list[Any]:
        return await self._runner.read([("XRANGE", self._of.ready, id_, id_) for id_ in ids]) if ids else []

    def _entries(self, taken: Sequence[Any]) -> list[Entry]:
        return [_entry(id_, fields, self.worker) for id_, fields in zip(taken[::2], taken[1::2], strict=True)]


def _entry(id_: bytes, fields: Sequence[bytes], worker: str) -> Entry:
    """Whatever somebody else has added: one that has no payload is for the dead set, with all that it has."""
    told = dict(zip(fields[::2], fields[1::2], strict=True))
    payload, due = told.get(b"payload"), told.get(b"due", b"")
    if payload is None:
        texts = [field.decode("utf-8", "backslashreplace") for field in fields]
        return Entry(id_, json.dumps(texts).encode(), worker, fault="the stream's entry has no field `payload`")
    due_ms = int(due) if due.isdigit() and len(due) <= 16 and int(due) <= _MAX_MS else None
    return Entry(id_, payload, worker, due_ms=due_ms)
