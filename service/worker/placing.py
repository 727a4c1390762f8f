"""Where the envelope of a retried or a dead job goes: by the router, as any job's."""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from service.errors import BackendUnavailable, RetryLater
from service.ledger import Ledger
from service.router import INLINE, Facts, StorageRouter
from service.uploads import NotStored, Uploads
from service.worker.source import Placed
from storage_backends.reference import Reference, new_uuid

_PAUSE_MIN_S: Final = 0.05
_PAUSE_MAX_S: Final = 2.0

log = structlog.get_logger(__name__)


class Placing:
    """A job is never refused here. Its bytes are in Redis already: if its backend is away, there they stay."""

    def __init__(
        self,
        ledger: Ledger,
        router: StorageRouter,
        uploads: Uploads,
        memory_ratio: Callable[[], float],
    ) -> None:
        self._ledger = ledger
        self._router = router
        self._uploads = uploads
        self._memory_ratio = memory_ratio

    async def place(self, queue: str, envelope: bytes, wait_ms: int, *, kept_ms: int | None = None) -> Placed:
        """For a job that is due in `wait_ms`, and whose payload is kept for `kept_ms`. Waits while Redis is away."""
        pause_s = _PAUSE_MIN_S
        while True:
            try:
                return await self._placed(queue, envelope, wait_ms, wait_ms if kept_ms is None else kept_ms)
            except RetryLater as error:
                log.warning("placing waits", queue=queue, code=error.code)
            await asyncio.sleep(pause_s)
            pause_s = min(_PAUSE_MAX_S, pause_s * 2)

    async def discard(self, jobs: list[Placed]) -> None:
        """Payloads that nobody will need."""
        await self._uploads.discard([each.reference for each in jobs if each.put_at_ms is not None])

    async def _placed(self, queue: str, envelope: bytes, wait_ms: int, kept_ms: int) -> Placed:
        due_ms, uuid = await self._ledger.now_ms() + wait_ms, new_uuid()
        backend = self._backend(queue, uuid, len(envelope), kept_ms)
        if backend != INLINE:
            reference = Reference(backend, queue, due_ms, uuid)
            try:
                return Placed(reference, None, await self._uploads.put(reference, envelope))
            except NotStored as error:
                log.warning("kept in Redis", queue=queue, backend=backend, error=type(error.__cause__).__name__)
        return Placed(Reference(INLINE, queue, due_ms, uuid), envelope)

    def _backend(self, queue: str, uuid: str, size_bytes: int, kept_ms: int) -> str:
        facts = Facts(
            payload_bytes=size_bytes,
            delay_ms=kept_ms,
            tenant=None,
            queue=queue,
            uuid=uuid,
            available=self._uploads.available(),
            redis_memory_ratio=self._memory_ratio(),
        )
        try:
            return self._router.decide(facts).backend
        except BackendUnavailable:
            return INLINE
