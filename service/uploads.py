"""Uploads: payloads on their way into backends, before their job is accepted, and what becomes of those left over."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

import structlog

from service.ledger import Ledger
from service.metrics import Metrics
from storage_backends.base import AccessDenied, StorageUnavailable
from storage_backends.reference import Reference

#: A put whose answer was not seen may still arrive: what is deleted before it does would stay for ever.
UNSEEN_WAIT_MS: Final = 3_600_000

log = structlog.get_logger(__name__)


class Store(Protocol):
    """What is needed of a backend: service.guarded.Guarded has it."""

    concurrency: int  #: puts at once; more callers wait here, where an open breaker lets them go at once

    @property
    def available(self) -> bool:
        """Whether the next payload may be put here."""

    async def put(self, reference: Reference, payload: bytes) -> None:
        """As StorageBackend.put; ends in time."""


class NotStored(Exception):
    """The payload is not in its backend, or if it is, it is noted for deletion."""


class Uploads:
    """Puts payloads, a bounded number at once, and discards those that no job came to need."""

    def __init__(self, ledger: Ledger, stores: Mapping[str, Store], metrics: Metrics) -> None:
        self._ledger = ledger
        self._stores = dict(stores)
        self._metrics = metrics
        self._slots = {name: asyncio.Semaphore(store.concurrency) for name, store in stores.items()}

    def available(self) -> frozenset[str]:
        """Names of the backends that can be written to now."""
        return frozenset(name for name, store in self._stores.items() if store.available)

    async def put(self, reference: Reference, payload: bytes) -> int:
        """Returns Redis's time just before the put, ms.

        Raises NotStored, the backend's error as its cause, and RedisUnavailable.
        """
        async with self._slots[reference.backend]:
            put_at_ms = await self._ledger.now_ms()
            try:
                await self._stores[reference.backend].put(reference, payload)
            except BaseException as error:
                if _maybe_stored(error):
                    await self.discard([reference], wait_ms=UNSEEN_WAIT_MS)
                if not isinstance(error, Exception):
                    raise
                raise NotStored(f"{reference} could not be stored") from error
        return put_at_ms

    async def discard(self, references: Iterable[Reference], *, wait_ms: int = 0) -> None:
        """Note payloads without a job for deletion in `wait_ms`. What cannot be noted is counted, and the sweeper's."""
        by_queue: defaultdict[str, list[Reference]] = defaultdict(list)
        for reference in references:
            by_queue[reference.queue].append(reference)
        for queue, some in by_queue.items():
            try:
                await self._ledger.discard(queue, some, wait_ms=wait_ms)
            except Exception as error:  # noqa: BLE001  whatever it is, it must not hide why they are discarded
                for reference in some:
                    self._metrics.upload_abandoned(reference.backend)
                log.warning("uploads left to the sweeper", queue=queue, count=len(some), error=type(error).__name__)


def _maybe_stored(error: BaseException) -> bool:
    """Whether the payload may be there, or yet arrive. An error without a name may mean either."""
    if isinstance(error, StorageUnavailable):
        return error.maybe_done
    return not isinstance(error, AccessDenied)
