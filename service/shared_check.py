"""SharedCheck: many want to know at once whether a backend can be read, and it is asked once."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Final

from service.clock import Clock

#: For how long one answer of `check` serves all: a thousand fetches that fail at once ask once.
CHECK_SHARED_S: Final = 1.0


class SharedCheck:
    """One check at a time, whoever asks; its answer serves all for CHECK_SHARED_S. An answer is the error, or None."""

    def __init__(self, prove: Callable[[], Awaitable[None]], clock: Clock, timeout_s: float) -> None:
        self._prove = prove
        self._clock = clock
        self._timeout_s = timeout_s
        self._answered: tuple[float, float, Exception | None] | None = None  # began, answered
        self._running: asyncio.Task[Exception | None] | None = None

    async def answer(self, since_s: float = -math.inf) -> Exception | None:
        """The answer of the check that runs, or of the last one if it is fresh enough, or of a new one.

        A good one from before `since_s`, when what failed began, proves nothing: the outage may have begun in between.
        """
        if self._running is None and self._answered is not None:
            began_s, at_s, answer = self._answered
            proves = answer is not None or began_s >= since_s
            if proves and self._clock.monotonic_s() - at_s < CHECK_SHARED_S:
                return answer
        return await self.fresh()

    async def fresh(self) -> Exception | None:
        """The answer of the check that runs, or of a new one."""
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        return await asyncio.shield(self._running)  # one who stops waiting must not end it for the others

    async def aclose(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])

    async def _run(self) -> Exception | None:
        answer: Exception | None = None
        began_s = self._clock.monotonic_s()
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._prove()
        except Exception as error:  # noqa: BLE001  # whatever it is, the backend could not be read
            answer = error
        finally:
            self._running = None
        self._answered = (began_s, self._clock.monotonic_s(), answer)
        return answer
