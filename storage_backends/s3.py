"""Payloads as objects in S3, or in any store that speaks its protocol.

An object is the payload and nothing else; its length and sha256 are user metadata, held against what `get` reads.

    s3.py            the backend: what happens on the event loop
    s3_objects.py    what blocks, in threads.py's threads
    s3_errors.py     what an error means
    s3_keys.py       where a payload lies
    s3_options.py    what can be configured
"""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Final, Self, TypeVar

from storage_backends.base import (
    AccessDenied,
    Admit,
    Context,
    Misconfigured,
    Ownership,
    PayloadCorrupt,
    PayloadMissing,
    StorageUnavailable,
    Stored,
)
from storage_backends.reference import Reference
from storage_backends.s3_keys import SHARDS, S3Keys
from storage_backends.s3_options import BucketMissing, S3Options
from storage_backends.threads import Overdue, Threads

if TYPE_CHECKING:
    from types_boto3_s3.type_defs import ObjectTypeDef

    from storage_backends.s3_objects import Opened, S3Objects

T = TypeVar("T")

ADMIT_ABOVE_BYTES: Final = 64 * 1024  #: smaller bodies are read in the hop that opened them
MARKER_MAX_BYTES: Final = 1024  #: an installation's id is much shorter; what is longer is not read at all
DELETE_BATCH: Final = 1_000  #: what DeleteObjects takes at most


