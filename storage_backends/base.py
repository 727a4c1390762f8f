"""What a payload backend must do, and the four ways in which it may fail."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import MISSING, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol, Self, runtime_checkable

from storage_backends.reference import Reference

if TYPE_CHECKING:
    from redis.asyncio import Redis

#: Awaited with a payload's length in bytes before its body is read: the caller's chance to wait until it has room.
Admit = Callable[[int], Awaitable[None]]

#: How an option is spelt in the settings, for the generic validation of every backend's `Options`.
Seconds = Annotated[float, "seconds"]  #: a duration: `10s` in the settings, 10.0 here
Bytes = Annotated[int, "bytes"]  #: a size
Secret = Annotated[str, "secret"]  #: never shown, neither in the list of effective settings nor in an error


def option(meaning: str, default: Any = MISSING) -> Any:
    """A field of an `Options` dataclass, with its meaning for the table of settings. Without a default it is needed."""
    return field(default=default, metadata={"meaning": meaning})


class StorageError(Exception):
    """A backend could not do what it was asked to.

    `kind` is a short constant for logs, metrics and the job's trouble record; the message names backend and reference
    and the remote's error code, never a payload, a credential or a URL with either. The cause is chained.
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
    """The backend refuses us, or hides a missing payload behind it (S3 without ListBucket): `check` tells which."""

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


@dataclass(frozen=True, slots=True)
class Context:
    """What wiring hands to a backend that is built from its options."""

    redis: "Redis | None" = None  #: the service's own client, its retries off, answering bytes
    bodies_key: Callable[[str], str] | None = None  #: queue -> the hash that holds its inline payloads


@runtime_checkable
class StorageBackend(Protocol):
    """Where payload bytes live. Safe for concurrent use from one event loop.

    tests/contract/test_storage_contract.py is this docstring in executable form: a backend is done when that file
    passes against it. Every method may raise AccessDenied and StorageUnavailable besides what it names; an error that
    the backend has no name for is passed on as it is. A cancelled call may still take effect, and holds its place
    among `concurrency` until it ends. A backend contains no metrics, no breaker and no logging: those are wrapped
    around it (service/storage.py).
    """

    name: str  #: first field of the references that this backend resolves
    inline: (
        bool  #: True: `schedule` writes the body with the reference in one step, and `put` is not called by producers
    )
    concurrency: int  #: how many calls it serves at once; more callers wait
    inflight_bytes: int  #: how many bytes of payloads its callers should have under way at once

    async def start(self, installation: str) -> Ownership:
        """Get ready to serve, and claim the place for this installation if nobody has. Idempotent, and cheap when
        repeated: whoever is about to delete what no reference names asks again whose place it is.

        Raises Misconfigured if it can never work as configured. AccessDenied and StorageUnavailable are no obstacle to
        the service's start: the caller calls again later.
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
        """Read the backend's own marker, and return if that works: can payloads be read here at all? One try.

        Never waits behind `put` and `get`. Raises AccessDenied, StorageUnavailable.
        """

    async def aclose(self) -> None:
        """Release threads and connections. Idempotent. No call is under way or follows."""


class BackendKind(StorageBackend, Protocol):
    """What a class must offer besides, to be registered in the entry-point group `coatcheck.storage_backends`.

    `Options` is a frozen dataclass: a field for each setting `COATCHECK_BACKENDS__<NAME>__<FIELD>`, with its type and
    its default. Values arrive converted and of the field's type; what only the backend can judge, `__post_init__`
    refuses with a ValueError that names the field.
    """

    Options: ClassVar[type[Any]]

    @classmethod
    def from_options(cls, name: str, options: Any, context: Context) -> Self:
        """The backend called `name`. Opens nothing and does not block: that is `start`'s part. Raises Misconfigured."""


@runtime_checkable
class Scannable(Protocol):
    """The optional capability that sweeping and rebuilding need."""

    def scan(self, days: Iterable[str] | None = None) -> AsyncIterator[Stored]:
        """Every payload of this backend, in no promised order, without reading bodies; what is no payload is skipped.

        `days`, spelt as `Reference.due_day`, limits it to payloads whose reference is due on one of these days.
        """
