"""What a payload backend must do, and the four ways in which it may fail."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from storage_backends.reference import Reference

#: Awaited with a payload's length in bytes before its body is read: the caller's chance to wait until it has room.
Admit = Callable[[int], Awaitable[None]]


class StorageError(Exception):
    """A backend could not do what it was asked to.

    `kind` is a short constant for logs, metrics and the job's trouble record; the message names backend and reference and
    the remote's error code, never a payload, a credential or a URL with either. The cause is chained.
    """

    kind: ClassVar[str]

    def __init__(self, message: str, *, backend: str, reference: Reference | None = None) -> None:
        super().__init__(message)
        self.backend = backend
        self.reference = reference


class PayloadMissing(StorageError):
    """There is no payload under this reference, and the backend is sure. Permanent; says nothing about its health."""

    kind = "payload_missing"


class PayloadCorrupt(StorageError):
    """The payload's length or checksum is not that of what was put. Permanent."""

    kind = "payload_corrupt"


class AccessDenied(StorageError):
    """The backend refuses us, or hides a missing payload behind a refusal (S3 without ListBucket): `check` tells which."""

    kind = "access_denied"


class StorageUnavailable(StorageError):
    """Timed out, refused, 5xx, throttled: retry later.

    `throttled` says that the backend itself asked us to slow down. `maybe_done` says that a write may have happened, or
    may happen yet: the request was sent, and its answer was not seen.
    """

    kind = "storage_unavailable"

    def __init__(
        self,
        message: str,
        *,
        backend: str,
        reference: Reference | None = None,
        throttled: bool = False,
        maybe_done: bool = False,
    ) -> None:
        super().__init__(message, backend=backend, reference=reference)
        self.throttled = throttled
        self.maybe_done = maybe_done


class Misconfigured(Exception):
    """This backend can never work as configured (a bucket that does not exist): do not start."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One payload that `scan` met."""

    reference: Reference
    size_bytes: int
    stored_at_ms: int  #: by the store's clock


@dataclass(frozen=True, slots=True)
class Ownership:
    """Whose prefix this is. `owner` is the installation id found in the store, None if it could not be read."""

    owner: str | None
    ours: bool


@runtime_checkable
class StorageBackend(Protocol):
    """Where payload bytes live. Safe for concurrent use from one event loop.

    tests/contract/test_storage_contract.py is this docstring in executable form: a backend is done when that file passes
    against it. Every method may raise AccessDenied and StorageUnavailable besides what it names. A backend contains no
    metrics, no breaker and no logging: those are wrapped around it (service/storage.py).
    """

    name: str  #: first field of the references that this backend resolves
    inline: bool  #: True: `schedule` writes the body with the reference in one step, and `put` is not called by producers
    concurrency: int  #: how many calls it serves at once; more callers wait

    async def start(self, installation: str) -> Ownership:
        """Get ready to serve, and claim the place for this installation if nobody has. Idempotent.

        Raises Misconfigured if it can never work as configured. AccessDenied and StorageUnavailable are no obstacle to the
        service's start: the caller calls again later.
        """

    async def put(self, reference: Reference, payload: bytes) -> None:
        """Store `payload` under `reference`; durable when this returns. The same reference again overwrites.

        Raises StorageUnavailable, with `maybe_done` if the payload may be there, or may yet arrive.
        """

    async def get(self, reference: Reference, admit: Admit | None = None) -> bytes:
        """The payload last `put` under `reference`, unchanged.

        `admit` is awaited with its length before a body of more than 64 KiB is read; what it raises ends the call.
        Raises PayloadMissing, PayloadCorrupt.
        """

    async def delete(self, references: Sequence[Reference]) -> None:
        """Delete these payloads, any number of them; what is not there is no error. When this returns, all are gone.

        Raises StorageError if any of them may still be there; calling again with all of them is right.
        """

    async def check(self) -> None:
        """Read the backend's own marker, and return if that works: can payloads be read here at all? One try, no retries.

        Raises AccessDenied, StorageUnavailable.
        """

    async def aclose(self) -> None:
        """Release threads and connections. Idempotent. No call is under way or follows."""


@runtime_checkable
class Scannable(Protocol):
    """The optional capability that sweeping and rebuilding need."""

    def scan(self, days: Iterable[str] | None = None) -> AsyncIterator[Stored]:
        """Every payload of this backend, in no promised order, without reading bodies; objects that are no payload are skipped.

        `days` (`YYYY-MM-DD`, UTC) limits it to payloads whose reference is due on one of these days.
        """
