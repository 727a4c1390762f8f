"""Who works on a queue of Coatcheck's: what the inspector tells is what sources wrote, of lists and of streams."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from service.embedded import RedisServer
from service.inspector.answers import Problem, QueueDetail
from service.inspector.coatcheck.layout import Coatcheck
from service.inspector.times import Moment
from service.keys import Keys
from service.worker.source import Finished
from tests.kit.inspecting import Inspected
from tests.kit.sources import GROUP, KINDS, QUEUE, Rig, rigged, taken

DUE_MS = 1_900_000_000_000


@pytest.fixture(params=KINDS)
async def rig(
    request: pytest.FixtureRequest, inspected: Inspected, inspectors_redis: RedisServer
) -> AsyncIterator[Rig]:
    """Sources on the server that inspectors look at."""
    async with rigged(inspectors_redis.url, request.param) as rig:
        yield rig


async def detail(inspected: Inspected, rig: Rig) -> QueueDetail:
    return await (await inspected.look(Coatcheck, keys=rig.keys)).detail(QUEUE)


async def problems(inspected: Inspected, keys: Keys) -> dict[str, Problem]:
    found = await (await inspected.look(Coatcheck, keys=keys)).problems(QUEUE)
    return {problem.kind: problem for problem in found}


def shown(entries: Any) -> list[str]:
    return [entry.facts["payload"].shown for entry in entries]


async def test_a_queue_says_who_works_on_it_and_what_they_have_in_hand(inspected: Inspected, rig: Rig) -> None:
    await rig.push(*(b"%d" % n for n in range(9)))
    one, other = await rig.source(), await rig.source()
    await taken(one, 3)
    told = await detail(inspected, rig)
    assert told.facts["workers"] == {"said_to_live": 2, "overdue": 0, "taken_for_dead": 0}
    assert (told.facts["in_hand"], told.facts["suspects"]) == (3, 0)
    assert str(told.facts[f"worker {one.worker}"]).startswith("3 in hand, to be heard of within ")
    assert str(told.facts[f"worker {other.worker}"]).startswith("0 in hand, ")
    assert told.problems == ()
    assert await problems(inspected, rig.keys) == {}


async def test_what_is_ready_is_counted_as_the_service_counts_it(inspected: Inspected, rig: Rig) -> None:
    """Of a stream with what is in somebody's hands, until that is let go of; whether it is deleted or not."""
    await rig.push(b"1", b"2", b"3")
    source = await rig.source()
    first, _ = await taken(source, 2)
    ready = 1 if rig.kind == "list" else 3
    assert (await detail(inspected, rig)).summary.states["ready"] == ready
    await source.turn(2, [Finished(first)], 0, suspect=False)
    assert (await detail(inspected, rig)).summary.states["ready"] == min(ready, 2)


async def test_jobs_in_hand_are_shown_with_whose_hands_they_are_in(inspected: Inspected, rig: Rig) -> None:
    await rig.push(*(b"%d" % n for n in range(9)))
    source = await rig.source()
    await taken(source, 2)
    states = {state.state: state for state in (await detail(inspected, rig)).states}
    if rig.kind == "list":
        assert states["in hand"].count == 2
        assert shown(states["in hand"].head) == ["0", "1"], "the oldest first"
        assert (shown(states["ready"].head), shown(states["ready"].tail)) == (list("23456"), list("78"))
        return
    ready = states["ready"]
    assert (shown(ready.head), shown(ready.tail)) == (list("01234"), list("5678"))
    assert [entry.facts.get("in_the_hands_of") for entry in ready.head] == [source.worker] * 2 + [None] * 3
    assert (ready.head[0].at, ready.at_is) == (Moment(DUE_MS), "was due")
    assert ready.head[0].facts["reference"] == "redis::emails::1::…"


