"""Answers of Redis that get lost, at random, while the whole service runs behind a proxy.

What is lost is the reply alone: Redis has carried the request out. Who then repeats it blindly does it twice; who does
not, loses it.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import httpx
import pytest

from tests.kit.callers import Answers, judge, send_all
from tests.kit.processes import running
from tests.kit.proxy import Proxy, Trap
from tests.kit.site import Site, consuming, mixed
from tests.kit.waiting import eventually

JOBS = 400


@asynccontextmanager
async def losing_replies(
    proxy: Proxy, rng: random.Random, share: float, *, silently: bool
) -> AsyncIterator[list[Trap]]:
    """Of the scripts that pass, this share loses its reply; the connection then drops, or falls silent."""
    lost: list[Trap] = []

    def unlucky(request: bytes) -> bool:
        return b"EVALSHA" in request and rng.random() < share

    async def lose() -> None:
        while True:
            trap = proxy.swallow_reply(unlucky, then_silence=silently)
            lost.append(trap)
            await eventually(lambda: trap.sprung, 3600, "a reply is lost")  # noqa: B023  # awaited before the next round

    losing = [asyncio.create_task(lose()) for _ in range(3)]
    try:
        yield lost
    finally:
        for task in losing:
            task.cancel()
        for task in losing:
            with suppress(asyncio.CancelledError):
                await task
        for trap in lost:
            trap.disarm()


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("seed", "silently"), [(1, False), (2, False), (3, True)])
async def test_every_answer_is_true_while_replies_of_redis_get_lost(
    site: Site, redis_faults: Proxy, seed: int, silently: bool
) -> None:
    """With due = now, a schedule that is repeated finds its job delivered already, and delivers it again."""
    answers, rng = Answers(), random.Random(seed)
    timeouts = {"REDIS__TIMEOUT": "500ms"}
    with running(site.environ(redis_url=redis_faults.url, **timeouts)) as everything:
        async with consuming(site) as consumer:
            await everything.is_ready()
            async with losing_replies(redis_faults, rng, 0.1, silently=silently) as lost:
                await send_all(everything.url, mixed(range(JOBS)), answers)
                await consumer.has(len(answers.accepted), within_s=60)
            assert sum(trap.sprung for trap in lost) >= 20, "hardly a reply was lost"
            assert len(answers.accepted) >= JOBS / 2, "hardly a job was accepted"
            assert not answers.unanswered
            async with httpx.AsyncClient(base_url=everything.url, timeout=30) as http:
                for reference in answers.unknown.values():  # settles what is unknown: after this, it never arrives
                    assert (await http.delete(f"/v1/jobs/{reference}")).status_code in (200, 404)
            before = set(consumer.got)
            abandoned = await everything.metric("uploads_abandoned_total", backend="s3")
            await site.nothing_left(hurried=True, orphans=len(answers.unknown) + round(abandoned))
            assert set(consumer.got) - before <= set(answers.accepted)
            judge(consumer, answers)
