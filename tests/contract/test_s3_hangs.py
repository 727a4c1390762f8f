"""S3 that does not answer: every call has an end, and nothing waits behind one that hangs."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from service.child import HOST
from storage_backends.base import PayloadMissing, StorageUnavailable
from storage_backends.reference import Reference, new_uuid
from storage_backends.s3 import S3Backend
from storage_backends.s3_options import S3Options
from tests.contract.conftest import TIMEOUT_S, Place, unavailable
from tests.kit.s3_servers import S3Server
from tests.kit.waiting import eventually

KIB = 1024


def a_reference() -> Reference:
    return Reference("s3", "emails", 1_764_547_200_000, new_uuid())


async def test_a_server_that_never_answers_is_given_up_in_time(place: Place) -> None:
    place.proxy.blackhole()
    begun = time.monotonic()
    await unavailable(place.backend, put_maybe_done=True)
    assert time.monotonic() - begun < 4 * 2 * TIMEOUT_S  # four calls, each over within its limit


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
