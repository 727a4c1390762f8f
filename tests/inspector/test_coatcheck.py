"""Coatcheck's own layout, written by the ledger itself: what the inspector tells is what the ledger knows."""

import json
from collections.abc import AsyncIterator

import pytest

from service.inspector.answers import Problem
from service.inspector.coatcheck.layout import Coatcheck
from service.inspector.times import Moment
from service.keys import Keys
from storage_backends.reference import Reference, new_uuid
from tests.kit.inspecting import Inspected
from tests.kit.ledgers import QUEUE, Rig, rigged

HOUR_MS = 3_600_000


@pytest.fixture
async def rig(inspected: Inspected, inspectors_redis) -> AsyncIterator[Rig]:
    """The ledger, on the server that inspectors look at, at the server's own time."""
    async with rigged(inspectors_redis.url) as rig:
        rig.now_ms = await inspected.now_ms()
        yield rig


async def found(inspected: Inspected, queue: str = QUEUE) -> dict[str, Problem]:
    """The problems of a queue by their kind; each kind once."""
    problems = await (await inspected.look(Coatcheck)).problems(queue)
    kinds = [problem.kind for problem in problems]
    assert len(kinds) == len(set(kinds)), problems
    return {problem.kind: problem for problem in problems}


async def told(inspected: Inspected, reference: Reference | str, queue: str = QUEUE):
    detail = await (await inspected.look(Coatcheck)).job(queue, str(reference))
    assert detail is not None
    return detail


# ---- a queue ---------------------------------------------------------------------------------------------------------


async def test_a_queue_is_summed_up_as_the_service_does(inspected, rig):
    """People compare the two: they must not have to translate."""
    now = rig.now_ms
    due = await rig.inline(due_ms=now - 5_000)
    for n in range(3):
        await rig.inline(due_ms=now + HOUR_MS + n)
    await rig.leased(due_ms=now - 7_000)
    assert await rig.where(due) == set()  # the claim moved it
    late = await rig.offloaded(due_ms=now - 60_000)
    await rig.dead(due_ms=now - 90_000, queue="other")
    await rig.ledger.pause(QUEUE)
    summary = await (await inspected.look(Coatcheck)).summary(QUEUE)
    assert summary.states == {"future": 3, "overdue": 1, "leased": 1, "ready": 1, "dead": 0, "trash": 0}
    assert summary.paused is True
    assert (summary.oldest_due, summary.next_due) == (Moment(now - 60_000), Moment(now + HOUR_MS))
    assert summary.problems == ()
    assert await rig.where(late) == {"delayed"}
    counts = (await (await inspected.look(Coatcheck)).summary("other")).states
    assert counts["dead"] == 1


async def test_queues_are_those_of_the_index_and_those_that_own_a_key(inspected, rig):
    """What the index has lost is what somebody is looking for."""
    await rig.inline(queue="listed", due_ms=rig.now_ms + HOUR_MS)
    look = await inspected.look(Coatcheck)
    assert await look.queues(["stray"]) == ["listed", "stray"]
    assert look.hint("coatcheck:{stray}:delayed") == "stray"
    assert look.hint("coatcheck:queues") is None
    assert look.hint("bull:emails:meta") is None
    assert await look.has("listed")
    assert not await (await inspected.look(Coatcheck)).has("stray")


async def test_a_prefix_and_a_ready_list_of_their_own_are_followed(inspected):
    """The inspector reads the same settings as the service."""
    keys = Keys("acme", {QUEUE: "mails"})
    await inspected.redis.lpush("mails", "a", "b")
    look = await inspected.look(Coatcheck, keys=keys)
    assert (await look.summary(QUEUE)).states["ready"] == 2
    assert await look.has(QUEUE)
    assert look.hint("acme:{x}:dead") == "x"


async def test_a_queue_is_shown_from_both_ends(inspected, rig):
    now = rig.now_ms
    jobs = [await rig.inline(f"body {n}".encode(), due_ms=now + HOUR_MS + n) for n in range(12)]
    await inspected.redis.lpush(rig.keys.queue(QUEUE).ready, *(f"payload {n}" for n in range(12)))
    detail = await (await inspected.look(Coatcheck)).detail(QUEUE)
    states = {state.state: state for state in detail.states}
    assert [entry.id for entry in states["delayed"].head] == [str(job) for job in jobs[:5]]
    assert [entry.id for entry in states["delayed"].tail] == [str(job) for job in jobs[-5:]]
    assert states["delayed"].head[0].at == Moment(now + HOUR_MS)
    assert states["delayed"].head[0].facts == {"backend": "redis", "payload_bytes": 6}
    shown = [entry.facts["payload"].shown for entry in states["ready"].head]
    assert shown == [f"payload {n}" for n in range(5)], "the oldest is at the right, and leaves next"
    assert [entry.facts["payload"].shown for entry in states["ready"].tail] == [f"payload {n}" for n in range(7, 12)]


