"""Tasks: what a worker knows how to do, what a handler is told, and what it may answer with."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from pydantic import TypeAdapter

from service.times import MAX_AHEAD_MS
from service.units import parse_duration_ms

Handler = Callable[..., Any]
Duration = str | timedelta


@dataclass(frozen=True, slots=True)
class Context:
    """What a handler may ask about its job. Given to a parameter that is annotated with this class."""

    id: str  #: the same in every attempt
    attempt: int  #: 0 the first time
    queue: str
    task: str  #: empty for a payload that is no envelope
    max_retries: int


class Retry(Exception):
    """Raised by a handler: not now, try again. Counts as an attempt; `after` takes the place of the backoff."""

    after_ms: int | None = None  #: also of a subclass that calls no __init__ of this one

    def __init__(self, reason: str = "", *, after: Duration | None = None) -> None:
        super().__init__(reason)
        self.after_ms = None if after is None else milliseconds(after)


class Discard(Exception):
    """Raised by a handler: this job is over, whatever it was. It is neither retried nor kept."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential, with full jitter: what failed together does not come back together."""

    min_ms: int
    max_ms: int

    def wait_ms(self, attempt: int, chance: float) -> int:
        """Before the retry of attempt number `attempt`, counted from 0; `chance` is in [0, 1)."""
        return int(min(self.max_ms, self.min_ms * 2 ** min(attempt, 40)) * chance)


@dataclass(frozen=True, slots=True)
class Task:
    """One handler and how it is to be run."""

    name: str
    handler: Handler
    is_async: bool
    context_name: str | None  #: of the parameter that takes the context
    payload_name: str | None  #: of the one that takes the payload
    model: TypeAdapter[Any] | None  #: what the payload must be
    timeout_s: float | None
    once_ms: int
    backoff: Backoff | None

    def arguments(self, payload: Any, context: Context) -> dict[str, Any]:
        """What the handler is called with. Raises pydantic's ValidationError."""
        given: dict[str, Any] = {}
        if self.payload_name is not None:
            given[self.payload_name] = payload if self.model is None else self.model.validate_python(payload)
        if self.context_name is not None:
            given[self.context_name] = context
        return given


def task_of(
    handler: Handler,
    name: str,
    *,
    timeout: Duration | None = None,
    once: Duration | None = None,
    backoff: tuple[Duration, Duration] | None = None,
    raw: bool = False,
) -> Task:
    """A task from a handler. `raw`: its payload is bytes. Raises TypeError for a handler that cannot be called so."""
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise TypeError(f"{name}: a handler with a yield is a generator, which nobody iterates over")
    context_name, payload_name, hint = _parameters(handler, name)
    if raw and hint not in (bytes, Any):
        raise TypeError(f"{name}: what is no envelope is handed over as bytes")
    return Task(
        name=name,
        handler=handler,
        is_async=inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__),
        context_name=context_name,
        payload_name=payload_name,
        model=None if raw or hint is Any else TypeAdapter(hint),
        timeout_s=None if timeout is None else _positive(timeout) / 1000,
        once_ms=0 if once is None else _positive(once),
        backoff=None if backoff is None else _backoff(name, backoff),
    )


def milliseconds(duration: Duration) -> int:
    """Of `30s` or a timedelta. Raises ValueError: negative, more than ten years, or no duration."""
    ms = parse_duration_ms(duration) if isinstance(duration, str) else round(duration / timedelta(milliseconds=1))
    if ms < 0:
        raise ValueError("a duration is not negative")
    if ms > MAX_AHEAD_MS:
        raise ValueError("a duration is at most ten years")
    return ms


def _backoff(name: str, pair: tuple[Duration, Duration]) -> Backoff:
    if isinstance(pair, (str, timedelta)) or len(pair) != 2:  # what an application gives nobody has checked
        raise TypeError(f'{name}: backoff is the shortest and the longest pause, as ("1s", "10m")')
    return Backoff(*map(_positive, pair))


def _positive(duration: Duration) -> int:
    return max(1, milliseconds(duration))


_ANY: Final[tuple[inspect._ParameterKind, ...]] = (
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY,
)


def _parameters(handler: Handler, name: str) -> tuple[str | None, str | None, Any]:
    """Names of those that take the context and the payload, and what the latter must be."""
    context_name = payload_name = None
    hint: Any = Any
    for parameter in inspect.signature(handler, eval_str=True).parameters.values():
        if parameter.annotation is Context:
            context_name = parameter.name
        elif payload_name is None and parameter.kind in _ANY:
            payload_name = parameter.name
            hint = Any if parameter.annotation is parameter.empty else parameter.annotation
        elif parameter.default is parameter.empty and parameter.kind in _ANY:
            raise TypeError(f"{name}: a handler takes a payload and perhaps a Context, and no {parameter.name}")
    return context_name, payload_name, hint
