"""Emptying the trash: payloads whose job has ended are deleted from their backend, and only then forgotten.

Whoever collects references has them put off for PUT_OFF_MS in the same step: so processes share the work, and what one that dies
had in hand, or one that had no room passed over, comes again.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from service.errors import RetryLater
from service.ledger import Ledger
from service.metrics import Metrics
from storage_backends.base import StorageBackend, StorageError
from storage_backends.reference import InvalidName, Reference

PUT_OFF_MS: Final = 60_000
#: A backend that this process does not know may be configured again, or elsewhere.
UNKNOWN_PUT_OFF_MS: Final = 3_600_000
_LONGEST_PUT_OFF_MS: Final = 3_600_000
_PAGE: Final = 1000  #: references a collection, and a deletion: S3 takes no more in one request
_ROOM: Final = 20 * _PAGE  #: references in memory; 20,000 take about 6 MB

log = structlog.get_logger(__name__)


class Trash:
    """`collect` is called where the index shows that trash is due; `round` is a loop's round."""

    def __init__(self, ledger: Ledger, backends: Mapping[str, StorageBackend], metrics: Metrics) -> None:
        self._ledger = ledger
        self._backends = backends
        self._metrics = metrics
        self._waiting: deque[tuple[str, Reference]] = deque()
        self._failures: dict[str, int] = {}  # by backend, in a row
        self.wake: Callable[[], None] = (
            _nobody  #: called when there is something to delete; wiring sets it to the loop's
        )

    async def collect(self, queue: str) -> None:
        """Takes up what is due in this queue's trash; the rest comes with the next look."""
        members = await self._ledger.collect_trash(queue, _PAGE, put_off_ms=PUT_OFF_MS)
        if len(self._waiting) + len(members) > _ROOM:
            return
        strange: list[str] = []
        for member in members:
            try:
                self._waiting.append((queue, Reference.parse(member)))
            except InvalidName:
                strange.append(member)
        if strange:
            log.warning("trash held members that are no references", queue=queue, count=len(strange))
            await self._ledger.empty_trash(queue, strange)
        self.wake()

    async def round(self) -> None:
        """Deletes everything taken up so far."""
        by_backend: dict[str, list[tuple[str, Reference]]] = {}
        while self._waiting:
            queue, reference = self._waiting.popleft()
            by_backend.setdefault(reference.backend, []).append((queue, reference))
        await asyncio.gather(*(self._delete_all(name, jobs) for name, jobs in by_backend.items()))

    async def _delete_all(self, name: str, jobs: list[tuple[str, Reference]]) -> None:
        for start in range(0, len(jobs), _PAGE):
            page = jobs[start : start + _PAGE]
            backend = self._backends.get(name)
            if backend is None:
                await self._put_off(page, UNKNOWN_PUT_OFF_MS)
                continue
            try:
                await backend.delete([reference for _, reference in page])
            except StorageError as error:
                await self._failed(name, page, error)
            else:
                self._failures.pop(name, None)
                self._metrics.trash_deleted(name, len(page))
                for queue, members in _by_queue(page).items():
                    await self._ledger.empty_trash(queue, [str(member) for member in members])

    async def _failed(self, name: str, page: list[tuple[str, Reference]], error: StorageError) -> None:
        failures = self._failures.get(name, 0) + 1
        self._failures[name] = failures
        self._metrics.trash_failed(name, len(page))
        log.warning("payloads could not be deleted yet", backend=name, kind=error.kind, count=len(page))
        await self._put_off(page, min(_LONGEST_PUT_OFF_MS, PUT_OFF_MS * 2 ** min(failures - 1, 10)))

    async def _put_off(self, page: list[tuple[str, Reference]], wait_ms: int) -> None:
        """Best effort: what Redis does not hear of comes again after PUT_OFF_MS."""
        try:
            for queue, members in _by_queue(page).items():
                await self._ledger.discard(queue, members, wait_ms=wait_ms)
        except RetryLater as error:
            log.warning("deletions could not be put off further", code=error.code)


def _by_queue(page: list[tuple[str, Reference]]) -> dict[str, list[Reference]]:
    grouped: dict[str, list[Reference]] = {}
    for queue, reference in page:
        grouped.setdefault(queue, []).append(reference)
    return grouped


def _nobody() -> None:
    """Before wiring."""
