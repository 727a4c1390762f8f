"""Waiting without sleeping: for a condition that has a name, with a deadline."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def eventually(
    condition: Callable[[], T | Awaitable[T]], within_s: float = 10, described: str = "the condition holds"
) -> T:
    """The first true value of `condition`, a function or coroutine function. An AssertionError in it means: not yet.

    Fails with `described` and the last value after `within_s`. The condition is asked at least once, and once more
    after the deadline, so that a machine that stood still fails nobody.
    """
    deadline = time.monotonic() + within_s
    pause_s = 0.002
    while True:
        last_try = time.monotonic() >= deadline
        value, seen = await _ask(condition)
        if value:
            return value
        if last_try:
            raise AssertionError(f"not within {within_s} s: {described}; the last look saw {seen}")
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 1.5, 0.05)


async def _ask(condition: Callable[[], T | Awaitable[T]]) -> tuple[T | None, str]:
    try:
        answer = condition()
        value = await answer if inspect.isawaitable(answer) else answer
    except AssertionError as error:
        return None, f"{error}"
    return value, repr(value)
