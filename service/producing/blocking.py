"""`SyncProducer`: a producer for code that does not await."""

import os
import weakref
from collections.abc import Mapping, Sequence
from threading import Lock
from types import TracebackType
from typing import Any, Final, TypeVar

from service.envelope import MAX_RETRIES
from service.intake import NewJob
from service.producer import Accepted, Answer
from service.producing.engine import Engine, Work
from service.producing.opening import START_WITHIN_S
from service.settings import Settings
from service.times import Delay, Due

T = TypeVar("T")


class SyncProducer:
    """As `Producer`: the same methods, answers and errors; each call blocks its thread until it has its answer.

    Safe to share between threads, and across fork: make it at import, in a prefork server, too. Nothing is opened
    before the first call of a process, and a child opens its own connections. Not for coroutines: it would hold up
    their loop; they have open_producer.
    """

    def __init__(
        self, settings: Settings | Mapping[str, str] | None = None, *, within_s: float = START_WITHIN_S
    ) -> None:
        """As open_producer, but that nothing is opened yet: what that raises, the first call raises, and each one that
        follows tries again. Need not be closed: a process may just end.
        """
        self._keeper = keeper = _Keeper(settings, within_s)
        _KEEPERS.add(keeper)
        self._closing = weakref.finalize(self, keeper.close)
        #: When the process ends, no call is under way, there is nothing to be written, and Python starts no thread that
        #: a backend may need to close in good order: the system closes what is open.
        self._closing.atexit = False

    def enqueue(
        self,
        payload: bytes,
        *,
        queue: str,
        delay: Delay | None = None,
        due: Due | None = None,
        tenant: str | None = None,
        idempotency_key: str | None = None,
    ) -> Accepted:
        """Accept one job. Raises CoatcheckError; only after OutcomeUnknown may there be a job all the same."""
        return self._keeper.call(
            lambda producer: producer.enqueue(
                payload, queue=queue, delay=delay, due=due, tenant=tenant, idempotency_key=idempotency_key
            )
        )

    def enqueue_task(
        self,
        type_: str,
        payload: Any,
        *,
        queue: str,
        delay: Delay | None = None,
        due: Due | None = None,
        max_retries: int = MAX_RETRIES,
        tenant: str | None = None,
        idempotency_key: str | None = None,
    ) -> Accepted:
        """Accept one task for workers. As `Producer.enqueue_task`."""
        return self._keeper.call(
            lambda producer: producer.enqueue_task(
                type_,
                payload,
                queue=queue,
                delay=delay,
                due=due,
                max_retries=max_retries,
                tenant=tenant,
                idempotency_key=idempotency_key,
            )
        )

    def enqueue_many(self, jobs: Sequence[NewJob]) -> list[Answer]:
        """One answer a job, in order; a job that is refused fails alone."""
        return self._keeper.call(lambda producer: producer.enqueue_many(jobs))

    def close(self) -> None:
        """Waits for the calls under way in other threads. Idempotent; a call that follows raises RuntimeError."""
        self._closing()

    def __enter__(self) -> "SyncProducer":
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.close()


class _Keeper:
    """The engine of this process, made when it is needed. Outlives its SyncProducer, so that its end can be seen to."""

    def __init__(self, settings: Settings | Mapping[str, str] | None, within_s: float) -> None:
        self._settings = settings
        self._within_s = within_s
        self._lock = Lock()
        self._engine: Engine | None = None
        self._closed = False

    def call(self, work: Work[T]) -> T:
        with self._lock:  # so that nothing is submitted to an engine that closes
            future = self._started().submit(work)
        try:
            return future.result()
        except BaseException:  # Ctrl-C, for one: as when a coroutine is cancelled
            future.cancel()
            raise

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._engine is not None:
                self._engine.close()
                self._engine = None

    def forget(self) -> None:
        """In a child, right after the fork. Whoever held the lock is not here to release it."""
        self._lock = Lock()
        if self._engine is not None:
            self._engine.forget()
            _INHERITED.append(self._engine)
            self._engine = None

    def _started(self) -> Engine:
        if self._closed:
            raise RuntimeError("this producer is closed")
        if self._engine is not None and self._engine.pid != os.getpid():
            self.forget()  # uWSGI forks without a word to Python, unless it is told to
        if self._engine is None:
            self._engine = Engine(self._settings, self._within_s)
            try:
                self._engine.start()
            except BaseException:
                self._engine = None
                raise
        return self._engine


#: Of this process. Python never lets go of what is registered for a fork: it gets one hook, which holds nobody.
_KEEPERS: Final[weakref.WeakSet[_Keeper]] = weakref.WeakSet()
_INHERITED: Final[list[Engine]] = []  #: of parents; never collected: a loop that seems to run complains of its end


def _forget_the_parents() -> None:
    for keeper in list(_KEEPERS):
        keeper.forget()


os.register_at_fork(after_in_child=_forget_the_parents)
