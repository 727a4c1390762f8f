"""One request on one connection, and of every failure the one thing that matters: can it have been carried out?

The client's own retries are off: redis-py 8 repeats every command, scripts too, up to ten times on a lost reply, which
put a job into its ready list twice. Who may repeat what is the ledger's business.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import hiredis
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    ConnectionError as RedisConnectionError,
    InvalidResponse,
    MasterDownError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TimeoutError as RedisTimeoutError,
    TryAgainError,
)

from service.errors import RedisFull, RedisUnavailable
from service.scripts import Script

Encodable = bytes | str | int | float

#: Answers of a server that did not run the command, and may run it later or elsewhere.
_NOT_NOW: Final = (
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    ReadOnlyError,
    TryAgainError,
)
#: The same where redis-py has no type, by code: a script holds the server, its disk fails, it has too few replicas.
_NOT_NOW_CODES: Final = frozenset({"BUSY", "MISCONF", "NOREPLICAS"})


class Interrupted(RedisUnavailable):
    """The request was sent, and its answer was not seen: it may have been carried out, or may be yet."""


class Pool(BlockingConnectionPool):
    """redis-py's pool without what that does at each use for telemetry, and without the task that it starts for each
    write: together they cost more than a request (measured: 42 µs of CPU with them, 17 without).

    A connection of `get_connection` bounds each of its answers, as redis-py's clients expect; one of `acquire` leaves
    that to its user. A waiter who is cancelled while its turn comes passes the turn on.
    """

    timeout: float  #: seconds; of redis-py, where it is untyped

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._slots = asyncio.Semaphore(self.max_connections)

    async def get_connection(self, command_name: Any = None, *keys: Any, **options: Any) -> AbstractConnection:
        await self._slot()
        try:
            connection: AbstractConnection = (
                self._available_connections.pop() if self._available_connections else self.make_connection()  # type: ignore[no-untyped-call]  # redis-py's
            )
        except BaseException:
            self._slots.release()
            raise
        self._in_use_connections.add(connection)
        connection.socket_timeout = self.timeout
        try:
            await self.ensure_connection(connection)
        except BaseException:
            await self.release(connection)
            raise
        return connection

    async def acquire(self) -> AbstractConnection:
        connection = await self.get_connection()
        connection.socket_timeout = None
        return connection

    async def release(self, connection: AbstractConnection) -> None:
        self._in_use_connections.remove(connection)
        try:
            if connection.should_reconnect():  # type: ignore[no-untyped-call]  # redis-py's
                await connection.disconnect()
        finally:
            self._available_connections.append(connection)
            self._slots.release()

    async def _slot(self) -> None:
        if not self._slots.locked():
            await self._slots.acquire()
            return
        try:
            async with asyncio.timeout(self.timeout):
                await self._slots.acquire()
        except TimeoutError as error:
            raise RedisConnectionError("no connection became free") from error


def connect(url: str, *, timeout_s: float, max_connections: int, client_name: str = "coatcheck") -> Pool:
    """A pool that never repeats a command by itself. No connection is made yet.

    A caller waits up to `timeout_s` for a free connection, to connect, and for each answer. CLIENT LIST shows it under
    `client_name`. Raises ValueError for a URL that no connection can be made of.
    """
    of_tcp = {} if url.startswith("unix:") else {"socket_keepalive": True}
    pool = Pool.from_url(
        url,
        max_connections=max_connections,
        timeout=timeout_s,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        retry=Retry(NoBackoff(), 0),
        retry_on_error=[],
        protocol=2,
        client_name=client_name,
        **of_tcp,
    )
    try:
        pool.connection_class(**pool.connection_kwargs)
    except (TypeError, RedisError) as error:  # only now, and not before it connects, does redis-py look at them
        raise ValueError("an option of the URL is none, or has no such value") from error
    return pool


def client(pool: BlockingConnectionPool) -> Redis:
    """A client on `pool`, for plain reads and for pub/sub; closing it leaves the pool open."""
    return Redis(connection_pool=pool)


class Transport:
    """Sends requests over a pool. Raises RedisUnavailable (certainly not carried out), Interrupted (perhaps), RedisFull
    (refused for want of memory, not carried out); other error replies are raised as redis-py's ResponseError.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    @property
    def place(self) -> str:
        """Which Redis it is, without a login: host and port, or a socket's path."""
        told = self._pool.connection_kwargs
        return str(told["path"]) if "path" in told else f"{told.get('host', 'localhost')}:{told.get('port', 6379)}"

    async def run(self, script: Script, keys: Sequence[str], arguments: Sequence[Encodable]) -> Any:
        """The script's reply. A server that does not know the script (restarted, failed over, flushed) is taught it."""
        try:
            return (await self.send([("EVALSHA", script.sha, len(keys), *keys, *arguments)]))[0]
        except NoScriptError:
            return (await self.send([("EVAL", script.source, len(keys), *keys, *arguments)]))[0]

    async def send(self, commands: Sequence[tuple[Encodable, ...]], *, raising: bool = True) -> list[Any]:
        """The replies to `commands`, sent in one write. Not atomic.

        When all have been read, the first error reply is raised, or, unless `raising`, error replies are left in place.
        """
        with _unswallowed():
            replies = await self._send(commands)
        failed = [reply for reply in replies if isinstance(reply, Exception)]
        if failed and (raising or len(replies) < len(commands)):
            raise _translated(failed[0]) from failed[0]
        return replies

    async def _send(self, commands: Sequence[tuple[Encodable, ...]]) -> list[Any]:
        connection = await self._acquire()
        try:
            return await self._exchange(connection, commands)
        except (RedisConnectionError, RedisTimeoutError, InvalidResponse, OSError) as error:  # a TimeoutError is one
            await connection.disconnect(nowait=True)
            raise Interrupted(f"Redis did not answer: {type(error).__name__}") from error
        except asyncio.CancelledError:
            await connection.disconnect(nowait=True)
            raise
        finally:
            await self._pool.release(connection)

    async def _acquire(self) -> AbstractConnection:
        try:
            return await self._pool.acquire()
        except (RedisConnectionError, RedisTimeoutError, InvalidResponse, OSError, *_NOT_NOW) as error:
            raise RedisUnavailable(f"Redis cannot be reached: {type(error).__name__}") from error
        except ResponseError as error:  # to what a client says when it connects
            raise _translated(error) from error

    async def _exchange(self, connection: AbstractConnection, commands: Sequence[tuple[Encodable, ...]]) -> list[Any]:
        loop, replies = asyncio.get_running_loop(), list[Any]()
        async with asyncio.timeout(self._pool.timeout) as limit:
            await connection.send_packed_command(_packed(commands), check_health=False)
            for _ in commands:
                if replies:  # each answer has its time
                    limit.reschedule(loop.time() + self._pool.timeout)
                try:
                    replies.append(await connection.read_response())
                except (*_NOT_NOW, ResponseError) as error:
                    replies.append(error)
                    if _is_not_now(error):
                        # Behind the same address another server may answer by now.
                        await connection.disconnect(nowait=True)
                        break
        return replies


