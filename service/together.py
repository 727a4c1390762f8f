"""Coroutines run side by side, of which all end before the first error is raised: one's failure cuts nobody short."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")


async def all_of(coroutines: Iterable[Coroutine[None, None, T]]) -> list[T]:
    """Their results, in order. Raises the first error in that order."""
    results = await asyncio.gather(*coroutines, return_exceptions=True)
    return [_result(each) for each in results]


async def both_of(one: Coroutine[None, None, T], other: Coroutine[None, None, U]) -> tuple[T, U]:
    """The same of two that return different things."""
    first, second = await asyncio.gather(one, other, return_exceptions=True)
    return _result(first), _result(second)


def _result(ended: T | BaseException) -> T:
    if isinstance(ended, BaseException):
        raise ended
    return ended
