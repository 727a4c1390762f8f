"""`ListSource`: a ready list as a source of jobs. What a worker has in hand is in a list of its own."""

from collections.abc import Sequence
from typing import Final

from service.worker.ready import ReadySource
from service.worker.source import Entry

_HOLDINGS_A_PAGE: Final = 100


class ListSource(ReadySource):
    """An entry's handle is its payload: of two that are equal, it does not matter which is which."""

    async def wait(self) -> Entry | None:
        worker = self.worker
        command = ("BLMOVE", self._of.ready, self._of.inflight(worker), "RIGHT", "RIGHT", self._block_s)
        payload = await self._sleeper.pop(command, self._block_s)
        return None if payload is None else Entry(payload, payload, worker)

    async def holdings(self) -> list[Entry]:
        found: list[Entry] = []
        while True:
            page = ("LRANGE", self._of.inflight(self.worker), len(found), len(found) + _HOLDINGS_A_PAGE - 1)
            payloads = (await self._runner.read([page]))[0]
            found += self._entries(payloads)
            if len(payloads) < _HOLDINGS_A_PAGE:
                return found

    async def _held(self, worker: str) -> int:
        return int((await self._runner.read([("LLEN", self._of.inflight(worker))]))[0])

    async def _apart(self) -> int:
        return int((await self._runner.read([("LLEN", self._of.suspects)]))[0])

    def _entries(self, taken: Sequence[bytes]) -> list[Entry]:
        return [Entry(payload, payload, self.worker) for payload in taken]
