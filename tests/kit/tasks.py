"""Who is still at work."""

import asyncio


async def no_task_left() -> None:
    """Fails if a task besides the caller's is alive, after 0.5 s for what was cancelled to end; and cancels it."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    if left:
        _, left = await asyncio.wait(left, timeout=0.5)
    for task in left:
        task.cancel()
    assert not left, f"tasks still alive: {sorted(str(task.get_coro()) for task in left)}"
