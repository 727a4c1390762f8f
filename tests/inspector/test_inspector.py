"""All layouts at once, beside each other and beside the service at work: none hides another, and none cries wolf."""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from typing import ClassVar

import pytest

from service.errors import RedisUnavailable
from service.inspector.answers import JobDetail, Problem, QueueDetail, QueueSummary
from service.inspector.coatcheck.layout import Coatcheck
from service.inspector.inspector import Inspector
from service.inspector.layout import Look
from service.keys import Keys
from service.records import Failure, Leased
from tests.kit.inspecting import Inspected
from tests.kit.ledgers import QUEUE, Rig, rigged

HOUR_MS = 3_600_000
LOOKS = 10  #: at a service at work


@pytest.fixture
async def rig(inspected: Inspected, inspectors_redis) -> AsyncIterator[Rig]:
    async with rigged(inspectors_redis.url) as rig:
        rig.now_ms = await inspected.now_ms()
        yield rig


class Confused:
    """A layout with a bug: it cannot make sense of any queue."""

    name: ClassVar[str] = "confused"
    checked_against: ClassVar[str] = "nothing"
    error: ClassVar[type[Exception]] = KeyError

    def __init__(self, look: Look) -> None:
        del look

    def hint(self, key: str) -> str | None:
        return key

    async def queues(self, hints: Collection[str]) -> Sequence[str]:
        raise self.error("secret")

    async def has(self, queue: str) -> bool:
        raise self.error("secret")

    async def summary(self, queue: str) -> QueueSummary:
        raise self.error("secret")

    async def detail(self, queue: str) -> QueueDetail:
        raise self.error("secret")

    async def job(self, queue: str, id: str) -> JobDetail | None:  # noqa: A002  the word that every library uses
        raise self.error("secret")

    async def problems(self, queue: str) -> Sequence[Problem]:
        raise self.error("secret")


async def test_a_layout_that_fails_hides_no_other_and_shows_no_value(inspected: Inspected, rig: Rig):
    """What it failed on may be a payload: only the kind of the error is told."""
    job = await rig.inline(due_ms=rig.now_ms + HOUR_MS)
    inspector = Inspector(inspected.transport, Keys(), layouts={"confused": Confused, "coatcheck": Coatcheck})
    overview = await inspector.overview()
    assert [each.states["future"] for each in overview.summaries if each.layout == "coatcheck"] == [1]
    for answers in (overview.summaries, await inspector.queue(QUEUE), await inspector.job(QUEUE, str(job))):
        layouts = {getattr(each, "summary", each).layout: each for each in answers}
        assert set(layouts) == {"confused", "coatcheck"}
        assert [problem.kind for problem in layouts["confused"].problems] == ["inspector-failed"]
        assert "secret" not in repr(answers)
        assert not layouts["coatcheck"].problems
    assert {each.layout for each in await inspector.problems()} == {"confused"}


async def test_a_redis_that_goes_away_is_no_problem_of_a_queue(inspected: Inspected):
    class Away(Confused):
        error = RedisUnavailable

    inspector = Inspector(inspected.transport, Keys(), layouts={"away": Away})
    for look in (inspector.overview(), inspector.queue(QUEUE), inspector.job(QUEUE, "1"), inspector.problems()):
        with pytest.raises(RedisUnavailable):
            await look


async def test_a_service_at_work_has_no_problems(inspected: Inspected, inspectors_redis):
    """Jobs go from set to set between two reads of a look. Whoever is told of trouble that is none stops looking."""
    async with rigged(inspectors_redis.url) as rig:
        rig.now_ms, rig.transport.after = None, None
        inspector = Inspector(inspected.unwatched, Keys())
        stop, states, looks = asyncio.Event(), set(), 0
        working = asyncio.create_task(_work(rig, stop))
        try:
            async with asyncio.timeout(100):
                while looks < LOOKS or not states >= {"delayed", "leased", "dead"}:
                    assert not working.done(), working.exception()
                    problems = [problem for each in await inspector.problems() for problem in each.problems]
                    for job in await _some(rig):
                        for detail in await inspector.job(QUEUE, job):
                            states.add(detail.state)
                            problems += detail.problems
                    assert problems == []
                    looks += 1
        finally:
            stop.set()
            await working


async def _work(rig: Rig, stop: asyncio.Event) -> None:
    """Jobs of both kinds, soon due, delivered, retried, buried, revived, cancelled."""
    held = list[Leased]()
    while not stop.is_set():
        now_ms = rig.now_ms
        inline = [await rig.inline(due_ms=now_ms + 20 * k) for k in range(4)]
        for k in range(4):
            await rig.offloaded(due_ms=now_ms + 20 * k)
        held += (await rig.claim(max_ready=10**6)).leased
        if len(held) > 10:
            await rig.deliver(*held[2:6])
            await rig.ledger.retry(QUEUE, [Failure(held[0], "unavailable", charged=True)], max_attempts=8)
            await rig.ledger.bury(QUEUE, [(held[1], "payload_missing")])
            del held[:6]
            await rig.ledger.revive(QUEUE, (await rig.members("dead"))[5:6])
        await rig.ledger.cancel(inline[3])


async def _some(rig: Rig) -> list[str]:
    return [*(await rig.members("delayed"))[:5], *(await rig.members("leased"))[:5], *(await rig.members("dead"))[:5]]