@pytest.mark.parametrize("count", [0, 1, 5, 6, 9, 10, 11])
async def test_no_entry_is_shown_twice_and_none_is_left_out_of_a_short_structure(inspected, rig, count):
    for n in range(count):
        await rig.offloaded(due_ms=rig.now_ms + n + HOUR_MS)
        await inspected.redis.lpush(rig.keys.queue(QUEUE).ready, f"payload {n}")
    detail = await (await inspected.look(Coatcheck)).detail(QUEUE)
    states = {state.state: state for state in detail.states}
    for state in (states["delayed"], states["ready"]):
        assert state.count == count
        assert len(state.head) + len(state.tail) == min(count, 10)
    payloads = [entry.facts["payload"].shown for entry in (*states["ready"].head, *states["ready"].tail)]
    assert payloads == sorted(set(payloads), key=lambda shown: int(shown.split()[1]))


async def test_backends_and_reasons_are_counted(inspected, rig):
    """From the references alone: which backend holds how much, and what jobs died of."""
    for n in range(3):
        await rig.offloaded(due_ms=rig.now_ms + HOUR_MS + n)
    await rig.offloaded(due_ms=rig.now_ms + HOUR_MS, backend="s3_acme")
    await rig.inline(due_ms=rig.now_ms + HOUR_MS)
    for reason in ("payload_missing", "payload_missing", "attempts_exhausted"):
        await rig.dead(reason, due_ms=rig.now_ms - 1)
    facts = (await (await inspected.look(Coatcheck)).detail(QUEUE)).facts
    assert facts["backends"] == {"of_delayed_looked_at": 5, "s3": 3, "s3_acme": 1, "redis": 1}
    assert facts["dead_reasons"] == {"of_dead_looked_at": 3, "payload_missing": 2, "attempts_exhausted": 1}
    assert facts["inline_payloads"] == 1
    assert facts["jobs_with_trouble"] == 3


# ---- a job -----------------------------------------------------------------------------------------------------------


async def test_a_job_is_where_the_ledger_says_it_is(inspected, rig):
    """In every state that the ledger knows."""
    now = rig.now_ms
    dead = await rig.dead(due_ms=now - 1)
    leased = (await rig.leased(due_ms=now - 1)).reference
    jobs = [dead, leased, await rig.inline(due_ms=now + HOUR_MS), await rig.offloaded(due_ms=now + HOUR_MS)]
    for job in jobs:
        known, shown = await rig.ledger.lookup(job), await told(inspected, job)
        assert shown.state == known.state
        assert [place.state for place in shown.places] == [known.state]
        assert shown.times["due"] == Moment(known.due_ms)
        assert shown.agrees is True
        assert shown.problems == ()
    assert (await told(inspected, dead)).record["reason"] == "payload_missing"
    assert (await told(inspected, dead)).times["died"] == Moment(now)


async def test_an_inline_payload_is_decoded_and_capped(inspected, rig):
    due_ms = rig.now_ms + HOUR_MS
    text = json.dumps({"to": "zoë", "n": 1}, ensure_ascii=False).encode()
    payloads = {}
    for body in (text, b"plain", b"\x00\xff", b"", b"x" * 1000):
        shown = (await told(inspected, await rig.inline(body, due_ms=due_ms))).payloads["payload"]
        payloads[body] = (shown.kind, shown.size_bytes, shown.shown, shown.cut)
    assert payloads == {
        text: ("json", len(text), text.decode(), False),
        b"plain": ("text", 5, "plain", False),
        b"\x00\xff": ("binary", 2, "00ff", False),
        b"": ("empty", 0, "", False),
        b"x" * 1000: ("text", 1000, "x" * 512, True),
    }


async def test_a_payload_of_megabytes_is_not_read(inspected, rig):
    """It would hold Redis for longer than a look may."""
    job = await rig.inline(b"x" * 3_000_000, due_ms=rig.now_ms + HOUR_MS)
    shown = (await told(inspected, job)).payloads["payload"]
    assert (shown.kind, shown.size_bytes) == ("unread", 3_000_000)


async def test_a_rescheduled_job_tells_both_times(inspected, rig):
    first = rig.now_ms + HOUR_MS
    job = await rig.inline(due_ms=first)
    await rig.ledger.reschedule(job, first + HOUR_MS)
    times = (await told(inspected, job)).times
    assert (times["due"], times["due_first"]) == (Moment(first + HOUR_MS), Moment(first))
    assert abs(times["accepted"].ms - rig.now_ms) < 60_000, "from its uuid"


