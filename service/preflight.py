"""What must hold of Redis before anything runs, and whose installation it is.

older than 7.0               refused: scripts could not be allowed to run when Redis is full
an evicting maxmemory-policy refused unless allowed: Redis would drop jobs without a word
a newer layout               refused: this release would misread it
a meta key that is not ours  refused: something else lives under this prefix
away, loading, full          waited for: raises RetryLater
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import structlog
from redis.exceptions import ResponseError

from service.census import Census
from service.errors import CannotStart, RedisUnavailable, RetryLater
from service.keys import LAYOUT, Keys
from service.transport import Encodable, Transport
from storage_backends.reference import new_uuid

OLDEST: Final = (7, 0)
_RETRY_S: Final = 1.0  #: between two looks at a Redis that is not there yet
_ELSEWHERE: Final = "choose another COATCHECK_KEY_PREFIX or another Redis"

log = structlog.get_logger(__name__)


class Gated(Transport):
    """Closed until somebody has looked at Redis: no job may go into one that would lose it.

    While it is closed, everything raises RedisUnavailable.
    """

    opened = False

    async def send(self, commands: Sequence[tuple[Encodable, ...]], *, raising: bool = True) -> list[Any]:
        if not self.opened:
            raise RedisUnavailable("starting: Redis is not there yet, or has not been looked at")
        return await super().send(commands, raising=raising)


async def wait_for_redis(
    transport: Transport, census: Census, keys: Keys, *, allow_eviction: bool, within_s: float | None
) -> str:
    """As `check_redis`, again until Redis is there. Raises CannotStart, and RedisUnavailable after `within_s`."""
    why: RetryLater | None = None
    try:
        async with asyncio.timeout(within_s) as limit:
            while True:
                try:
                    return await check_redis(transport, census, keys, allow_eviction=allow_eviction)
                except RetryLater as error:
                    if why is None:
                        log.warning("waiting for Redis", at=transport.place, code=error.code, error=str(error))
                    why = error
                await asyncio.sleep(_RETRY_S)
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise RedisUnavailable(
            f"Redis at {transport.place} (COATCHECK_REDIS__URL) was not there within {within_s:g} s: "
            f"{why or 'no answer'}"
        ) from why or error


async def check_redis(transport: Transport, census: Census, keys: Keys, *, allow_eviction: bool) -> str:
    """The installation id, made if there was none. Raises CannotStart, RetryLater. Idempotent."""
    server = await census.server()
    if server.version[:2] < OLDEST:
        raise CannotStart(
            f"Redis {'.'.join(map(str, server.version))} is too old: 7.0 or newer is needed, or any Valkey"
        )
    if server.eviction != "noeviction" and not allow_eviction:
        raise CannotStart(
            f"maxmemory-policy is {server.eviction}: Redis would throw jobs away when it is full. "
            "Set it to noeviction, or accept the loss with COATCHECK_REDIS__ALLOW_EVICTION=true"
        )
    found = await _meta(transport, keys)
    if b"installation" not in found or b"layout" not in found:
        await transport.send(
            [("HSETNX", keys.meta, "layout", LAYOUT), ("HSETNX", keys.meta, "installation", new_uuid())]
        )
        found = await _meta(transport, keys)
    try:
        layout, installation = int(found[b"layout"]), found[b"installation"].decode("ascii")
    except ValueError as error:
        raise CannotStart(f"{keys.meta} in Redis holds what is not ours; {_ELSEWHERE}") from error
    if layout > LAYOUT:
        raise CannotStart(f"this Redis has layout {layout}, of a newer release; this one knows {LAYOUT}")
    return installation


async def _meta(transport: Transport, keys: Keys) -> Mapping[bytes, bytes]:
    try:
        flat = (await transport.send([("HGETALL", keys.meta)]))[0]
    except ResponseError as error:  # of another type, or forbidden to us
        raise CannotStart(f"{keys.meta} in Redis cannot be read ({error}); {_ELSEWHERE}") from error
    return dict(zip(flat[::2], flat[1::2], strict=True))
