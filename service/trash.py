"""Emptying the trash: payloads whose job has ended are deleted from their backend, and only then forgotten.

Whoever collects references has them put off for PUT_OFF_MS in the same step: so processes share the work, and what one
that dies had in hand, or one that had no room passed over, comes again.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from service.clock import Clock
from service.errors import RetryLater
from service.guarded import BreakerOpen
from service.ledger import Ledger
from service.members import reference_of
from service.metrics import Metrics
from storage_backends.base import StorageBackend, StorageError, StorageUnavailable
from storage_backends.reference import Reference

PUT_OFF_MS: Final = 60_000
#: With this process's breaker open: soon a neighbour, whose breaker may be closed, has its turn.
NEIGHBOUR_PUT_OFF_MS: Final = 5_000
#: A backend that this process does not know may be configured again, or elsewhere.
UNKNOWN_PUT_OFF_MS: Final = 3_600_000
_LONGEST_PUT_OFF_MS: Final = 3_600_000
_PAGE: Final = 1000  #: references a collection, and a deletion: S3 takes no more in one request
_ROOM: Final = 20 * _PAGE  #: references in memory; 20,000 take about 6 MB
#: Requests for one page: a few objects that are locked cost eleven each, one by one; a whole page of them is put off.
_TRIES: Final = 40
#: For one page, and one more deletion: a loop's round that takes minutes counts as one that hangs.
_PAGE_S: Final = 30.0

log = structlog.get_logger(__name__)


class Trash:
    """`collect` is called where the index shows that trash is due; `round` is a loop's round."""

    def __init__(self, ledger: Ledger, backends: Mapping[str, StorageBackend], metrics: Metrics, clock: Clock) -> None:
        self._ledger = ledger
        self._backends = backends
        self._metrics = metrics
        self._clock = clock
        self._waiting: deque[Reference] = deque()
        self._failing_since_ms: dict[str, int] = {}  # by backend, by Redis's clock
        self.wake: Callable[[], None] = lambda: (
            None
        )  #: called when there is something to delete; wiring sets the loop's

    async def collect(self, queue: str) -> None:
        """Takes up what is due in this queue's trash; the rest comes with the next look."""
        members = await self._ledger.collect_trash(queue, _PAGE, put_off_ms=PUT_OFF_MS)
        if len(self._waiting) + len(members) > _ROOM:
            return
        strange: list[str] = []
        for member in members:
            reference = reference_of(member, queue)
            if reference is None:
                strange.append(member)
            else:
                self._waiting.append(reference)
        if strange:
            # No script of ours put them there, and what another queue's reference names may be in use.
            log.warning("trash held members that are no references of its queue", queue=queue, count=len(strange))
            await self._ledger.empty_trash(queue, strange)
        self.wake()

    async def round(self) -> float | None:
        """Deletes up to a page a backend. Returns 0 if there is more to delete, else None."""
        pages: dict[str, list[Reference]] = {}
        left: list[Reference] = []
        while self._waiting:
            reference = self._waiting.popleft()
            page = pages.setdefault(reference.backend, [])
            (page if len(page) < _PAGE else left).append(reference)
        self._waiting.extendleft(reversed(left))
        results = await asyncio.gather(
            *(self._delete(name, page) for name, page in pages.items()), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return 0.0 if self._waiting else None

    async def _delete(self, name: str, page: list[Reference]) -> None:
        backend = self._backends.get(name)
        if backend is None:
            await self._put_off(page, UNKNOWN_PUT_OFF_MS)
            return
        undeleted, error = await self._tried(backend, page)
        if undeleted and error is not None:
            await self._failed(name, undeleted, error)
        else:
            self._failing_since_ms.pop(name, None)
        refused = set(undeleted)
        deleted = [reference for reference in page if reference not in refused]
        self._metrics.trash_deleted(name, len(deleted))
        for queue, references in _by_queue(deleted).items():
            await self._ledger.empty_trash(queue, [str(reference) for reference in references])

    async def _tried(self, backend: StorageBackend, page: list[Reference]) -> tuple[list[Reference], Exception | None]:
        """What could not be deleted, and why. Halves a page until what is refused no longer holds up the rest."""
        parts, undeleted, last = [page], [], None
        ends_s = self._clock.monotonic_s() + _PAGE_S
        for _ in range(_TRIES):
            if not parts or self._clock.monotonic_s() > ends_s:
                break
            part = parts.pop()
            try:
                await backend.delete(part)
            except Exception as error:  # noqa: BLE001  a backend may raise what it has no name for
                last = error
                if isinstance(error, StorageUnavailable):
                    undeleted += part
                    break
                half = len(part) // 2
                parts += [part[half:], part[:half]] if half else []
                undeleted += [] if half else part
        return undeleted + [reference for part in parts for reference in part], last

    async def _failed(self, name: str, page: list[Reference], error: Exception) -> None:
        """Put off for as long again as the backend has been failing: by time, for a busy minute has many rounds."""
        now_ms = self._ledger.clock.now_ms()
        failing_ms = now_ms - self._failing_since_ms.setdefault(name, now_ms)
        self._metrics.trash_failed(name, len(page))
        kind = error.kind if isinstance(error, StorageError) else type(error).__name__
        log.warning("payloads could not be deleted yet", backend=name, kind=kind, count=len(page))
        if isinstance(error, BreakerOpen):  # it was not asked, and may be away for this process alone
            wait_ms = min(PUT_OFF_MS, max(NEIGHBOUR_PUT_OFF_MS, failing_ms))
        else:
            wait_ms = min(_LONGEST_PUT_OFF_MS, max(PUT_OFF_MS, failing_ms))
        await self._put_off(page, wait_ms)

    async def _put_off(self, page: list[Reference], wait_ms: int) -> None:
        """Best effort: what Redis does not hear of comes again after PUT_OFF_MS."""
        try:
            for queue, references in _by_queue(page).items():
                await self._ledger.discard(queue, references, wait_ms=wait_ms)
        except RetryLater as error:
            log.warning("deletions could not be put off further", code=error.code)


def _by_queue(page: list[Reference]) -> dict[str, list[Reference]]:
    grouped: dict[str, list[Reference]] = {}
    for reference in page:
        grouped.setdefault(reference.queue, []).append(reference)
    return grouped
