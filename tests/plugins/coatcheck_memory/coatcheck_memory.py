"""Payloads in a dictionary: a whole third-party backend, to copy. It knows `storage_backends`, and nothing else."""

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from storage_backends.base import Admit, Bytes, Context, Ownership, PayloadMissing, StorageUnavailable, Stored
from storage_backends.reference import Reference

ADMIT_ABOVE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class MemoryOptions:
    """What `COATCHECK_BACKENDS__<NAME>__…` can say; a mistake is a ValueError that names the field."""

    capacity: Bytes = 256 * 1024 * 1024  #: of all payloads together
    concurrency: int = 8

    def __post_init__(self) -> None:
        if self.capacity < 1:
            raise ValueError("capacity: must be at least 1")


class MemoryBackend:
    Options = MemoryOptions
    inline = False
    inflight_bytes = 64 * 1024 * 1024

    def __init__(self, name: str, options: MemoryOptions) -> None:
        self.name = name
        self.concurrency = options.concurrency
        self._capacity_bytes = options.capacity
        self._payloads: dict[Reference, bytes] = {}
        self._owner: str | None = None

    @classmethod
    def from_options(cls, name: str, options: MemoryOptions, context: Context) -> Self:
        return cls(name, options)

    async def start(self, installation: str) -> Ownership:
        self._owner = self._owner or installation
        return Ownership(owner=self._owner, ours=self._owner == installation)

    async def put(self, reference: Reference, payload: bytes) -> None:
        if sum(map(len, self._payloads.values())) + len(payload) > self._capacity_bytes:
            raise StorageUnavailable(f"put {reference}: full", backend=self.name, reference=reference)
        self._payloads[reference] = payload

    async def get(self, reference: Reference, admit: Admit | None = None) -> bytes:
        if reference not in self._payloads:
            raise PayloadMissing(f"get {reference}: not here", backend=self.name, reference=reference)
        payload = self._payloads[reference]
        if admit is not None and len(payload) > ADMIT_ABOVE_BYTES:
            await admit(len(payload))
        return payload

    async def delete(self, references: Sequence[Reference]) -> None:
        for reference in references:
            self._payloads.pop(reference, None)

    async def scan(self, days: Iterable[str] | None = None) -> AsyncIterator[Stored]:
        wanted = None if days is None else set(days)
        for reference, payload in list(self._payloads.items()):
            if wanted is None or reference.due_day in wanted:
                yield Stored(reference, len(payload), stored_at_ms=0)

    async def check(self) -> None:
        """A dictionary is always there."""

    async def aclose(self) -> None:
        self._payloads.clear()