async def test_a_uuid_alone_is_sought(inspected, rig):
    """Logs often have nothing else."""
    jobs = [await rig.offloaded(due_ms=rig.now_ms + HOUR_MS + n) for n in range(5)]
    shown = await told(inspected, jobs[3].uuid)
    assert (shown.id, shown.state) == (str(jobs[3]), "delayed")


async def test_a_job_that_is_nowhere_is_none_and_a_cancelled_one_leaves_its_mark(inspected, rig):
    nobody = Reference("s3", QUEUE, rig.now_ms, new_uuid())
    assert await (await inspected.look(Coatcheck)).job(QUEUE, str(nobody)) is None
    assert await (await inspected.look(Coatcheck)).job(QUEUE, "no reference") is None
    job = await rig.inline(due_ms=rig.now_ms + HOUR_MS)
    await rig.ledger.cancel(job)
    shown = await told(inspected, job)
    assert (shown.state, list(shown.places)) == ("cancelled", [])
    await rig.ledger.cancel(nobody)
    shown = await told(inspected, nobody)
    assert (shown.state, list(shown.places)) == ("void", []), "somebody asked to cancel what was not there"


# ---- what does not fit -----------------------------------------------------------------------------------------------


async def test_a_sound_queue_has_no_problems(inspected, rig):
    """In all states at once, with trouble, moves and markers: a false alarm is what makes people stop looking."""
    now = rig.now_ms
    for n in range(20):
        await rig.inline(due_ms=now + HOUR_MS + n)
        await rig.offloaded(due_ms=now + HOUR_MS + n)
    await rig.leased(due_ms=now - 1)
    await rig.dead(due_ms=now - 1)
    await rig.ledger.reschedule(await rig.inline(due_ms=now + HOUR_MS), now + 2 * HOUR_MS)
    await rig.ledger.cancel(await rig.inline(due_ms=now + HOUR_MS))
    assert await found(inspected) == {}


async def test_due_and_not_moving_is_told_with_its_duration_and_why(inspected, rig):
    since = rig.now_ms - 3 * HOUR_MS
    job = await rig.offloaded(due_ms=since)
    problem = (await found(inspected))["due-not-moving"]
    assert (problem.since, problem.count, problem.ids) == (Moment(since), 1, (str(job),))
    assert "3 h" in problem.detail
    await rig.ledger.pause(QUEUE)
    assert "paused" in (await found(inspected))["due-not-moving"].detail


async def test_a_lease_past_its_deadline_is_told(inspected, rig):
    """Its dispatcher is dead, and no other is there to reclaim it."""
    rig.now_ms -= HOUR_MS
    job = await rig.leased(due_ms=rig.now_ms - 1)
    problem = (await found(inspected))["lease-expired"]
    assert problem.ids == (str(job.reference),)
    assert problem.since == Moment(int(job.token))


async def test_trash_that_nobody_empties_is_told(inspected, rig):
    await inspected.redis.zadd(rig.keys.queue(QUEUE).trash, {str(rig.entry(None).reference): rig.now_ms - HOUR_MS})
    await rig.ledger.repair([QUEUE])
    assert set(await found(inspected)) == {"trash-not-emptied"}


async def test_an_inline_job_without_its_payload_is_told(inspected, rig):
    job, other = [await rig.inline(due_ms=rig.now_ms + HOUR_MS) for _ in range(2)]
    await inspected.redis.hdel(rig.keys.queue(QUEUE).bodies, job.uuid)
    assert (await found(inspected))["id-without-record"].ids == (str(job),)
    shown = await told(inspected, job)
    assert shown.agrees is False
    assert [problem.kind for problem in shown.problems] == ["id-without-record"]
    assert (await told(inspected, other)).agrees is True


@pytest.mark.parametrize("what", ["bodies", "trouble", "moved"])
async def test_what_is_kept_for_nobody_is_told(inspected, rig, what):
    await rig.inline(due_ms=rig.now_ms + HOUR_MS)
    await inspected.redis.hset(getattr(rig.keys.queue(QUEUE), what), new_uuid(), "1764547200000")
    rig.transport.after = None
    problem = (await found(inspected))["kept-for-nobody"]
    assert what in problem.detail
    assert problem.count == 1


