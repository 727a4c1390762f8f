"""What advise says of a Redis whose contents are known: exactly where all was read, else within its interval."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from redis.asyncio import Redis

from service.advisor.estimates import Estimate
from service.advisor.grid import Thresholds
from service.advisor.report import Question, Report, report
from service.advisor.survey import Extent, Survey, survey
from service.keys import Keys
from service.transport import Transport, connect
from tests.kit.backlogs import FILLERS, Known, bullmq, celery, coatcheck, known, sidekiq
from tests.kit.inspecting import Inspected
from tests.kit.servers import client_of

HOUR_MS = 3_600_000
SHAPES = {
    "uniform": lambda chance: chance.uniform(400, 20_000),
    "lognormal": lambda chance: chance.lognormvariate(7.5, 1.3),
    "pareto": lambda chance: 400 * chance.paretovariate(1.3),
    "two kinds": lambda chance: 60_000 if chance.random() < 0.05 else 500,
}
#: Layouts that tell the delay that was asked for; the others tell what is left of it.
TELLING = {"coatcheck", "bullmq", "celery", "rq", "sidekiq"}


async def surveyed(inspected: Inspected, jobs: int = 10_000, **extent: Any) -> Survey:
    return await survey(inspected.transport, Keys(), Extent(jobs, seed=1, **extent))


async def told(inspected: Inspected, jobs: int = 10_000, **question: Any) -> Report:
    return report(await surveyed(inspected, jobs), Question(**question))


def holds(estimate: Estimate, truth: float) -> bool:
    return estimate.low <= truth <= estimate.high


@asynccontextmanager
async def plainly(url: str) -> AsyncIterator[tuple[Redis, Transport]]:
    """With all rights, and nobody who watches."""
    pool = connect(url, timeout_s=10, max_connections=4)
    try:
        async with client_of(url) as redis:
            yield redis, Transport(pool)
    finally:
        await pool.disconnect()


async def fill(inspected: Inspected, layout: str, contents: Known) -> None:
    await FILLERS[layout](inspected.redis, contents, await inspected.now_ms())


@pytest.mark.parametrize("layout", FILLERS)
async def test_what_was_read_as_a_whole_is_told_exactly(inspected: Inspected, layout):
    """Each library keeps size and delay in its own way; the figures are those that were put in."""
    contents = known(600, SHAPES["lognormal"])
    await fill(inspected, layout, contents)
    found = await told(inspected, delays_ms=[HOUR_MS, 24 * HOUR_MS], sizes_bytes=[4096])
    assert {it.layout for it, _ in found.survey.sets} == {layout}
    assert found.problems == []
    assert found.delayed_jobs == Estimate(600, 600, 600)
    assert found.payload_bytes == Estimate(*[contents.payload_bytes] * 3)
    assert found.unrecorded.point == (0 if layout in TELLING else 600)
    delays = contents.delays_ms if layout in TELLING else contents.waits_ms
    for outcome in found.grid:
        assert outcome.thresholds is not None
        gone = [
            size
            for size, delay in zip(contents.sizes_bytes, delays, strict=True)
            if outcome.thresholds.offloads(size, delay)
        ]
        assert 0 < len(gone) < 600
        assert outcome.s3_bytes.point == sum(gone)
    assert sum(it.jobs.point for it in found.cells) == pytest.approx(600)
    assert sum(it.payload_bytes.point for it in found.cells) == pytest.approx(contents.payload_bytes)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("layout", ["coatcheck", "asynq", "sidekiq"])
async def test_a_sample_s_interval_holds_what_is_there(inspected: Inspected, layout, shape):
    """Drawn again and again from one Redis. Of a hundred of these, the test of the estimator alone allows five."""
    contents = known(4_000, SHAPES[shape], seed=len(shape))
    await fill(inspected, layout, contents)
    delays = contents.waits_ms if layout == "asynq" else contents.delays_ms
    pair = Thresholds(4096, 24 * HOUR_MS)
    gone = sum(size for size, delay in zip(contents.sizes_bytes, delays, strict=True) if pair.offloads(size, delay))
    question = Question(sizes_bytes=[], delays_ms=[], present=pair)
    held = kept = 0
    async with inspected.unchanged():
        for seed in range(10):
            found = report(await survey(inspected.unwatched, Keys(), Extent(400, seed=seed)), question)
            assert found.survey.sample.size == 400
            (outcome,) = found.grid
            held += holds(found.payload_bytes, contents.payload_bytes)
            kept += holds(outcome.s3_bytes, gone)
    assert held >= 9
    assert kept >= 9


async def test_all_libraries_in_one_redis_are_told_apart(inspected: Inspected):
    total = 0
    for at, layout in enumerate(FILLERS):
        contents = known(150 + at, SHAPES["lognormal"], seed=at)
        await fill(inspected, layout, contents)
        total += contents.payload_bytes
    found = await told(inspected)
    assert {it.layout for it, _ in found.survey.sets} == set(FILLERS)
    assert found.payload_bytes.point == total
    assert found.problems == []


@pytest.mark.parametrize("layout", FILLERS)
async def test_the_model_of_memory_is_near_what_redis_itself_sees(own_redis, layout):
    """A server that holds these jobs and nothing else: what it uses, by its own word, is what they take."""
    contents = known(4_000, SHAPES["uniform"])
    async with plainly(own_redis().url) as (redis, transport):
        before = (await redis.info("memory"))["used_memory"]
        await FILLERS[layout](redis, contents, (await redis.time())[0] * 1000)
        taken = (await redis.info("memory"))["used_memory"] - before
        found = report(await survey(transport, Keys()), Question())
    # A smaller process's noise, and Celery's other messages, which are no delayed jobs.
    assert found.held_bytes.point == pytest.approx(taken, rel=0.12 if layout == "celery" else 0.05)


async def test_prefixes_and_namespaces_are_found(inspected: Inspected):
    now_ms, contents = await inspected.now_ms(), known(50, SHAPES["uniform"])
    await bullmq(inspected.redis, contents, now_ms, queue="q", prefix="{shop}")
    await celery(inspected.redis, contents, now_ms, prefix="site1.")
    await sidekiq(inspected.redis, contents, now_ms, namespace="app:")
    found = await told(inspected)
    assert sorted(it.key for it, _ in found.survey.sets) == [
        "app:retry",
        "app:schedule",
        "site1.unacked_index",
        "{shop}:q:delayed",
    ]
    assert found.payload_bytes.point == 3 * contents.payload_bytes


async def test_sorted_sets_of_others_are_left_alone(inspected: Inspected):
    """A set that happens to be called `retry` is no reason to count its members as payloads."""
    await inspected.redis.zadd("backup:schedule", {"monday": 1})
    await inspected.redis.zadd("game:scores:delayed", {"alice": 7})
    await inspected.redis.zadd("retry", {"not a job": 1})
    found = await told(inspected)
    assert found.survey.sets == []
    assert found.payload_bytes == Estimate(0, 0, 0)


async def test_many_queues_share_the_sample(inspected: Inspected):
    """Beyond 64 sets the short ones are one stratum: 300 queues cost no more than one."""
    now_ms, total = await inspected.now_ms(), 0
    chance = random.Random(5)
    for at in range(300):
        contents = known(chance.randrange(1, 30), SHAPES["lognormal"], seed=at)
        total += contents.payload_bytes
        await coatcheck(inspected.redis, contents, now_ms, queue=f"q{at}")
    found = await told(inspected, jobs=1500)
    assert found.survey.sample.size <= 1500 + 64
    assert holds(found.payload_bytes, total)


async def test_requests_are_those_of_a_steady_state(inspected: Inspected):
    """1,000 jobs that wait an hour each, at any moment of it, are 1,000 an hour: told by the delay, or by the flow."""
    chance = random.Random(2)
    waits = [chance.randrange(HOUR_MS) for _ in range(1_000)]
    steady = Known([2_000] * 1_000, [HOUR_MS] * 1_000, waits)
    a_month = 1_000 * 730.5
    await fill(inspected, "coatcheck", steady)
    (outcome,) = (await told(inspected, present=Thresholds(1024, 0), sizes_bytes=[], delays_ms=[])).grid
    assert outcome.offloaded_a_month.point == pytest.approx(a_month, rel=0.01)
    await inspected.redis.flushall()
    await fill(inspected, "asynq", steady)
    (outcome,) = (await told(inspected, present=Thresholds(1024, 0), sizes_bytes=[], delays_ms=[])).grid
    assert outcome.offloaded_a_month.point == pytest.approx(a_month, rel=0.02)


async def test_large_members_are_read_within_a_bound(inspected: Inspected):
    """In some layouts the member is the payload: what may be read of it is settled beforehand, whatever it holds."""
    contents = known(300, lambda chance: 100_000 + 100_000 * chance.random())
    await fill(inspected, "rtq", contents)
    found = report(await surveyed(inspected, reply_bytes=8 * 2**20), Question())
    assert 20 < found.survey.sample.size < 150
    assert any("--most-bytes" in it for it in found.problems)
    assert holds(found.payload_bytes, contents.payload_bytes)


async def test_no_look_holds_redis_up(inspected: Inspected):
    """Over 40,000 jobs no command takes longer than 5 ms; best of four, for the machine may be busy with others."""
    contents = known(40_000, lambda chance: chance.uniform(400, 1_200))
    await fill(inspected, "coatcheck", contents)
    await inspected.redis.config_set("slowlog-log-slower-than", 5_000)
    for _ in range(4):
        await inspected.redis.slowlog_reset()
        found = await told(inspected)
        assert holds(found.payload_bytes, contents.payload_bytes)
        commands = [it["command"] for it in await inspected.redis.slowlog_get()]
        slow = [it for it in commands if not it.startswith((b"DEBUG", b"CONFIG"))]
        if not slow:
            break
    assert slow == []


async def test_jobs_that_leave_meanwhile_are_no_fault(redis_client, redis_url):
    """A set that shrinks under the reader: fewer are read, nothing fails."""
    await FILLERS["rtq"](redis_client, known(3_000, SHAPES["uniform"]), 1_764_547_200_000)

    async def drain() -> None:
        for _ in range(30):
            await redis_client.zpopmin("rtq:queue:reports:delayed", 100)

    async with plainly(redis_url) as (_, transport):
        found, _ = await asyncio.gather(survey(transport, Keys()), drain())
    assert found.sample.size < 3_000
    assert report(found, Question()).problems == []
