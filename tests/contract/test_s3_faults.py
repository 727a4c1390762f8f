"""S3 going wrong while the service runs: real servers that vanish, refuse, hang, lie and break off."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from service.child import HOST
from storage_backends.base import AccessDenied, PayloadMissing, StorageBackend, StorageUnavailable
from storage_backends.reference import Reference, new_uuid
from storage_backends.s3 import S3Backend
from storage_backends.s3_keys import S3Keys
from storage_backends.s3_options import S3Options
from tests.contract.conftest import INSTALLATION
from tests.kit.proxy import Proxy
from tests.kit.s3_servers import S3Server, running_moto
from tests.kit.waiting import eventually

TIMEOUT_S = 1.0
KIB = 1024


class Place:
    """A bucket, the backend that reads it through a proxy, and the proxy."""

    def __init__(self, server: S3Server, proxy: Proxy, **options: Any) -> None:
        self.server = server
        self.proxy = proxy
        self.bucket = server.new_bucket()
        chosen = {"endpoint_url": proxy.http_url, "timeout": TIMEOUT_S, "concurrency": 2, **options}
        self.backend = S3Backend("s3", S3Options(**server.options(self.bucket, **chosen)))


@pytest.fixture
async def place(moto: S3Server) -> AsyncIterator[Place]:
    async with Proxy(moto.port) as proxy:
        made = Place(moto, proxy)
        await eventually(lambda: _started(made.backend), described="a client is made, however busy the machine")
        yield made
        await proxy.heal()
        await made.backend.aclose()


async def _started(backend: S3Backend) -> bool:
    try:
        return (await backend.start(INSTALLATION)).ours
    except StorageUnavailable:
        return False


def a_reference() -> Reference:
    return Reference("s3", "emails", 1_764_547_200_000, new_uuid())


async def admit_all(length_bytes: int) -> None:
    assert length_bytes > 64 * KIB


async def unavailable(backend: StorageBackend, *, put_maybe_done: bool, throttled: bool = False) -> None:
    """Every call says so, and a put tells whether it may have arrived."""
    reference = a_reference()
    calls = [backend.put(reference, b"x"), backend.get(reference), backend.delete([reference]), backend.check()]
    for call, writes in zip(calls, (True, False, True, False), strict=True):
        with pytest.raises(StorageUnavailable) as caught:
            await call
        assert caught.value.throttled == throttled
        assert caught.value.maybe_done == (writes and put_maybe_done)


async def test_a_bucket_that_vanished_buries_nobody(s3_server: S3Server) -> None:
    """Were it PayloadMissing, every job that comes due would be dead until somebody restores the bucket."""
    bucket = s3_server.new_bucket()
    backend = S3Backend("s3", S3Options(**s3_server.options(bucket)))
    await backend.start(INSTALLATION)
    s3_server.client.delete_object(Bucket=bucket, Key="v1/s3/INSTALLATION")
    s3_server.client.delete_bucket(Bucket=bucket)
    await unavailable(backend, put_maybe_done=False)
    await backend.aclose()


@pytest.mark.parametrize(
    "variables",
    [
        {"AWS_SECRET_ACCESS_KEY": "wrong"},
        {"AWS_ACCESS_KEY_ID": "nobody"},
        {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""},
        {"AWS_SECRET_ACCESS_KEY": ""},
    ],
    ids=["wrong secret", "unknown key", "no credentials", "half of them"],
)
async def test_credentials_that_are_refused_are_a_denial(
    rclone: S3Server, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    """An operator must act, and is told so; no job is charged, for `check` is denied, too."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    backend = S3Backend("s3", S3Options(**rclone.options(rclone.new_bucket())))
    reference = a_reference()
    calls = [backend.start(INSTALLATION), backend.check(), backend.get(reference), backend.put(reference, b"x")]
    for call in [*calls, backend.delete([reference])]:
        with pytest.raises(AccessDenied):
            await call
    await backend.aclose()


async def test_a_server_that_was_killed_is_unavailable(tmp_path: Path) -> None:
    """What was refused a connection has certainly not arrived."""
    with running_moto(tmp_path) as server:
        backend = S3Backend("s3", S3Options(**server.options(server.new_bucket())))
        await backend.start(INSTALLATION)
        server.child.kill()
        with pytest.raises(StorageUnavailable):  # perhaps on a connection that the dead server had
            await backend.check()
        await unavailable(backend, put_maybe_done=False)
        await backend.aclose()


