"""Bounded: no call of a backend lasts for ever, whatever the backend's own patience and repeats."""

import asyncio
from collections.abc import Sequence
from typing import Final

from service.storage import Decorator
from storage_backends.base import Admit, StorageBackend, StorageUnavailable
from storage_backends.reference import Reference

#: For one call of `delete`, a thousand payloads at most: S3 takes about 1 s for them.
DELETE_TIMEOUT_S: Final = 30.0


class NoRoom(StorageUnavailable):
    """The payload was not read, because `admit` found no room for it in time: our own affair, not the backend's."""

    kind = "no_room"


class Bounded(Decorator):
    """A backend whose `get`, `put` and `delete` end in time; `start` and `check` are bounded where they are shared.

    The time that `admit` waits is bounded by `fetch_timeout_s` once more: a lease must outlast both.
    """

    def __init__(
        self,
        inner: StorageBackend,
        *,
        fetch_timeout_s: float,
        put_timeout_s: float,
        delete_timeout_s: float = DELETE_TIMEOUT_S,
    ) -> None:
        super().__init__(inner)
        self._fetch_timeout_s = fetch_timeout_s
        self._put_timeout_s = put_timeout_s
        self._delete_timeout_s = delete_timeout_s

    async def put(self, reference: Reference, payload: bytes) -> None:
        """As the backend's, within `put_timeout_s`; after that StorageUnavailable, and the payload may be there."""
        try:
            async with asyncio.timeout(self._put_timeout_s) as limit:
                await self._inner.put(reference, payload)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise StorageUnavailable(
                f"{self.name}: {reference} was not stored within {self._put_timeout_s} s",
                backend=self.name,
                reference=reference,
                maybe_done=True,
            ) from error

    async def get(self, reference: Reference, admit: Admit | None = None) -> bytes:
        """As the backend's, within `fetch_timeout_s`: else StorageUnavailable, or NoRoom if `admit` took that long."""
        try:
            async with asyncio.timeout(self._fetch_timeout_s) as limit:
                return await self._inner.get(reference, admit and self._patient(limit, admit, reference))
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise StorageUnavailable(
                f"{self.name}: {reference} was not read within {self._fetch_timeout_s} s",
                backend=self.name,
                reference=reference,
            ) from error

    async def delete(self, references: Sequence[Reference]) -> None:
        """As the backend's, within `delete_timeout_s`; after that StorageUnavailable, and some may be deleted."""
        try:
            async with asyncio.timeout(self._delete_timeout_s) as limit:
                await self._inner.delete(references)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise StorageUnavailable(
                f"{self.name}: {len(references)} payloads were not deleted within {self._delete_timeout_s} s",
                backend=self.name,
                maybe_done=True,
            ) from error

    def _patient(self, limit: asyncio.Timeout, admit: Admit, reference: Reference) -> Admit:
        """`admit`, with the fetch's time standing still: waiting for our own room must not look like a slow backend."""

        async def patient(size_bytes: int) -> None:
            now_s = asyncio.get_running_loop().time
            ends_s = limit.when()
            if ends_s is None or limit.expired():
                return await admit(size_bytes)
            left_s = ends_s - now_s()
            limit.reschedule(None)
            try:
                async with asyncio.timeout(self._fetch_timeout_s):
                    await admit(size_bytes)
            except TimeoutError as error:
                raise NoRoom(
                    f"{self.name}: no room for {size_bytes} bytes", backend=self.name, reference=reference
                ) from error
            finally:
                limit.reschedule(now_s() + left_s)

        return patient
