"""Payloads in Redis itself, in the hash that `schedule` and `claim` know: the backend called `redis`."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from redis import exceptions

from storage_backends.base import (
    AccessDenied,
    Admit,
    Context,
    Misconfigured,
    Ownership,
    PayloadMissing,
    StorageError,
    StorageUnavailable,
)
from storage_backends.reference import Reference

if TYPE_CHECKING:
    from redis.asyncio import Redis

ADMIT_ABOVE_BYTES: Final = 64 * 1024
BATCH: Final = 1_000  #: fields a HDEL; Redis serves nobody else meanwhile


@dataclass(frozen=True, slots=True)
class RedisInlineOptions:
    """There is nothing to set: the client is the service's own."""


class RedisInline:
    """The inline backend. The producer never calls its `put`: `schedule` writes body and reference in one step.

    What else it offers serves `GET …/payload` and the contract suite. It does not own the client, and leaves it open.
    Whoever uses it hands in a client whose own retries are off, and which answers bytes.
    """

    Options = RedisInlineOptions
    inline = True
    concurrency = 64
    inflight_bytes = 128 * 1024 * 1024

    def __init__(self, name: str, redis: "Redis", bodies_key: Callable[[str], str]) -> None:
        if name != "redis":
            raise Misconfigured(f"the inline backend is called 'redis', not {name!r}")
        self.name = name
        self._redis = redis
        self._bodies_key = bodies_key

    @classmethod
    def from_options(cls, name: str, options: RedisInlineOptions, context: Context) -> Self:
        if context.redis is None or context.bodies_key is None:
            raise Misconfigured("the inline backend needs the service's Redis client and the keys of its bodies")
        return cls(name, context.redis, context.bodies_key)

    async def start(self, installation: str) -> Ownership:
        """Redis holds the installation's own id: what lies beside it is ours."""
        return Ownership(owner=installation, ours=True)

    async def put(self, reference: Reference, payload: bytes) -> None:
        with self._translated(reference):
            await self._redis.hset(self._bodies_key(reference.queue), reference.uuid, payload)

    async def get(self, reference: Reference, admit: Admit | None = None) -> bytes:
        """Asks for the length in a call of its own only if there is an `admit`: the hash has no other way to tell."""
        key = self._bodies_key(reference.queue)
        if admit is not None:
            with self._translated(reference):
                length = await self._redis.hstrlen(key, reference.uuid)
            if length > ADMIT_ABOVE_BYTES:
                await admit(length)
        with self._translated(reference):
            payload = await self._redis.hget(key, reference.uuid)
        if payload is None:
            raise PayloadMissing(f"no payload for {reference}", backend=self.name, reference=reference)
        return payload  # type: ignore[return-value]  # bytes: the client does not decode

    async def delete(self, references: Sequence[Reference]) -> None:
        by_queue: defaultdict[str, list[str]] = defaultdict(list)
        for reference in references:
            by_queue[reference.queue].append(reference.uuid)
        with self._translated():
            for queue, uuids in by_queue.items():
                for at in range(0, len(uuids), BATCH):
                    await self._redis.hdel(self._bodies_key(queue), *uuids[at : at + BATCH])

    async def check(self) -> None:
        with self._translated():
            await self._redis.ping()

    async def aclose(self) -> None:
        """Nothing: the client belongs to whoever made it."""

    @contextmanager
    def _translated(self, reference: Reference | None = None) -> Iterator[None]:
        try:
            yield
        except exceptions.RedisError as error:
            if (translated := self._translate(error, reference)) is None:
                raise
            raise translated from error

    def _translate(self, error: exceptions.RedisError, reference: Reference | None) -> StorageError | None:
        message = f"{type(error).__name__} from Redis" + (f" for {reference}" if reference else "")
        if isinstance(error, _DENIED):
            return AccessDenied(message, backend=self.name, reference=reference)
        if isinstance(error, _REFUSED):
            return StorageUnavailable(message, backend=self.name, reference=reference)
        if isinstance(error, _UNANSWERED):
            return StorageUnavailable(message, backend=self.name, reference=reference, maybe_done=True)
        return None


#: Looked at in this order: some of the denials are connection errors by inheritance.
_DENIED: Final = (
    exceptions.AuthenticationError,
    exceptions.AuthorizationError,
    exceptions.NoPermissionError,
    exceptions.AuthenticationWrongNumberOfArgsError,
)
#: The command was certainly not carried out.
_REFUSED: Final = (
    exceptions.BusyLoadingError,
    exceptions.MaxConnectionsError,
    exceptions.OutOfMemoryError,
    exceptions.ReadOnlyError,
    exceptions.ClusterDownError,
    exceptions.TryAgainError,
)
#: It may have been: redis-py says ConnectionError both for a refused connection and for a lost answer.
_UNANSWERED: Final = (exceptions.ConnectionError, exceptions.TimeoutError)