async def test_a_server_that_never_answers_is_given_up_in_time(place: Place) -> None:
    place.proxy.blackhole()
    begun = time.monotonic()
    await unavailable(place.backend, put_maybe_done=True)
    assert time.monotonic() - begun < 4 * 2 * TIMEOUT_S  # four calls, each over within its limit


@pytest.mark.parametrize("silence", [True, False], ids=["silence", "closed"])
async def test_a_put_whose_answer_is_lost_may_have_happened(place: Place, silence: bool) -> None:
    """The producer must not tell its caller that nothing was kept."""
    reference = a_reference()
    trap = place.proxy.swallow_reply(b"the payload", then_silence=silence)
    with pytest.raises(StorageUnavailable) as caught:
        await place.backend.put(reference, b"the payload")
    await trap
    assert caught.value.maybe_done
    assert await place.backend.get(reference) == b"the payload"


async def test_only_large_bodies_are_announced(place: Place) -> None:
    """Asking before each small put costs a round trip, and a second in a store that does not answer the question."""
    seen: list[bytes] = []

    def announced(request: bytes) -> bool:
        seen.append(request)
        return False

    trap = place.proxy.swallow_reply(announced)
    await place.backend.put(a_reference(), b"x" * KIB)
    assert not any(b"100-continue" in request for request in seen)
    await place.backend.put(a_reference(), b"x" * 2 * KIB * KIB)
    assert any(b"100-continue" in request for request in seen)
    trap.disarm()


