"""How inspect and advise reach Redis itself, and what they say when it does not let them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Final, TypeVar
from urllib.parse import urlsplit

import typer

from service.cli import show
from service.cli.exits import Exit
from service.cli.local import settings

if TYPE_CHECKING:
    from service.errors import RetryLater
    from service.settings import Settings
    from service.transport import Transport

T = TypeVar("T")

RedisUrl = Annotated[
    str | None, typer.Option("--redis", help="Where Redis is. By default what REDIS__URL says.", metavar="URL")
]

_LOGIN: Final = "it wants another user or password: redis://USER:PASSWORD@HOST:PORT/0"
_CLOSED: Final = "it closed the connection: it is stopping, has too many clients, or speaks TLS (rediss://)"
_PORT: Final = 6379  #: where a URL names none


def asked(
    look: "Callable[[Transport, Settings], Awaitable[T]]",
    url: str | None,
    *,
    as_json: bool,
    every_s: float | None = None,
) -> T:
    """What `look` tells. What fails is shown, and ends the command.

    With `every_s` it is asked again and again until Ctrl-C, also while Redis is away: that is when people watch.
    """
    from redis.exceptions import ResponseError

    from service.errors import RetryLater

    chosen = settings()
    url = chosen.redis.url if url is None else _checked(url)

    def away(error: RetryLater) -> Exit:
        title, why, code = _why(error, chosen)
        show.problem({"title": title, "detail": f"{_place(url)}: {why}"}, as_json=as_json)
        return code

    try:
        return asyncio.run(_asked(look, url, chosen, every_s, away))
    except RetryLater as error:
        raise typer.Exit(away(error)) from error
    except ResponseError as error:  # to what every look needs: TIME, SCAN, INFO
        told = {"title": "Refused by Redis", "detail": f"{_place(url)}: {_refusal(error)}"}
        show.problem(told, as_json=as_json)
        raise typer.Exit(Exit.FAILED) from error
    except KeyboardInterrupt:
        raise typer.Exit(Exit.INTERRUPTED) from None


def _checked(url: str) -> str:
    from service.configuration.types import redis_url

    try:
        return redis_url(url)
    except ValueError as error:
        raise typer.BadParameter(f"--redis: {error}") from error


async def _asked(
    look: "Callable[[Transport, Settings], Awaitable[T]]",
    url: str,
    chosen: "Settings",
    every_s: float | None,
    away: "Callable[[RetryLater], Exit]",
) -> T:
    from service.errors import RetryLater
    from service.transport import Transport, connect

    try:
        pool = connect(
            url,
            timeout_s=chosen.redis.timeout_s,
            max_connections=chosen.redis.max_connections,
            client_name="coatcheck-inspector",
        )
    except ValueError as error:
        raise typer.BadParameter(f"--redis: {error}") from error
    try:
        while every_s is not None:
            try:
                await look(Transport(pool), chosen)
            except RetryLater as error:
                if away(error) != Exit.LATER:
                    raise typer.Exit(Exit.FAILED) from error
            await asyncio.sleep(every_s)
        return await look(Transport(pool), chosen)
    finally:
        await pool.disconnect()


def _why(error: "RetryLater", chosen: "Settings") -> tuple[str, str, Exit]:
    """A title, what whoever is on call can do about it, and whether trying again may help."""
    from redis.exceptions import AuthenticationError

    causes, cause = list[BaseException](), error.__cause__
    while cause is not None:
        causes.append(cause)
        cause = cause.__cause__ or cause.__context__
    if isinstance(error.__cause__, AuthenticationError):
        return "Refused by Redis", _LOGIN, Exit.FAILED
    for kind, why in _whys(chosen.redis.timeout_s).items():
        if any(isinstance(it, kind) for it in causes):
            return "Redis unavailable", why, Exit.LATER
    system = next((it.strerror for it in causes if isinstance(it, OSError) and it.strerror), None)  # names no secret
    return "Redis unavailable", system or str(error), Exit.LATER


def _whys(timeout_s: float) -> dict[type[BaseException], str]:
    """By the causes of a failure, the most certain first."""
    import ssl
    from socket import gaierror

    from redis import exceptions as redis

    silent = f"no answer within {timeout_s:g} s: it hangs, is busy, is behind a firewall, or speaks no TLS (redis://)"
    nobody = "no host of that name is known"
    return {
        redis.BusyLoadingError: "it is still loading its data",
        redis.MasterDownError: "it is a replica that has lost its primary, and tells nothing until that is back",
        redis.ClusterDownError: "its cluster is down",
        ssl.SSLCertVerificationError: "its certificate is not trusted here; ?ssl_ca_certs=FILE names who signed it",
        ssl.SSLError: "TLS failed: a URL with rediss:// is with TLS, one with redis:// without",
        redis.InvalidResponse: "what answers there is no Redis",
        redis.TimeoutError: silent,
        TimeoutError: silent,
        ConnectionRefusedError: "nothing listens there",
        FileNotFoundError: "there is no such file or socket",
        gaierror: nobody,
        UnicodeError: nobody,
        ConnectionResetError: _CLOSED,
        EOFError: _CLOSED,
        redis.ConnectionError: _CLOSED,
    }


def _refusal(error: Exception) -> str:
    from redis.exceptions import NoPermissionError

    from service.inspector.payloads import text_cut

    told = text_cut(str(error), 200).rstrip(".")
    hint = " (ops/redis/inspector.acl grants what is needed)" if isinstance(error, NoPermissionError) else ""
    return f"{told}{hint}"


def _place(url: str) -> str:
    """Which Redis it is, without the login."""
    parts = urlsplit(url)
    return parts.path if parts.scheme == "unix" else f"{parts.hostname}:{parts.port or _PORT}"
