"""The HTTP application: called directly, or behind a real server on loopback for what only sockets can show."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import uvicorn

from service.api import create_app
from service.census import Census
from service.child import HOST
from service.services import Health, JobServices, Services
from service.transport import client
from storage_backends.redis_inline import RedisInline
from tests.kit.desk import MAX_PAYLOAD_BYTES, Desk


@dataclass
class Probes:
    """What /healthz and /readyz are told."""

    alive: Health = field(default_factory=lambda: Health(ok=True))
    ready: Health = field(default_factory=lambda: Health(ok=True))


def app_of(desk: Desk, probes: Probes | None = None, *, jobs: bool = True, body_budget_bytes: int = 2**26) -> Any:
    """The application as wiring makes it, over a desk's parts."""
    told = probes or Probes()

    async def ready() -> Health:
        return told.ready

    return create_app(
        Services(
            metrics=desk.metrics,
            refresh=lambda: asyncio.sleep(0),
            alive=lambda: told.alive,
            ready=ready,
            jobs=_jobs(desk, body_budget_bytes) if jobs else None,
            version="0",
        )
    )


def _jobs(desk: Desk, body_budget_bytes: int) -> JobServices:
    inline = RedisInline("redis", client(desk.pool), lambda queue: desk.keys.queue(queue).bodies)
    census = Census(desk.transport, desk.keys, desk.ledger.clock)
    backends = {"redis": inline, "s3": desk.guarded}
    return JobServices(desk.producer, desk.ledger, backends, MAX_PAYLOAD_BYTES, census, body_budget_bytes)


@asynccontextmanager
async def calling(app: Any) -> AsyncIterator[httpx.AsyncClient]:
    """Calls `app` directly. What it raises is answered, as a server does, and not raised here."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://coatcheck") as caller:
        yield caller


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def served(app: Any) -> AsyncIterator[int]:
    """The loopback port on which a real server answers for `app`."""
    with socket.create_server((HOST, 0)) as listener:
        server = _Server(uvicorn.Config(app, lifespan="off", log_config=None, access_log=False))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            await serving


@dataclass(frozen=True)
class Said:
    """What a server said on a connection, until it closed it or had said enough."""

    status: int
    text: str


async def talk(port: int, *parts: bytes) -> Said:
    """Sends `parts` on a connection of their own, and reads one answer. The server's closing meanwhile is no error."""
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        for part in parts:
            writer.write(part)
            with contextlib.suppress(ConnectionError):
                await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"HTTP/1.1 100"):
            head = await reader.readuntil(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if line)
        body = await reader.readexactly(int(fields[b"content-length"]))
        return Said(int(head.split(b" ")[1]), (head + body).decode())
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
