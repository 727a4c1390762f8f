"""Side by side, to the end of each."""

import asyncio

import pytest

from service.together import all_of, both_of


async def test_an_error_is_raised_when_all_have_ended():
    """Else a queue's failure would leave the turns of the others running behind the round's back."""
    ended = []

    async def fails() -> None:
        raise ValueError("first")

    async def takes_its_time() -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        ended.append("slow")

    with pytest.raises(ValueError, match="first"):
        await all_of([fails(), takes_its_time()])
    with pytest.raises(ValueError, match="first"):
        await both_of(takes_its_time(), fails())
    assert ended == ["slow", "slow"]


async def test_results_come_in_order():
    async def later(value: int, turns: int) -> int:
        for _ in range(turns):
            await asyncio.sleep(0)
        return value

    assert await all_of(later(value, 3 - value) for value in range(3)) == [0, 1, 2]
    assert await both_of(later(1, 2), later(2, 0)) == (1, 2)


async def test_a_cancellation_reaches_all():
    cancelled = []

    async def waits(name: str) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(name)
            raise

    task = asyncio.create_task(all_of([waits("one"), waits("other")]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cancelled == ["one", "other"]
