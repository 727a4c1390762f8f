"""Errors as RFC 9457 problems, the framework's own included. Clients match on `type`, never on the text."""

import json
import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match

from service.errors import CoatcheckError, JobDead, NotHere, OutcomeUnknown, PayloadTooLarge, RetryLater

MEDIA_TYPE: Final = "application/problem+json"
Problem = dict[str, Any]

#: The rest of what is refused is 422.
_STATUS: Final[tuple[tuple[type[CoatcheckError], int], ...]] = (
    (RetryLater, 503),
    (PayloadTooLarge, 413),
    (NotHere, 404),
    (JobDead, 409),
)


def status_of(kind: type[CoatcheckError]) -> int:
    """The status that errors of this kind are answered with."""
    return next((status for base, status in _STATUS if issubclass(kind, base)), 422)


def of(error: CoatcheckError) -> Problem:
    """The problem that `error` is. One that may be repeated says when; one whose outcome is unknown, of which job."""
    problem = plain(status_of(type(error)), str(error))
    problem |= {"type": f"urn:coatcheck:{error.code}", "title": error.code.replace("-", " ").capitalize()}
    if isinstance(error, RetryLater):
        problem["retry_after_s"] = _retry_after_s(error)
    if isinstance(error, OutcomeUnknown):
        problem["reference"] = str(error.reference)
    return problem


def plain(status: int, detail: str | None = None) -> Problem:
    """A problem that its status says all about."""
    problem: Problem = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status}
    return problem | {"detail": detail} if detail else problem


def answer(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """With Retry-After if the status is 503, and the end of the connection if the request may not have been read."""
    status: int = problem["status"]
    more = dict(headers or {})
    if status == 503:
        more.setdefault("Retry-After", str(problem.get("retry_after_s", 1)))
    if status == 413:
        more["Connection"] = "close"
    return Response(json.dumps(problem), status, more, MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Every error of `app` is answered as a problem."""
    app.add_exception_handler(CoatcheckError, _ours)
    app.add_exception_handler(HTTPException, _framework)
    app.add_exception_handler(ClientDisconnect, _nobody_listens)
    app.add_exception_handler(Exception, _unexpected)


async def _ours(_: Request, error: Exception) -> Response:
    assert isinstance(error, CoatcheckError)  # noqa: S101  for the type checker; registered for this class
    return answer(of(error))


async def _framework(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101  for the type checker; registered for this class
    if error.status_code == 404:
        unknown = {"type": "urn:coatcheck:no-such-route", "title": "No such route"}
        return answer(plain(404, f"there is no {request.url.path[:200]!r}") | unknown)
    if error.status_code == 405:
        allowed = ", ".join(sorted(_methods(request)))
        return answer(plain(405, f"{request.method} is not possible here, only {allowed}"), {"Allow": allowed})
    detail = None if error.detail == HTTPStatus(error.status_code).phrase else error.detail
    return answer(plain(error.status_code, detail), error.headers)


async def _nobody_listens(_: Request, error: Exception) -> Response:
    return answer(plain(400, "the request ended early"))


async def _unexpected(_: Request, error: Exception) -> Response:
    """The framework raises it again for the server's log; the client learns nothing of our inside."""
    return answer(plain(500))


def _methods(request: Request) -> set[str]:
    """What is possible on this path: several routes may share it."""
    matching = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
    return {method for route in matching for method in getattr(route, "methods", None) or ()}


def _retry_after_s(error: RetryLater) -> int:
    """Whole seconds, as the header wants them."""
    return max(1, math.ceil(error.retry_after_s))
