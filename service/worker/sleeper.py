"""A connection that sleeps in Redis until there is a job: no polling, and awake within a round trip."""

import asyncio
import time
from typing import Any, Final

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError

from service.errors import RedisUnavailable
from service.transport import Encodable, Interrupted, Pool, Transport

#: The answer may take so much longer than Redis was told to wait. Then nothing is at the other end any more: a
#: connection may die without a word, and a worker that waits on it would be deaf for ever.
_OVERDUE_S: Final = 3.0
_TRIES: Final = 50
_PAUSE_S: Final = 0.01


class Sleeper:
    """One connection of its own, made when it is needed. One `pop` at a time."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._connection: AbstractConnection | None = None
        self._client_id: int | None = None
        self.unheard_until_s = 0.0  #: until then something may be popped of which nobody hears
        self._asleep = False
        self._told_to_wake = False

    async def pop(self, command: tuple[Encodable, ...], timeout_s: float) -> Any:
        """The answer to a command that blocks for so long; None if there was nothing, or if it was unblocked.

        Raises RedisUnavailable, Interrupted: something may have been popped. Cancelled, it hangs up.
        """
        connection = await self._connected()
        if self._told_to_wake:
            return None
        self._asleep, before_s = True, self.unheard_until_s
        self.unheard_until_s = time.monotonic() + timeout_s + _OVERDUE_S
        try:
            async with asyncio.timeout(timeout_s + _OVERDUE_S):
                await connection.send_command(*command)
                popped = await connection.read_response()
        except (RedisError, OSError) as error:  # a TimeoutError is one
            await self.hang_up()
            raise Interrupted(f"nothing more from a blocking pop: {type(error).__name__}") from error
        except BaseException:
            await self.hang_up()
            raise
        finally:
            self._asleep = False
        self.unheard_until_s = before_s
        return popped

    async def wake(self, transport: Transport) -> None:
        """Ends a `pop` under way, and makes all that follow return at once. Raises RedisUnavailable."""
        self._told_to_wake = True
        for _ in range(_TRIES):  # the server may not have seen the pop yet
            if not self._asleep or self._client_id is None:
                return
            await transport.send([("CLIENT", "UNBLOCK", self._client_id)])
            await asyncio.sleep(_PAUSE_S)

    async def hang_up(self) -> None:
        """Closes the connection. A `pop` under way ends with an error."""
        connection, self._connection, self._client_id = self._connection, None, None
        if connection is not None:
            await connection.disconnect(nowait=True)

    async def _connected(self) -> AbstractConnection:
        if self._connection is None:
            connection: AbstractConnection = self._pool.make_connection()  # type: ignore[no-untyped-call]  # redis-py's
            try:
                async with asyncio.timeout(self._pool.timeout):
                    await connection.connect()  # type: ignore[no-untyped-call]  # redis-py's
                    await connection.send_command("CLIENT", "ID")
                    self._client_id = int(await connection.read_response())
            except (RedisError, OSError) as error:
                await connection.disconnect(nowait=True)
                raise RedisUnavailable(f"Redis cannot be reached: {type(error).__name__}") from error
            except BaseException:
                await connection.disconnect(nowait=True)
                raise
            connection.socket_timeout = None
            self._connection = connection
        return self._connection
