"""Listening for wake-ups. They only ever make the dispatcher's loop earlier; a lost one costs at most its interval."""

from collections.abc import Callable
from typing import Any, Final

from redis.asyncio import BlockingConnectionPool
from redis.exceptions import RedisError

from service.errors import RedisUnavailable
from service.transport import client

#: A subscription that heard nothing for so long is asked whether it still stands: a connection may die without a word.
SILENCE_S: Final = 15.0


class Wake:
    """The subscription of one process. `round` is a loop's round."""

    def __init__(self, pool: BlockingConnectionPool, channel: str, woken: Callable[[int], None]) -> None:
        """`woken` is told a new head's due time, ms; 0 if it may have missed some."""
        self._pool = pool
        self._channel = channel
        self._woken = woken
        self._pubsub: Any = None  # redis-py's PubSub is untyped
        self._asked = False  # for a sign of life

    async def round(self) -> float:
        """Waits for one message, up to SILENCE_S.

        Raises RedisUnavailable if the connection broke; the next round makes a new one.
        """
        try:
            if self._pubsub is None:
                await self._subscribe()
            message = await self._pubsub.get_message(timeout=SILENCE_S)
            await self._heard(message)
        except (RedisError, OSError) as error:
            await self.aclose()
            raise RedisUnavailable(f"the wake-up channel broke: {type(error).__name__}") from error
        return 0.0

    async def aclose(self) -> None:
        pubsub, self._pubsub = self._pubsub, None
        if pubsub is not None:
            await pubsub.aclose()

    async def _subscribe(self) -> None:
        self._pubsub, self._asked = client(self._pool).pubsub(), False
        await self._pubsub.subscribe(self._channel)

    async def _heard(self, message: dict[str, Any] | None) -> None:
        if message is not None:
            self._asked = False
            if message["type"] == "message":
                self._woken(_due(message["data"]))
            elif message["type"] == "subscribe":  # from now on; also when the client has connected anew by itself
                self._woken(0)
        elif self._asked:
            await self.aclose()
            raise RedisUnavailable("the wake-up channel gives no sign of life")
        else:
            self._asked = True
            await self._pubsub.ping()


def _due(data: bytes) -> int:
    """`<due> <queue>`; whatever else somebody publishes counts as: now."""
    due = data.split(b" ", 1)[0]
    return int(due) if due.isdigit() and len(due) < 17 else 0
