"""Who is still at work."""

import asyncio

from redis.exceptions import RedisError


async def no_task_left() -> None:
    """Fails if a task besides the caller's is alive, after 0.5 s for what was cancelled to end; and cancels it."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    if left:
        _, left = await asyncio.wait(left, timeout=0.5)
    for task in left:
        task.cancel()
    assert not left, f"tasks still alive: {sorted(str(task.get_coro()) for task in left)}"


async def ended(task: asyncio.Task[None]) -> None:
    """Cancels `task` until it is over: redis-py connects by way of `wait_for`, which in Python 3.11 may swallow a
    cancellation. Raises what it raised, unless that came of a Redis that is gone.
    """
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=0.5)
    if not task.cancelled() and (error := task.exception()) and not isinstance(error, RedisError):
        raise error
