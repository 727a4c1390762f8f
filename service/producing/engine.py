"""An event loop in a thread of its own, with a producer in it."""

import asyncio
import os
import selectors
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from threading import Thread
from typing import Any, Final, TypeVar

from service.producer import Producer
from service.producing.opening import open_producer
from service.settings import Settings

T = TypeVar("T")
Work = Callable[[Producer], Coroutine[Any, Any, T]]

#: Calls under way end within their own timeouts; whoever ends the process does not wait for longer than this.
_CLOSE_S: Final = 30.0


class Engine:
    """Built, started, closed by one process. A child of that process may only `forget` it."""

    def __init__(self, settings: Settings | Mapping[str, str] | None, within_s: float) -> None:
        self.pid = os.getpid()
        self._settings = settings
        self._within_s = within_s
        #: poll() keeps its list in this process. An epoll instance would be shared with every child, and a child that
        #: closed its copy of a connection would make the parent deaf to its own.
        self._selector = selectors.PollSelector()
        self._ready: Future[asyncio.AbstractEventLoop] = Future()
        self._calls: set[asyncio.Task[Any]] = set()
        self._thread = Thread(target=self._run, name="coatcheck producer", daemon=True)

    def start(self) -> None:
        """Blocks until jobs can be accepted. Raises as open_producer does; then nothing is left of it."""
        self._thread.start()
        try:
            self._loop = self._ready.result()
        except BaseException:
            self._ready.cancel()  # Ctrl-C, for one: it will close itself
            raise

    def submit(self, work: Work[T]) -> Future[T]:
        """Begins a call. No `close` is under way or was."""
        return asyncio.run_coroutine_threadsafe(self._tracked(work), self._loop)

    def close(self) -> None:
        """Waits for the calls under way, and closes every connection. No call follows."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_CLOSE_S)

    def forget(self) -> None:
        """In a child, right after the fork: lets go of the parent's connections without a word on any of them.

        Their descriptors lead nowhere from now on: what is collected later cannot say goodbye in the parent's name.
        """
        nowhere = os.open(os.devnull, os.O_RDWR)
        for key in list((self._selector.get_map() or {}).values()):
            os.dup2(nowhere, key.fd)
        os.close(nowhere)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(self._selector)) as runner:
            try:
                runner.run(self._serve())
            except BaseException as error:
                if self._ready.cancelled():
                    return
                if self._ready.done():
                    raise
                self._ready.set_exception(error)

    async def _serve(self) -> None:
        async with open_producer(self._settings, within_s=self._within_s) as self._producer:
            self._stop = asyncio.Event()
            if not self._ready.set_running_or_notify_cancel():
                return
            self._ready.set_result(asyncio.get_running_loop())
            await self._stop.wait()
            await asyncio.gather(*self._calls, return_exceptions=True)

    async def _tracked(self, work: Work[T]) -> T:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  for the type checker: coroutines run in tasks
        self._calls.add(task)
        try:
            return await work(self._producer)
        finally:
            self._calls.discard(task)
