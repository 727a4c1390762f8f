"""One process: the HTTP server and the service's loops, until told to stop.

listening, alive, not ready ─► Redis there and good ─► backends started, loops running: ready
                                                          │ SIGTERM, SIGINT
exit 0 ◄─ closed ◄─ jobs in hand finished or given back, HTTP answers finished ◄─ not ready, no more claims
"""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

import structlog
import uvicorn

from service.errors import CannotStart
from service.wiring import Service

_BACKLOG: Final = 2048
#: HTTP answers under way at a stop get so long, but no longer than the grace period and 1 s; then they are cancelled.
_HTTP_GRACE_S: Final = 5

log = structlog.get_logger(__name__)


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: they would end the process by the signal, not with exit code 0."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises CannotStart."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise CannotStart(
            f"cannot listen on {host}:{port}: {error.strerror}; COATCHECK_HTTP__PORT is the port"
        ) from error


async def serve(
    service: Service, app: Any, listener: socket.socket, *, meanwhile: Callable[[], Awaitable[None]] | None = None
) -> None:
    """Serves `app` and runs `service` until SIGTERM or SIGINT, or, if there is one, until `meanwhile` is done.

    `meanwhile` begins when the service has started; it is cancelled at a stop, and its end awaited. Raises CannotStart,
    what `meanwhile` raises, and what ended the HTTP server, once all is shut.
    """
    server = _Server(
        uvicorn.Config(
            app,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=min(_HTTP_GRACE_S, int(service.settings.dispatcher.grace_s) + 1),
        )
    )
    host, port = listener.getsockname()[:2]
    log.info("listening", host=host, port=port)  # port 0 took one that nobody knows yet
    http = asyncio.create_task(server.serve(sockets=[listener]), name="http")
    work = asyncio.create_task(_work(service, meanwhile), name="work")
    stopped = asyncio.create_task(_signalled(), name="signals")
    results: list[object] = []
    try:
        await asyncio.wait([http, work, stopped], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
        work.cancel()
        results += await asyncio.gather(work, stopped, return_exceptions=True)  # probes are answered while it ends
        server.should_exit = True
        results += await asyncio.gather(service.stop_dispatching(), http, return_exceptions=True)
        await service.close()
    for result in results:
        if isinstance(result, Exception):
            raise result


async def _work(service: Service, meanwhile: Callable[[], Awaitable[None]] | None) -> None:
    await service.start()
    if meanwhile is None:
        await asyncio.Event().wait()
    else:
        await meanwhile()


async def _signalled() -> None:
    """A second SIGTERM changes nothing: who signals a group of processes, and forwards, sends two. A second Ctrl-C ends
    it on the spot.
    """
    loop, told = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    try:
        await told.wait()
        log.info("told to stop")
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        if not told.is_set():
            loop.remove_signal_handler(signal.SIGTERM)
