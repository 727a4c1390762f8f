"""One process, from inside: what ends it, and what it says then. From outside: test_process.py."""

import socket

import pytest
import uvicorn

from service.api import create_app
from service.child import HOST
from service.serving import listen, serve
from service.settings import load
from service.wiring import Service
from tests.kit.services import settings_for


async def test_an_http_server_that_dies_ends_the_process_with_its_error(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Swallowed, it would look like a stop that somebody wanted: exit code 0, and not a word."""

    async def die(server: uvicorn.Server, sockets: list[socket.socket]) -> None:
        raise OSError("too many open files")

    monkeypatch.setattr(uvicorn.Server, "serve", die)
    service = Service(load(settings_for(redis_url)))
    with listen(HOST, 0) as listener, pytest.raises(OSError, match="too many open files"):
        await serve(service, create_app(service.services()), listener)