@pytest.mark.parametrize("size_kib", [32, 256])
async def test_half_a_body_is_no_payload(place: Place, size_kib: int) -> None:
    """In both hops: a small body is read where it was opened, a large one after it was admitted."""
    reference, payload = a_reference(), b"x" * size_kib * KIB
    await place.backend.put(reference, payload)
    trap = place.proxy.truncate_reply(size_kib * KIB // 2, b"GET /")
    with pytest.raises(StorageUnavailable) as caught:
        await place.backend.get(reference, admit_all if size_kib > 64 else None)
    await trap
    assert (caught.value.throttled, caught.value.maybe_done) == (False, False)
    assert await place.backend.get(reference) == payload


async def test_a_body_that_drips_is_given_up_in_time(moto: S3Server) -> None:
    """Each read succeeds, so that no socket timeout ends it: the call as a whole has a limit, and so has its thread."""
    gone = asyncio.Event()
    async with _dripping(64 * KIB, gone) as port:
        options = moto.options("payloads", endpoint_url=f"http://{HOST}:{port}", timeout=TIMEOUT_S)
        backend = S3Backend("s3", S3Options(**options))
        begun = time.monotonic()
        with pytest.raises(StorageUnavailable):
            await backend.get(a_reference())
        assert time.monotonic() - begun < 4 * TIMEOUT_S
        await asyncio.wait_for(gone.wait(), timeout=10)
        await backend.aclose()


@asynccontextmanager
async def _dripping(bytes_per_s: int, gone: asyncio.Event) -> AsyncIterator[int]:
    """The port of a server whose answer goes on for ever, in small pieces; `gone` when its client has left."""

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 16777216\r\n\r\n")
        with suppress(ConnectionError):
            while True:
                writer.write(b"x" * (bytes_per_s // 20))
                await writer.drain()
                await asyncio.sleep(0.05)  # its pace
        gone.set()

    server = await asyncio.start_server(drip, HOST)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@pytest.mark.parametrize(
    ("status", "code", "throttled", "maybe_done"),
    [("503 Slow Down", "SlowDown", True, False), ("500 Internal Server Error", "InternalError", False, True)],
)
async def test_each_call_is_one_request(
    place: Place, status: str, code: str, throttled: bool, maybe_done: bool
) -> None:
    """botocore's own retries would hide an outage from the breaker, and prolong a throttling."""
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>m</Message></Error>"
    reply = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()
    for _ in range(4):
        place.proxy.forge_reply(reply)
    await unavailable(place.backend, put_maybe_done=maybe_done, throttled=throttled)
    assert place.proxy.armed() == []


async def test_a_page_of_a_proxy_that_lost_its_store_buries_nobody(place: Place) -> None:
    """An ingress without its store answers 404 to everything; only NoSuchKey is about the object."""
    for page in (b"404 page not found", b"<html><body>not here</body></html>", b""):
        reply = b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(page), page)
        place.proxy.forge_reply(reply)
        with pytest.raises(StorageUnavailable):
            await place.backend.get(a_reference())


async def test_a_deletion_that_names_failures_is_no_success(place: Place) -> None:
    """S3 answers 200 to a batch in which objects were refused; the trash would forget them."""
    first, second = a_reference(), a_reference()
    for code, kind in (("AccessDenied", AccessDenied), ("InternalError", StorageUnavailable)):
        error = f"<Error><Key>{S3Keys('s3').key_of(second)}</Key><Code>{code}</Code><Message>m</Message></Error>"
        body = f"<?xml version='1.0'?><DeleteResult>{error}</DeleteResult>"
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\nConnection: close"
        place.proxy.forge_reply(f"{head}\r\n\r\n{body}".encode(), b"POST /")
        with pytest.raises(kind) as caught:
            await place.backend.delete([first, second])
        assert caught.value.reference == second


async def test_a_deletion_carries_the_checksum_that_every_store_knows(place: Place) -> None:
    """S3 takes any; many another store answers MissingContentMD5, and nothing would ever be deleted there."""
    trap = place.proxy.swallow_reply(b"Content-MD5: ")
    with pytest.raises(StorageUnavailable):
        await place.backend.delete([a_reference()])
    await trap


async def test_one_object_that_cannot_be_deleted_does_not_shield_the_others(place: Place) -> None:
    """The batches after it are tried; otherwise one refusal keeps thousands in the bucket."""
    references = [a_reference() for _ in range(1_500)]
    await place.backend.put(references[-1], b"x")
    body = "<?xml version='1.0'?><DeleteResult><Error><Key>k</Key><Code>AccessDenied</Code></Error></DeleteResult>"
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\nConnection: close"
    place.proxy.forge_reply(f"{head}\r\n\r\n{body}".encode(), b"POST /")
    with pytest.raises(AccessDenied):
        await place.backend.delete(references)
    with pytest.raises(PayloadMissing):
        await place.backend.get(references[-1])


async def test_check_does_not_wait_behind_calls_that_hang(place: Place) -> None:
    """Were it to queue behind them, a busy store would pass for a dead one, and open the breaker."""
    reference = a_reference()
    await place.backend.put(reference, b"x")
    traps = [place.proxy.swallow_request(reference.uuid.encode(), then_silence=True) for _ in range(2)]
    hanging = [asyncio.create_task(place.backend.get(reference)) for _ in range(2)]
    for trap in traps:
        await trap
    await asyncio.wait_for(place.backend.check(), timeout=TIMEOUT_S)
    for outcome in await asyncio.gather(*hanging, return_exceptions=True):
        assert isinstance(outcome, StorageUnavailable)


async def test_cancelled_calls_keep_their_threads_and_no_more(place: Place) -> None:
    """Callers come and go; what hangs in threads stays within `concurrency`, and the pool recovers."""
    place.proxy.blackhole()
    for _ in range(5):
        tasks = [asyncio.create_task(place.backend.get(a_reference())) for _ in range(10)]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    ours = [thread for thread in threading.enumerate() if thread.name.startswith("coatcheck-s3-call")]
    assert len(ours) <= place.backend.concurrency
    await place.proxy.heal()
    await eventually(lambda: _checks(place.backend), described="the pool serves again")


async def _checks(backend: S3Backend) -> bool:
    try:
        await backend.get(a_reference())
    except PayloadMissing:
        return True
    except StorageUnavailable:
        return False
    return False


async def test_closing_does_not_hold_up_the_loop(place: Place) -> None:
    """A thread that hangs is waited for while everything else goes on."""
    trap = place.proxy.swallow_request(b"GET /", then_silence=True)
    task = asyncio.create_task(place.backend.get(a_reference()))
    await trap
    task.cancel()
    closing = asyncio.create_task(place.backend.aclose())
    turns = 0
    while not closing.done():
        await asyncio.sleep(0.001)
        turns += 1
    assert turns > 10
