"""`Worker`: the handlers of an application, by the type of their tasks."""

from collections.abc import Callable
from typing import TypeVar

from service.envelope import MAX_NAME
from service.worker.tasks import Duration, Handler, Task, task_of
from storage_backends.reference import check_queue

H = TypeVar("H", bound=Handler)


class Worker:
    """What `coatcheck worker module:app` runs.

        worker = Worker()

        @worker.task("send_email", timeout="30s")
        async def send_email(email: Email, context: Context) -> None: ...

    A handler takes the task's payload, checked against its annotation, and, if it has a parameter of that type, the
    Context. Plain functions run in threads, as many at once as the worker's concurrency.
    """

    def __init__(self) -> None:
        self._tasks: dict[str, Task] = {}
        self._raw: dict[str, Task] = {}

    def task(
        self,
        type_: str,
        *,
        timeout: Duration | None = None,
        once: Duration | None = None,
        backoff: tuple[Duration, Duration] | None = None,
    ) -> Callable[[H], H]:
        """Registers the handler of a type. Raises TypeError, ValueError at import, not when the first job comes.

        `timeout`: of one attempt. A coroutine is cancelled; a thread cannot be: the attempt has failed, and its slot
        is free again when the thread ends. `once`: for so long after a job is finished, no other with its id is run.
        `backoff`: the shortest and the longest pause before a retry, in place of the settings'.
        """

        _check_type(type_)

        def register(handler: H) -> H:
            if type_ in self._tasks:
                raise ValueError(f"two handlers for {type_!r}")
            self._tasks[type_] = task_of(handler, type_, timeout=timeout, once=once, backoff=backoff)
            return handler

        return register

    def raw(
        self,
        queue: str,
        *,
        timeout: Duration | None = None,
        once: Duration | None = None,
        backoff: tuple[Duration, Duration] | None = None,
    ) -> Callable[[H], H]:
        """Registers the handler of what is no envelope in this queue; it is handed the bytes as they are.

        Such a payload has no id: its context's is the payload's SHA-1, and equal payloads share it, their count of
        attempts and a `once`.
        """
        check_queue(queue)

        def register(handler: H) -> H:
            if queue in self._raw:
                raise ValueError(f"two handlers for what is no envelope in {queue!r}")
            named = f"raw:{queue}"
            self._raw[queue] = task_of(handler, named, timeout=timeout, once=once, backoff=backoff, raw=True)
            return handler

        return register

    @property
    def types(self) -> list[str]:
        """Those with a handler."""
        return sorted(self._tasks)

    def find(self, type_: str) -> Task | None:
        return self._tasks.get(type_)

    def find_raw(self, queue: str) -> Task | None:
        return self._raw.get(queue)


def _check_type(type_: str) -> None:
    """One that an envelope can have, and a metric's label."""
    if not isinstance(type_, str):
        raise TypeError('a task has a type: @worker.task("send_email")')
    if not 0 < len(type_) <= MAX_NAME or type_ != type_.encode(errors="replace").decode():
        raise ValueError(f"a task's type is a text of 1 to {MAX_NAME} characters, and none of them a lone surrogate")
