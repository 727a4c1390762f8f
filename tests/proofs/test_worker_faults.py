"""20,000 jobs through four workers, while these are killed, stand still, or lose their Redis: each at least once, and
with `once` exactly once but for the window that the README names: jobs in a worker's hands when it died or stood still.
"""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from service.embedded import RedisServer
from tests.kit.crews import QUEUES, a_crew
from tests.kit.waiting import eventually

JOBS = 20_000
pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def effects(own_redis: Callable[..., RedisServer]) -> RedisServer:
    """Where handlers have their effects; nothing happens to it."""
    return own_redis()


@pytest.fixture
def durable(own_redis: Callable[..., RedisServer]) -> RedisServer:
    """What it has answered is on disk: then a restart loses nothing, and whatever is lost is our doing."""
    return own_redis(appendonly=True, appendfsync="always")


@pytest.mark.parametrize("streams", [(), QUEUES], ids=["lists", "streams"])
@pytest.mark.parametrize("once", [False, True], ids=["", "once"])
async def test_workers_killed_again_and_again_lose_no_job(
    server: RedisServer, effects: RedisServer, tmp_path: Path, once: bool, streams: tuple[str, ...]
) -> None:
    rng, at_risk = random.Random(5), set[str]()
    async with a_crew(server, effects, tmp_path, once=once, streams=streams) as crew:
        await crew.load(JOBS)
        for mark in sorted(rng.sample(range(1_000, 18_000), 8)):
            await crew.done(mark)
            victim = rng.randrange(len(crew.workers))
            crew.workers[victim].kill()
            at_risk |= await crew.held_by(crew.workers[victim])
            crew.workers[victim] = crew.another()
        await crew.done(JOBS)
        await crew.settled()
        repeated = await crew.repeated()
    print(f"{len(at_risk)} jobs were in dead hands, {len(repeated)} had their effect again")
    assert at_risk, "the kills hit nobody"
    assert repeated <= at_risk


@pytest.mark.parametrize(
    ("once", "streams"), [(False, ()), (True, ()), (True, QUEUES)], ids=["", "once", "streams once"]
)
async def test_workers_that_stand_still_for_longer_than_the_patience_lose_no_job(
    server: RedisServer, effects: RedisServer, tmp_path: Path, once: bool, streams: tuple[str, ...]
) -> None:
    """A machine that swaps, a laptop that sleeps: others have its jobs when it goes on, and it must notice."""
    at_risk = set[str]()
    async with a_crew(server, effects, tmp_path, once=once, streams=streams) as crew:
        await crew.load(JOBS, takes_s=0.02)
        for number, mark in enumerate((1_000, 6_000, 11_000)):
            await crew.done(mark)
            sleeper = crew.workers[number]
            sleeper.stall()
            held = await crew.held_by(sleeper)
            assert held, "it held nothing"
            at_risk |= held

            async def reaped() -> bool:
                return not await crew.now_held_by(sleeper)  # noqa: B023  # awaited within its round

            await eventually(reaped, 30, "its jobs are others'")
            sleeper.go_on()
        await crew.done(JOBS)
        await crew.settled()
        repeated = await crew.repeated()
        lost = [await worker.metric("worker_taken_for_dead_total") for worker in crew.workers]
    print(f"{len(at_risk)} jobs were in still hands, {len(repeated)} had their effect again, {lost} taken for dead")
    assert all(lost[:3])
    assert repeated <= at_risk


@pytest.mark.parametrize(
    ("once", "streams"), [(False, ()), (True, ()), (True, QUEUES)], ids=["", "once", "streams once"]
)
async def test_a_redis_that_restarts_again_and_again_loses_no_job(
    durable: RedisServer, effects: RedisServer, tmp_path: Path, once: bool, streams: tuple[str, ...]
) -> None:
    """Connections break, scripts are forgotten, answers are missing; and nobody is taken for dead for it."""
    rng = random.Random(7)
    async with a_crew(durable, effects, tmp_path, once=once, streams=streams) as crew:
        await crew.load(JOBS)
        for number, mark in enumerate(sorted(rng.sample(range(1_000, 18_000), 6))):
            await crew.done(mark)
            if number % 2:
                durable.kill()
            durable.restart()
            await crew.redis.connection_pool.disconnect()
        await crew.done(JOBS)
        await crew.settled()
        repeated = await crew.repeated()
        reaped = sum([await worker.metric("worker_reaped_total") for worker in crew.workers])
        for worker in crew.workers:
            await worker.answers("/healthz")
    print(f"{len(repeated)} had their effect again, {reaped} jobs were returned")
    assert reaped == 0
    assert not repeated


async def test_what_stops_in_order_repeats_nothing(server: RedisServer, effects: RedisServer, tmp_path: Path) -> None:
    """A deployment is the usual way for a worker to end."""
    async with a_crew(server, effects, tmp_path, once=False) as crew:
        await crew.load(JOBS // 2)
        for mark in (1_000, 3_000, 5_000, 7_000):
            await crew.done(mark)
            assert await crew.workers[0].stopped() == 0
            crew.workers = [*crew.workers[1:], crew.another()]
        await crew.done(JOBS // 2)
        await crew.settled()
        assert not await crew.repeated()
        for queue in QUEUES:
            assert not await crew.redis.exists(crew.keys.queue(queue).strikes)
