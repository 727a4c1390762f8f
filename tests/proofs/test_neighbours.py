"""Queues in trouble beside one that is not, in a process of its own.

Rounds are counted by what they do: the hot queue gets one slice a round. Its ready list is also that of the single
jobs, so that their place in it tells how many hot jobs overtook them, however busy this machine is.
"""

import json

import pytest

from service.wiring import Service
from storage_backends.reference import Reference
from tests.kit.processes import running
from tests.kit.proxy import Proxy
from tests.kit.site import Site, accepted, number_of, payload
from tests.kit.waiting import eventually

HOT, DOWN, WRONG = "a-hot", "down", "wrong"
SINGLES = {-number: f"single-{number}" for number in range(1, 6)}  #: by the number of the one job in it
SHARED = "shared-list"
BACKLOG = 50_000
BATCH = 100
SLICE_JOBS = 4 * BATCH  #: or what 20 ms suffice for, which is fewer
LATE_ROUNDS = 2


@pytest.mark.timeout(120)
async def test_a_single_job_waits_two_rounds_at_most_beside_three_queues_in_trouble(
    site: Site, s3_proxy: Proxy
) -> None:
    """One queue is hours behind, one has lost its backend, one has a ready key that is no list; each of them has
    stopped a whole service somewhere."""
    queues = {HOT: {"ready_key": SHARED, "max_ready": 1_000_000}}
    queues |= {queue: {"ready_key": SHARED, "max_ready": 1_000_000} for queue in SINGLES.values()}
    pace = {"DISPATCHER__BATCH": str(BATCH), "DISPATCHER__COOL_DOWN": "5s", "BREAKER__OPEN": "2s"}
    environ = site.environ(s3_url=s3_proxy.http_url, QUEUES=json.dumps(queues), **pace)
    async with site.producing() as service:
        for queue in (HOT, DOWN, WRONG, *SINGLES.values()):
            await service.ledger.pause(queue)
        await accepted(service, {number: payload(number) for number in range(BACKLOG)}, queue=HOT)
        await accepted(service, {number: payload(number, offloaded=True) for number in range(300)}, queue=DOWN)
        await accepted(service, {number: payload(number) for number in range(300)}, queue=WRONG)
        singles = {}
        for number, queue in SINGLES.items():
            singles |= await accepted(service, {number: payload(number)}, queue=queue)
        await site.redis.set(site.keys.queue(WRONG).ready, "not a list")
        with running(environ, "dispatcher") as dispatcher:
            await dispatcher.is_ready()
            async with s3_proxy.down():
                for queue in (DOWN, WRONG, HOT):
                    await service.ledger.resume(queue)
                await eventually(lambda: site.redis.llen(SHARED), 10, "the hot queue is being worked on")
                ready_when_due = {}
                for number, queue in SINGLES.items():
                    ready_when_due[number] = await released(site, queue)
                    await eventually(
                        lambda: _gone(service, singles[number]),  # noqa: B023  # awaited before the next round
                        10,
                        f"{queue} delivered",
                    )
                assert await site.count("delayed", HOT) > 0, "the backlog was over before it could hold anybody up"
                await eventually(lambda: _length(site, SHARED, BACKLOG + len(SINGLES)), 60, "the backlog is gone")
                places = {
                    number_of(each): at for at, each in enumerate(reversed(await site.redis.lrange(SHARED, 0, -1)))
                }
                overtaken = [places[number] - ready for number, ready in ready_when_due.items()]
                assert max(overtaken) <= (LATE_ROUNDS + 1) * SLICE_JOBS, f"overtaken by {overtaken} jobs"
                print("overtaken by", overtaken, "jobs; a round takes", SLICE_JOBS)
                assert await site.count("delayed", WRONG) == 300
                assert await dispatcher.metric("ready_unusable_total", queue=WRONG) >= 1
            await site.redis.delete(site.keys.queue(WRONG).ready)
            await eventually(lambda: _length(site, site.keys.queue(DOWN).ready, 300), 60, "the backend is back")
            await eventually(lambda: _length(site, site.keys.queue(WRONG).ready, 300), 60, "its cool-down is over")
            assert await dispatcher.metric("buried_total") == 0
            assert await dispatcher.metric("jobs_total", outcome="retried") == 0


async def released(site: Site, queue: str) -> int:
    """What `resume` does, and how long the shared list is at that very moment."""
    due_ms = int((await site.redis.zrange(site.keys.queue(queue).delayed, 0, 0, withscores=True))[0][1])
    async with site.redis.pipeline(transaction=True) as step:
        step.delete(site.keys.queue(queue).paused)
        step.zadd(site.keys.queues, {queue: due_ms})
        step.publish(site.keys.wake, f"{due_ms} {queue}")
        step.llen(SHARED)
        return int((await step.execute())[-1])


async def _gone(service: Service, reference: Reference) -> bool:
    return await service.ledger.lookup(reference) is None


async def _length(site: Site, key: str, count: int) -> bool:
    found = await site.redis.llen(key)
    assert found == count, f"{found} entries"
    return True