class S3Backend:
    """One bucket, or a prefix of one. `concurrency` calls are served at once; each is one request, tried once.

    A connection is given up after `timeout` without an answer, a call after twice that, the wait for a free thread
    included. A call that was cancelled goes on in its thread (see Threads): a `put` may still arrive.
    """

    Options = S3Options
    inline = False

    def __init__(self, name: str, options: S3Options) -> None:
        self.name = name
        self.concurrency = options.concurrency
        self.inflight_bytes = options.inflight_bytes
        self._options = options
        self._keys = S3Keys(name, options.prefix)
        self._limit_s = 2 * options.timeout
        self._threads = Threads(f"coatcheck-{name}", options.concurrency, self._limit_s)
        self._making = Lock()
        self._made: S3Objects | None = None

    @classmethod
    def from_options(cls, name: str, options: S3Options, context: Context) -> Self:
        return cls(name, options)

    async def start(self, installation: str) -> Ownership:
        """Reads the marker, after writing it if there is none; of two that write at once, the later one owns.

        Raises Misconfigured if there is no such bucket. Without s3:ListBucket S3 denies that a marker is absent: the
        first start of an installation needs that permission.
        """
        try:
            owner = await self._owner()
            if owner is None:
                await self._claim(installation)
                owner = await self._owner()
        except BucketMissing as error:
            raise Misconfigured(f"backend {self.name!r}: there is no bucket {self._options.bucket!r}") from error
        except PayloadCorrupt:
            owner = None
        return Ownership(owner=owner, ours=owner == installation)

    async def put(self, reference: Reference, payload: bytes) -> None:
        """`maybe_done` after a timeout, a lost answer or a 5xx; not if the request was never sent, or refused."""
        key = self._keys.key_of(reference)
        await self._call("put", lambda s3: s3.put(key, payload, reference=reference), reference, writes=True)

    async def get(self, reference: Reference, admit: Admit | None = None) -> bytes:
        """One hop into a thread for a small body, or without `admit`; one more for a body that was admitted.

        While `admit` waits no thread is held, but a connection is, and the store may lose patience with it.
        """
        key = self._keys.key_of(reference)

        def begin(s3: "S3Objects") -> "bytes | Opened":
            opened = s3.open(key, reference=reference)
            small = admit is None or opened.length_bytes <= ADMIT_ABOVE_BYTES
            return s3.read(opened) if small else opened

        found = await self._call("get", begin, reference, abandoned=_close_result)
        if isinstance(found, bytes):
            return found
        return await self._admitted(reference, found, admit)

    async def delete(self, references: Sequence[Reference]) -> None:
        """A thousand a request. A batch that names failures does not keep the following ones from being tried.

        Of several kinds of failure the one is raised that concerns the backend most.
        """
        failures: list[Exception] = []
        for at in range(0, len(references), DELETE_BATCH):
            keys = {self._keys.key_of(reference): reference for reference in references[at : at + DELETE_BATCH]}
            failures += await self._call("delete", partial(_delete, keys), writes=True)
        if failures:
            raise min(failures, key=_gravity)

    async def scan(self, days: Iterable[str] | None = None) -> AsyncIterator[Stored]:
        """A page of up to 1,000 objects a call; nothing is held between two pages."""
        of_days = (None,) if days is None else days
        for prefix in [self._keys.prefix_of(shard, day) for day in of_days for shard in SHARDS]:
            pages = await self._call("scan", partial(_pages, prefix))
            while (page := await self._call("scan", partial(self._next, pages))) is not None:
                for stored in page:
                    yield stored

    async def check(self) -> None:
        """An absent or damaged marker is an answer, too: the bucket can be read. `start` writes an absent one."""
        with suppress(PayloadMissing, PayloadCorrupt):
            await self._call("check", self._read_marker, spare=True)

    async def aclose(self) -> None:
        """Waits for abandoned calls, up to twice `timeout`; one that hangs for longer ends in its own time."""
        await self._threads.aclose()
        if self._made is not None:
            self._made.close()

    async def _owner(self) -> str | None:
        try:
            marker = await self._call("start", self._read_marker)
        except PayloadMissing:
            return None
        return marker.decode(errors="replace").strip()

    async def _claim(self, installation: str) -> None:
        key, marker = self._keys.installation, installation.encode()
        await self._call("start", lambda s3: s3.put(key, marker, doing="start"), writes=True)

    async def _admitted(self, reference: Reference, opened: "Opened", admit: Admit | None) -> bytes:
        try:
            if admit is not None:
                await admit(opened.length_bytes)
        except BaseException:
            opened.close()
            raise

        def close_unread(future: Future[bytes]) -> None:
            if future.cancelled():  # otherwise `read` is at it, and closes
                opened.close()

        return await self._call("get", lambda s3: s3.read(opened), reference, abandoned=close_unread)

    def _read_marker(self, s3: "S3Objects") -> bytes:
        opened = s3.open(self._keys.installation, doing="check")
        if opened.length_bytes > MARKER_MAX_BYTES:
            opened.close()
            raise PayloadCorrupt(f"{self._keys.installation} is no marker of ours", backend=self.name)
        return s3.read(opened)

    def _next(self, pages: "Iterator[list[ObjectTypeDef]]", _: "S3Objects") -> list[Stored] | None:
        page = next(pages, None)
        return None if page is None else [stored for each in page if (stored := self._stored(each))]

    def _stored(self, each: "ObjectTypeDef") -> Stored | None:
        reference = self._keys.reference_of(each["Key"])
        if reference is None:
            return None
        return Stored(reference, each["Size"], int(each["LastModified"].timestamp() * 1000))

    async def _call(
        self,
        doing: str,
        work: "Callable[[S3Objects], T]",
        reference: Reference | None = None,
        *,
        writes: bool = False,
        spare: bool = False,
        abandoned: Callable[[Future[T]], None] | None = None,
    ) -> T:
        try:
            return await self._threads.run(lambda: work(self._objects()), spare=spare, abandoned=abandoned)
        except Overdue as overdue:
            raise StorageUnavailable(
                f"{doing} {reference or ''}: no answer within {self._limit_s:g} s",
                backend=self.name,
                reference=reference,
                maybe_done=writes and overdue.begun,
            ) from overdue

    def _objects(self) -> "S3Objects":
        """In a thread; the first caller makes it, the others wait."""
        with self._making:
            if self._made is None:
                from storage_backends.s3_objects import S3Objects  # noqa: PLC0415  # brings boto3 along

                self._made = S3Objects(self.name, self._options)
            return self._made


def _delete(keys: dict[str, Reference], s3: "S3Objects") -> list[Exception]:
    return s3.delete(keys)


def _pages(prefix: str, s3: "S3Objects") -> "Iterator[list[ObjectTypeDef]]":
    return s3.pages(prefix)


def _close_result(future: "Future[bytes | Opened]") -> None:
    if not future.cancelled() and future.exception() is None:
        found = future.result()
        if not isinstance(found, bytes):
            found.close()


def _gravity(error: Exception) -> int:
    if isinstance(error, StorageUnavailable):
        return 0 if error.throttled else 1
    return 2 if isinstance(error, AccessDenied) else 3
