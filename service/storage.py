"""Decorators of the backend Protocol, put on in this order: Guarded(Metered(backend)).

Metered   counts and times what reaches the backend, and how it ended
Guarded   keeps the backend's breaker: asks only when it may, and says after a failure whose it was
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

from service.clock import Clock
from storage_backends.base import (
    AccessDenied,
    Admit,
    Ownership,
    PayloadCorrupt,
    PayloadMissing,
    Scannable,
    StorageBackend,
    StorageUnavailable,
    Stored,
)
from storage_backends.reference import Reference


class Meter(Protocol):
    """What Metered needs of service.metrics.Metrics."""

    def storage_operation(self, backend: str, operation: str, outcome: str, seconds: float) -> None: ...

    def storage_payload(self, backend: str, operation: str, size_bytes: int) -> None: ...


class Decorator:
    """A backend around a backend: passes on what it does not override.

    It has `scan` if, and only if, what it wraps has it: isinstance(decorated, Scannable) stays true to the backend.
    """

    def __init__(self, inner: StorageBackend) -> None:
        self._inner = inner
        self.name = inner.name
        self.inline = inner.inline
        self.concurrency = inner.concurrency
        self.inflight_bytes = inner.inflight_bytes
        if isinstance(inner, Scannable):
            self._scannable: Scannable = inner
            self.scan = self._scan

    async def start(self, installation: str) -> Ownership:
        return await self._inner.start(installation)

    async def put(self, reference: Reference, payload: bytes) -> None:
        await self._inner.put(reference, payload)

    async def get(self, reference: Reference, admit: Admit | None = None) -> bytes:
        return await self._inner.get(reference, admit)

    async def delete(self, references: Sequence[Reference]) -> None:
        await self._inner.delete(references)

    async def check(self) -> None:
        await self._inner.check()

    async def aclose(self) -> None:
        await self._inner.aclose()

    def _scan(self, days: Iterable[str] | None = None) -> AsyncIterator[Stored]:
        return self._scannable.scan(days)


class _Operation:
    """One call while it runs: its end, if known before it comes, and for how long it did not wait for the backend."""

    outcome: str | None = None
    waited_s = 0.0


class Metered(Decorator):
    """Every call that reaches the backend, counted by its end and timed, without the time that `admit` waits."""

    def __init__(self, inner: StorageBackend, meter: Meter, clock: Clock) -> None:
        super().__init__(inner)
        self._meter = meter
        self._clock = clock

    async def start(self, installation: str) -> Ownership:
        with self._operation("start"):
            return await self._inner.start(installation)

    async def put(self, reference: Reference, payload: bytes) -> None:
        with self._operation("put"):
            await self._inner.put(reference, payload)
        self._meter.storage_payload(self.name, "put", len(payload))

    async def get(self, reference: Reference, admit: Admit | None = None) -> bytes:
        with self._operation("get") as operation:
            payload = await self._inner.get(reference, admit and self._timed(operation, admit))
        self._meter.storage_payload(self.name, "get", len(payload))
        return payload

    async def delete(self, references: Sequence[Reference]) -> None:
        with self._operation("delete"):
            await self._inner.delete(references)

    async def check(self) -> None:
        with self._operation("check"):
            await self._inner.check()

    async def _scan(self, days: Iterable[str] | None = None) -> AsyncIterator[Stored]:
        with self._operation("scan"):
            async for stored in self._scannable.scan(days):
                yield stored

    def _timed(self, operation: _Operation, admit: Admit) -> Admit:
        async def timed(size_bytes: int) -> None:
            began_s = self._clock.monotonic_s()
            operation.outcome = "cancelled"  # unless it comes to its end: what admit raises is not the backend's doing
            await admit(size_bytes)
            operation.outcome = None
            operation.waited_s += self._clock.monotonic_s() - began_s

        return timed

    @contextmanager
    def _operation(self, name: str) -> Iterator[_Operation]:
        operation = _Operation()
        began_s = self._clock.monotonic_s()
        outcome = "ok"
        try:
            yield operation
        except BaseException as error:
            outcome = operation.outcome or outcome_of(error)
            raise
        finally:
            seconds = self._clock.monotonic_s() - began_s - operation.waited_s
            self._meter.storage_operation(self.name, name, outcome, seconds)


_OUTCOMES: Final[tuple[tuple[type[Exception], str], ...]] = (
    (PayloadMissing, "missing"),
    (PayloadCorrupt, "corrupt"),
    (AccessDenied, "denied"),
    (StorageUnavailable, "unavailable"),
    (Exception, "error"),
)


def outcome_of(error: BaseException) -> str:
    """The `outcome` of storage_operations_total. A timeout of ours cancels the call: `cancelled`."""
    if isinstance(error, StorageUnavailable) and error.throttled:
        return "throttled"
    return next((outcome for kind, outcome in _OUTCOMES if isinstance(error, kind)), "cancelled")
