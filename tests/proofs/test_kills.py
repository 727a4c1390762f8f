"""`kill -9`, at the worst moments that we can find."""

import random
from contextlib import ExitStack

import pytest

from service.wiring import Service
from tests.kit.processes import Process, running
from tests.kit.site import QUEUE, Site, accepted, consuming, mixed
from tests.kit.waiting import eventually


async def loaded(service: Service, numbers: range) -> None:
    """All of these due, and not yet dispatched: half inline, half offloaded."""
    await service.ledger.pause(QUEUE)
    await accepted(service, mixed(numbers))


@pytest.mark.timeout(420)
async def test_a_dispatcher_killed_among_20000_due_jobs_loses_none_and_doubles_none(site: Site) -> None:
    """Popping before pushing loses what a crash had in hand, pushing before popping repeats it; and what a dead process
    was about to delete must not stay for ever."""
    numbers = range(20_000)
    with running(site.environ(), "dispatcher") as doomed, running(site.environ(), "dispatcher") as survivor:
        async with site.producing() as service, consuming(site) as consumer:
            await loaded(service, numbers)
            await doomed.is_ready()
            await survivor.is_ready()
            await service.ledger.resume(QUEUE)
            await consumer.has(13_000, within_s=120)
            doomed.kill()
            held = await site.count("leases")
            assert held > 0, "the kill hit nobody: no job was leased"
            await consumer.has(len(numbers), within_s=120)
            await eventually(
                lambda: survivor.metric("jobs_total", outcome="expired"), described="leases were reclaimed"
            )
            await site.nothing_left()
            consumer.exactly(numbers)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("seed", [1, 2])
async def test_dispatchers_killed_again_and_again_still_deliver_each_job_once(site: Site, seed: int) -> None:
    """One kill hits one place between two awaits; many at random moments hit more of them."""
    rng = random.Random(seed)
    numbers = range(4_000)
    environ = site.environ(DISPATCHER__LEASE="1s", DISPATCHER__FETCH_TIMEOUT="500ms", RETRY__MAX_EXPIRIES="1000")
    kills = 0
    with ExitStack() as processes:
        async with site.producing() as service, consuming(site) as consumer:
            await loaded(service, numbers)
            pair: list[Process] = [processes.enter_context(running(environ, "dispatcher")) for _ in range(2)]
            for process in pair:
                await process.is_ready()
            await service.ledger.resume(QUEUE)
            for mark in sorted(rng.sample(range(1900, 3_800), 8)):
                await consumer.has(mark, within_s=60)
                victim = rng.randrange(2)
                pair[victim].kill()
                kills += 1
                pair[victim] = processes.enter_context(running(environ, "dispatcher"))
            await consumer.has(len(numbers), within_s=60)
            await site.nothing_left(hurried=True)
            consumer.exactly(numbers)
    assert kills == 8
