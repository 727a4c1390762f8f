"""The one skeleton of every periodic loop, and the group that keeps them alive together.

A loop drives itself: it runs a round, sleeps until the next one is wanted, and can be woken earlier, never later. What
a round raises because Redis or a backend is away is waited out. What it raises otherwise is logged and repeated, but a
loop that fails again and again is dead, and says so: the process's liveness goes with it. Never a silent dead loop.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import structlog

from service.clock import Clock
from service.errors import RetryLater
from service.metrics import Metrics

#: Unexpected errors in a row after which a loop gives up: a restart is the better try by then.
MAX_FAILURES: Final = 20
#: A round that takes longer hangs; liveness fails. Far above any timeout in a round: a slow one must not be killed. It
#: is more with longer timeouts than the usual ones.
HANGS_AFTER_S: Final = 120.0
_BACKOFF_MIN_S: Final = 0.1
_BACKOFF_MAX_S: Final = 2.0  #: Redis is asked again at least this often, so that jobs flow soon after it is back

log = structlog.get_logger(__name__)


class Loop:
    """`round_` again and again. It returns the seconds until it wants to run again, at most `interval_s`; None: those.

    After `stop`, `run` returns when the round under way is over.
    """

    def __init__(
        self,
        name: str,
        round_: Callable[[], Awaitable[float | None]],
        *,
        interval_s: float,
        clock: Clock,
        metrics: Metrics,
        interruptible: bool = False,
        hangs_after_s: float = HANGS_AFTER_S,
    ) -> None:
        """`interruptible`: a stop may cancel a round at any await; nothing is left half done."""
        self.name = name
        self.interruptible = interruptible
        self._round = round_
        self._interval_s = interval_s
        self._clock = clock
        self._metrics = metrics
        self._hangs_after_s = hangs_after_s
        self._woken = asyncio.Event()
        self._stopping = False
        self._failures = 0  # in a row
        self._began_s: float | None = None

    def wake(self) -> None:
        """Run the next round now, or, during a round, right after it."""
        self._woken.set()

    def stop(self) -> None:
        self._stopping = True
        self._woken.set()

    @property
    def stopping(self) -> bool:
        return self._stopping

    def hangs(self) -> bool:
        """Whether the round under way takes suspiciously long."""
        return self._began_s is not None and self._clock.monotonic_s() - self._began_s > self._hangs_after_s

    async def run(self) -> None:
        """Until `stop`. Raises what a round raised if that happened MAX_FAILURES times in a row."""
        while not self._stopping:
            self._woken.clear()
            pause_s = await self._one_round()
            self._metrics.loop_round(self.name, self._clock.now_ms())
            if pause_s > 0 and not self._stopping:
                await self._sleep(pause_s)
            else:
                await asyncio.sleep(0)

    async def _one_round(self) -> float:
        self._began_s = self._clock.monotonic_s()
        try:
            pause_s = await self._round()
        except RetryLater as error:
            self._metrics.loop_failed(self.name)
            log.warning("loop waits", loop=self.name, code=error.code, failures=self._failures + 1)
            return self._backoff_s()
        except Exception as error:
            self._metrics.loop_failed(self.name)
            log.error("loop failed", loop=self.name, error=type(error).__name__, exc_info=error)  # noqa: TRY400  see above
            pause_s = self._backoff_s()
            if self._failures >= MAX_FAILURES:
                raise
            return pause_s
        finally:
            self._began_s = None
        self._failures = 0
        return self._interval_s if pause_s is None else min(pause_s, self._interval_s)

    def _backoff_s(self) -> float:
        self._failures += 1
        return float(min(_BACKOFF_MAX_S, _BACKOFF_MIN_S * 2 ** min(self._failures - 1, 10)))

    async def _sleep(self, pause_s: float) -> None:
        # Whole milliseconds, rounded up: uvloop rounds to the nearest, and who wakes too early finds nothing due.
        alarm = asyncio.get_running_loop().call_later(math.ceil(pause_s * 1000) / 1000, self._woken.set)
        try:
            await self._woken.wait()
        finally:
            alarm.cancel()


class Loops:
    """Loops that live and die together."""

    def __init__(self, loops: Iterable[Loop]) -> None:
        self._loops = list(loops)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [asyncio.create_task(loop.run(), name=f"loop {loop.name}") for loop in self._loops]
        for task in self._tasks:
            task.add_done_callback(self._ended)

    def sick(self) -> list[str]:
        """Names of loops that are dead or hang; empty if all is well."""
        pairs = zip(self._loops, self._tasks, strict=False)  # no tasks before the start
        return [loop.name for loop, task in pairs if (task.done() and not loop.stopping) or loop.hangs()]

    async def settled(self, loop: Loop, within_s: float = 5.0) -> None:
        """Waits until a stopped loop's last round is over, or `within_s`."""
        for other, task in zip(self._loops, self._tasks, strict=False):
            if other is loop:
                await asyncio.wait([task], timeout=within_s)

    async def stop(self, grace_s: float = 5.0) -> None:
        """Ends every loop after its round under way, or within `grace_s`."""
        for loop, task in zip(self._loops, self._tasks, strict=False):
            loop.stop()
            if loop.interruptible:
                task.cancel()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=grace_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            log.critical("loop died", loop=task.get_name(), error=type(task.exception()).__name__)