async def test_a_large_queue_is_suspected_by_its_numbers(inspected, rig):
    """Its payloads cannot be compared one by one. Of 8,000 jobs half are inline; 4,000 payloads are no cause for
    suspicion, 5,500 are."""
    of, due_ms = rig.keys.queue(QUEUE), rig.now_ms + HOUR_MS
    jobs = [Reference("redis" if n % 2 else "s3", QUEUE, due_ms, new_uuid()) for n in range(8000)]
    await inspected.redis.zadd(of.delayed, dict.fromkeys(map(str, jobs), due_ms))
    await inspected.redis.hset(of.bodies, mapping={job.uuid: "x" for job in jobs if job.backend == "redis"})
    await rig.ledger.repair([QUEUE])
    assert await found(inspected) == {}
    await inspected.redis.hset(of.bodies, mapping=dict.fromkeys((new_uuid() for _ in range(1500)), "x"))
    assert 500 < (await found(inspected))["kept-for-nobody"].count < 2500


async def test_a_job_in_two_sets_is_told(inspected, rig):
    job = await rig.offloaded(due_ms=rig.now_ms + HOUR_MS)
    await inspected.redis.zadd(rig.keys.queue(QUEUE).dead, {str(job): rig.now_ms})
    assert (await found(inspected))["in-two-places"].ids == (str(job),)
    shown = await told(inspected, job)
    assert [place.state for place in shown.places] == ["delayed", "dead"]
    assert shown.agrees is False


async def test_members_that_are_no_references_and_scores_that_are_no_times_are_told(inspected, rig):
    of = rig.keys.queue(QUEUE)
    await inspected.redis.zadd(
        of.delayed, {b"\xff\x1b[2J": rig.now_ms + HOUR_MS, b"s3::other::1::" + new_uuid().encode(): 5}
    )
    await rig.ledger.repair([QUEUE])
    problems = await (await inspected.look(Coatcheck)).problems(QUEUE)
    kinds = [problem.kind for problem in problems]
    assert kinds.count("does-not-parse") == 2, "a stranger, and a reference of another queue"
    assert "score-no-time" in kinds
    assert any(r"\xff\x1b[2J" in problem.ids for problem in problems), "what a terminal would obey is spelt out"


async def test_a_queue_that_dispatchers_will_not_look_at_is_told(inspected, rig):
    """The index says when to look; without it, the job is late by up to a minute."""
    await rig.inline(due_ms=rig.now_ms + HOUR_MS)
    await inspected.redis.zadd(rig.keys.queues, {QUEUE: rig.now_ms + 2 * HOUR_MS})
    assert set(await found(inspected)) == {"index-wrong"}
    await inspected.redis.zrem(rig.keys.queues, QUEUE)
    assert set(await found(inspected)) == {"index-wrong"}


async def test_a_traceback_is_told_as_it_is(inspected, rig):
    """Cut to a cell's width it would end above the line that failed."""
    job = await rig.dead(due_ms=rig.now_ms - 1)
    trace = "Traceback (most recent call last):\n" + "  File …\n" * 100 + "ValueError: no\n"
    record = json.dumps({"reason": "attempts_exhausted", "error": "ValueError: no", "traceback": trace})
    await inspected.redis.hset(rig.keys.queue(QUEUE).trouble, job.uuid, record)
    shown = await told(inspected, job)
    assert shown.payloads["traceback"].shown == trace
    assert "traceback" not in shown.record
    assert shown.record["error"] == "ValueError: no"


async def test_a_broken_record_is_told_and_hides_no_job(inspected, rig):
    job = await rig.dead(due_ms=rig.now_ms - 1)
    await inspected.redis.hset(rig.keys.queue(QUEUE).trouble, job.uuid, b'{"attempts": \xff')
    assert (await found(inspected))["does-not-parse"].ids == (str(job),)
    shown = await told(inspected, job)
    assert (shown.state, shown.agrees) == ("dead", False)


@pytest.mark.parametrize(
    "name", ["delayed", "leases", "dead", "trash", "bodies", "trouble", "moved", "ready", "paused"]
)
async def test_a_key_of_a_wrong_type_is_told_and_hides_nothing_else(inspected, rig, name):
    job = await rig.offloaded(due_ms=rig.now_ms + HOUR_MS)
    of = rig.keys.queue(QUEUE)
    key = getattr(of, name)
    await inspected.redis.delete(key)
    await (inspected.redis.lpush(key, "x") if name == "paused" else inspected.redis.set(key, "x"))
    assert (await found(inspected))["wrong-type"].detail.startswith(key)
    detail = await (await inspected.look(Coatcheck)).detail(QUEUE)
    assert detail.summary.states["future"] == (None if name == "delayed" else 1)
    if name != "delayed":
        assert (await told(inspected, job)).state == "delayed"