async def test_a_worker_that_died_is_overdue_then_a_problem_then_taken_for_dead(inspected: Inspected, rig: Rig) -> None:
    """With nobody else at work on the queue, nobody returns its jobs: someone must be told."""
    await rig.push(b"1", b"2")
    dead = await rig.source()
    await taken(dead, 2)
    now_ms = await inspected.now_ms()
    await rig.redis.zadd(rig.of.workers, {dead.worker: now_ms - 2_000})
    told = await detail(inspected, rig)
    assert told.facts["workers"] == {"said_to_live": 1, "overdue": 1, "taken_for_dead": 0}
    assert "2 in hand, overdue for 2 s" in str(told.facts[f"worker {dead.worker}"])
    assert await problems(inspected, rig.keys) == {}, "another may be about to return them"

    await rig.redis.zadd(rig.of.workers, {dead.worker: now_ms - 120_000})
    problem = (await problems(inspected, rig.keys))["worker-overdue"]
    assert "1 workers, overdue for up to 2 min" in problem.detail
    assert f"2 jobs in hand: {dead.worker}" in problem.detail
    assert problem.count == 2

    await (await rig.source()).reap()
    assert await problems(inspected, rig.keys) == {}
    told = await detail(inspected, rig)
    assert told.facts["workers"] == {"said_to_live": 1, "overdue": 0, "taken_for_dead": 1}
    assert told.facts["in_hand"] == 0


async def test_jobs_with_which_workers_died_again_and_again_are_a_problem(inspected: Inspected, rig: Rig) -> None:
    await rig.push(b"poison")
    survivor = await rig.source()
    for _ in range(2):
        victim = await rig.source()
        await taken(victim, 1)
        await rig.overdue(victim)
        await survivor.reap()
    told = await detail(inspected, rig)
    assert told.facts["suspects"] == 1
    assert (await problems(inspected, rig.keys))["worker-died-twice"].count == 1
    if rig.kind == "list":
        (state,) = [state for state in told.states if state.state == "suspects"]
        assert shown(state.head) == ["poison"]


async def test_other_consumers_of_the_group_are_named_too(inspected: Inspected, inspectors_redis: RedisServer) -> None:
    async with rigged(inspectors_redis.url, "stream") as rig:
        await rig.push(b"1", b"2", b"3")
        source = await rig.source()
        await rig.redis.xreadgroup(GROUP, "somebody", {rig.of.ready: ">"}, count=2)
        (entry,) = await taken(source, 1)
        await rig.push(b"4")
        await source.hand_back([entry])
        told = await detail(inspected, rig)
        assert told.facts["worker somebody"] == "2 in hand, not a worker of Coatcheck's"
        assert (told.facts["in_hand"], told.facts["came_back"]) == (2, 1)


@pytest.mark.parametrize("kind", KINDS)
async def test_keys_of_other_types_are_told_of(inspected: Inspected, inspectors_redis: RedisServer, kind: str) -> None:
    async with rigged(inspectors_redis.url, kind) as rig:
        of = rig.of
        for key in (of.ready, of.workers, of.departed, of.suspects, of.turns, of.strikes):
            await rig.redis.set(key, "scribble")
        found = await (await inspected.look(Coatcheck, keys=rig.keys)).problems(QUEUE)
        wrong = " ".join(problem.detail for problem in found if problem.kind == "wrong-type")
        for key in (of.ready, of.workers, of.departed, of.suspects, of.turns, of.strikes):
            assert key in wrong
        told = await detail(inspected, rig)
        assert told.facts["suspects"] == (None if kind == "list" else 0)
        assert told.summary.states["ready"] is None


async def test_entries_that_somebody_else_wrote_are_shown_as_they_are(
    inspected: Inspected, inspectors_redis: RedisServer
) -> None:
    async with rigged(inspectors_redis.url, "stream") as rig:
        await rig.redis.xadd(rig.of.ready, {"paylaod": b"\xff\x1b", "due": "soon"})
        now_ms = await inspected.now_ms()
        await rig.redis.zadd(rig.of.workers, {b"\xff\x00": now_ms + 60_000, "endless": "inf", "timeless": 7})
        told = await detail(inspected, rig)
        (ready,) = [state for state in told.states if state.state == "ready"]
        assert ready.count == 1, "without its group, all of it"
        assert (ready.head[0].at, ready.head[0].facts["fault"]) == (
            None,
            r"no field `payload`: paylaod \xff\x1b due soon",
        )
        assert await problems(inspected, rig.keys) == {}
