"""How a request reaches its call: as it is. Dependency injection and models would cost more than the job itself."""

from collections.abc import Callable, Coroutine
from typing import Any, cast
from urllib.parse import unquote

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.metrics import Metrics

Call = Callable[[Request], Coroutine[Any, Any, Response]]


class PlainRoute(APIRoute):
    """Hands the request itself to the endpoint; what the endpoint takes is said in `openapi_extra`."""

    def get_route_handler(self) -> Call:
        return cast(Call, self.endpoint)


class Answered:
    """Middleware: counts answers by call and status, and keeps a quoted slash from being taken for a separator."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 500  # of a call that ends in an exception

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        if b"%2f" in scope.get("raw_path", b"").lower():
            scope["path"] = _with_quoted_slashes(scope["raw_path"])
        try:
            await self._app(scope, receive, watched)
        finally:
            self._metrics.responded(getattr(scope.get("route"), "name", "none"), status)


def _with_quoted_slashes(raw_path: bytes) -> str:
    """`/v1/queues/a%2Fb/jobs` is a call with a bad queue name; taken for `a/b` it would be no call at all."""
    text = raw_path.decode("latin-1").replace("%2F", "%252F").replace("%2f", "%252f")
    return unquote(text)