@contextmanager
def _unswallowed() -> Iterator[None]:
    """Raises a cancellation that was lost on the way. redis-py connects by way of `wait_for`, which in Python 3.11 may
    swallow one: a loop that is told to stop would go on for ever.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task else 0
    try:
        yield
    finally:
        if task and task.cancelling() > before:
            raise asyncio.CancelledError


def _packed(commands: Sequence[tuple[Encodable, ...]]) -> bytes:
    """As they go over the wire. redis-py's asyncio connection packs in Python: 1 ms of the loop for 1,000 arguments."""
    pack: Callable[[tuple[Encodable, ...]], bytes] = hiredis.pack_command  # type: ignore[assignment]  # any length
    try:
        return b"".join(map(pack, commands))
    except UnicodeEncodeError:  # a member that is no reference may be any bytes, and is named back as the same
        return b"".join(pack(tuple(map(_encoded, command))) for command in commands)


def _encoded(argument: Encodable) -> Encodable:
    return argument.encode("utf-8", "surrogateescape") if isinstance(argument, str) else argument


def _is_not_now(error: Exception) -> bool:
    return isinstance(error, _NOT_NOW) or str(error).partition(" ")[0] in _NOT_NOW_CODES


def _translated(error: Exception) -> Exception:
    if isinstance(error, OutOfMemoryError):
        return RedisFull("Redis is at maxmemory")
    if _is_not_now(error):
        return RedisUnavailable(f"Redis does not serve now: {type(error).__name__}")
    return error
