"""What requests hold: references, headers, times, bodies of bounded size."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any, Final
from urllib.parse import unquote

from starlette.requests import Request

from service import pages
from service.errors import (
    InvalidBody,
    InvalidHeader,
    InvalidQuery,
    InvalidQueue,
    InvalidReference,
    InvalidTime,
    Misuse,
    PayloadTooLarge,
)
from storage_backends.reference import InvalidName, Reference, check_queue

#: So much of a request that is too large is read and thrown away: a client that is still sending sees no answer.
_THROWN_AWAY_BYTES: Final = 64 * 2**20
_THROWN_AWAY_S: Final = 5.0
#: A body that comes slower is given up: what it holds, others wait for. 16 MiB may take five minutes, and not a week.
SLOWEST_BYTES_S: Final = 64 * 1024


def reference_in(request: Request) -> Reference:
    """The reference in the path. Raises InvalidReference."""
    try:
        return Reference.parse(request.path_params["reference"])
    except InvalidName as error:
        raise InvalidReference(str(error)) from error


def queue_in(request: Request) -> str:
    """The queue in the path. Raises InvalidQueue."""
    try:
        return check_queue(request.path_params["queue"])
    except InvalidName as error:
        raise InvalidQueue(str(error)) from error


def header_in(request: Request, name: str) -> str | None:
    """The value of this header, None without it. Raises InvalidHeader if it is there twice."""
    wanted = name.lower().encode()
    values = [value for header, value in request.scope["headers"] if header == wanted]
    if len(values) > 1:
        raise InvalidHeader(f"{name} is given {len(values)} times")
    return values[0].decode("latin-1") if values else None


def times_in(request: Request) -> dict[str, str]:
    """`delay` and `due` in the query. Raises InvalidTime for anything else there, or one of them twice.

    `+` is a plus sign, as in RFC 3986 and in `+01:00`; that it were a space is a custom of HTML forms.
    """
    return _parameters(request, ("delay", "due"), InvalidTime)


def query_in(request: Request, *names: str) -> dict[str, str]:
    """These parameters of the query, those that are given. Raises InvalidQuery for any other, or one given twice."""
    return _parameters(request, names, InvalidQuery)


def limit_of(value: object, most: int, error: type[Misuse] = InvalidQuery) -> int:
    """How many at most, from 1 on. More than `most` is `most`: an answer may always be shorter than what was asked."""
    text = str(value)
    if isinstance(value, bool) or not re.fullmatch("[0-9]{1,18}", text) or int(text) == 0:
        raise error(f"limit: {text[:60]!r} is not a number from 1 on")
    return min(int(text), most)


def _parameters(request: Request, names: Sequence[str], error: type[Misuse]) -> dict[str, str]:
    given: dict[str, str] = {}
    for part in filter(None, request.scope["query_string"].decode("latin-1").split("&")):
        name, _, value = part.partition("=")
        name = unquote(name)
        if name not in names:
            raise error(f"unknown parameter {name[:60]!r}: {' and '.join(names)} are possible here")
        if name in given:
            raise error(f"{name} is given twice")
        given[name] = unquote(value)
    return given


def no_query_in(request: Request, *, times: bool = False) -> None:
    """Raises InvalidQuery if there is one; InvalidTime for a call whose `times` belong in the body: it is likely to be
    one of these, and must not be passed over.
    """
    if request.scope["query_string"]:
        if times:
            raise InvalidTime("no parameters are possible here: times belong in the body")
        raise InvalidQuery("no parameters are possible here")


async def body_of(request: Request, limit_bytes: int, idle_s: float | None = None) -> bytes:
    """The body, as it was sent. Raises PayloadTooLarge; of a body that is too large nothing is kept.

    With `idle_s`, raises InvalidBody for a body that comes too slowly for `unless_slow`.
    """
    stream = request.stream()
    if announced_bytes(request, unknown=0) > limit_bytes:
        if header_in(request, "Expect") is None:  # otherwise nothing comes unless we ask for it
            await throw_away(stream)
        raise _too_large(limit_bytes)
    chunks: list[bytes] = []
    size = 0
    async for chunk in stream if idle_s is None else unless_slow(stream, idle_s):
        size += len(chunk)
        if size > limit_bytes:
            chunks.clear()
            await throw_away(stream)
            raise _too_large(limit_bytes)
        chunks.append(chunk)
    return b"".join(chunks)


async def unless_slow(stream: AsyncIterator[bytes], idle_s: float) -> AsyncIterator[bytes]:
    """The same pieces. Raises InvalidBody if the next one does not come within `idle_s`, or if the sum of the waiting
    exceeds `idle_s` and what the bytes that came need at SLOWEST_BYTES_S: one byte now and then keeps no body alive.

    The time that the reader itself takes between two pieces does not count.
    """
    now_s = asyncio.get_running_loop().time
    left_s = idle_s
    while left_s > 0:
        began_s = now_s()
        try:
            async with asyncio.timeout(min(idle_s, left_s)):
                chunk = await anext(stream, None)
        except TimeoutError:
            break
        if chunk is None:
            return
        left_s += len(chunk) / SLOWEST_BYTES_S - (now_s() - began_s)
        yield chunk
    raise InvalidBody(f"too slow: nothing for {idle_s:g} s, or less than {SLOWEST_BYTES_S} bytes/s all in all")


async def throw_away(stream: AsyncIterator[bytes]) -> None:
    """Reads the rest, a bounded part of it, for a bounded time."""
    left = _THROWN_AWAY_BYTES
    with suppress(TimeoutError):
        async with asyncio.timeout(_THROWN_AWAY_S):
            async for chunk in stream:
                left -= len(chunk)
                if left < 0:
                    return


def object_of(text: bytes) -> dict[str, Any]:
    """The JSON object that `text` is: of plain values, or lists or objects of these.

    Raises InvalidBody, also for a name that is given twice, and for a text that is none: with a lone surrogate.
    """
    try:
        value = json.loads(text.decode(), object_pairs_hook=_unrepeated)
    except (ValueError, RecursionError) as error:
        raise InvalidBody(
            f"not JSON: {error}" if isinstance(error, ValueError) else "not JSON: nested too deep"
        ) from error
    if not isinstance(value, dict):
        raise InvalidBody(f"not a JSON object but a {type(value).__name__}")
    for name, each in value.items():
        _must_be_plain(name, each)
    return value


def known_only(fields: dict[str, Any], *names: str) -> None:
    """Raises InvalidBody if there is any other field."""
    unknown = sorted(fields.keys() - set(names))
    if unknown:
        raise InvalidBody(f"unknown field {unknown[0][:60]!r}: possible are {', '.join(names)}")


def _must_be_plain(name: str, value: object) -> None:
    """What is nested as deep as the parser bears, others could no longer show: they are called from deeper still."""
    parts = value if isinstance(value, list) else value.values() if isinstance(value, dict) else None
    for each in (value,) if parts is None else parts:
        if parts is not None and isinstance(each, list | dict):
            raise InvalidBody(f"{name[:60]!r} is nested too deep")
        if isinstance(each, str) and not pages.is_writable(each):
            raise InvalidBody(f"{name[:60]!r} holds a lone surrogate, which is no character")


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a name is given twice in one object")
    return fields


def announced_bytes(request: Request, *, unknown: int) -> int:
    """Content-Length, which the server has checked to be a number; `unknown` for a body in chunks; else 0."""
    length = header_in(request, "Content-Length")
    if length is not None:
        return int(length)
    return unknown if header_in(request, "Transfer-Encoding") else 0


def _too_large(limit_bytes: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"the request's body is over {limit_bytes} bytes")
