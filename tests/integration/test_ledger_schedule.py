"""schedule and discard: what is accepted, what is refused, and what becomes of payloads that no job needs."""

import asyncio
import json

import pytest

from service.ledger import MARKER_TTL_MS
from service.records import Outcome, Scheduled
from storage_backends.reference import Reference, new_uuid
from tests.kit.ledgers import QUEUE, T0, rigged

HALF_THE_GRACE_MS = 43_200_000


async def outcomes(rig, *entries) -> list[str]:
    answers = await rig.ledger.schedule(QUEUE, entries)
    assert all(isinstance(answer, Scheduled) for answer in answers), answers
    return [answer.outcome.value for answer in answers]


async def test_an_inline_job_and_its_body_come_in_one_step(rig):
    job = await rig.inline(b"payload", due_ms=T0 + 5)
    dump = await rig.dump()
    assert dump.delayed == {str(job).encode(): T0 + 5}
    assert dump.bodies == {job.uuid.encode(): b"payload", b"largest": b"7"}
    assert dump.look == T0 + 5


async def test_an_offloaded_job_is_a_reference_and_nothing_else(rig):
    """That is the whole point: Redis memory does not grow with the payloads."""
    job = await rig.offloaded(due_ms=T0 + 5)
    dump = await rig.dump()
    assert (dump.delayed, dump.bodies) == ({str(job).encode(): T0 + 5}, {})


async def test_a_batch_is_answered_in_its_order(rig):
    await rig.ledger.cancel((cancelled := rig.entry()).reference)
    stale = rig.entry(None, put_at_ms=T0 - HALF_THE_GRACE_MS - 1)
    assert await outcomes(rig, rig.entry(), cancelled, stale, rig.entry(None)) == [
        "scheduled",
        "cancelled",
        "stale",
        "scheduled",
    ]


async def test_many_jobs_go_in_bounded_calls(rig):
    """At most 1,000 members and 1 MiB of payload a call, but always a job."""
    rig.transport.after = None
    assert len(await outcomes(rig, *(rig.entry(b"small") for _ in range(2_500)))) == 2_500
    await outcomes(rig, *(rig.entry(bytes(400_000)) for _ in range(5)), rig.entry(bytes(3_000_000)))
    stats = await rig.redis.info("commandstats")
    assert stats["cmdstat_eval"]["calls"] + stats.get("cmdstat_evalsha", {"calls": 0})["calls"] >= 3 + 4
    await rig.check()


async def test_the_same_job_twice_is_one_job(rig):
    """A repetition whose first answer was lost finds its own reference: that is success."""
    entries = [rig.entry(), rig.entry(None), rig.entry(key="a"), rig.entry(None, key="b")]
    assert await outcomes(rig, *entries) == await outcomes(rig, *entries) == ["scheduled"] * 4
    assert len((await rig.dump()).delayed) == 4


@pytest.mark.parametrize("ended", ["leased", "dead"])
async def test_a_job_that_moved_on_meanwhile_is_not_accepted_anew(rig, ended):
    """The repetition may come late: the job must not be in two sets."""
    entry = rig.entry(None)
    await rig.schedule(entry)
    [job] = (await rig.claim()).leased
    if ended == "dead":
        await rig.ledger.bury(QUEUE, [(job, "payload_missing")])
    assert await outcomes(rig, entry) == ["scheduled"]
    assert await rig.where(entry.reference) == {"dead" if ended == "dead" else "leases"}


async def test_a_new_head_wakes_the_loop_and_others_do_not(rig):
    """A wake-up says when and who; it only ever makes the loop earlier."""
    async with rig.redis.pubsub() as listener:
        await listener.subscribe(rig.keys.wake)
        await listener.get_message(timeout=5)
        await rig.inline(due_ms=T0 + 10)
        await rig.inline(due_ms=T0 + 20)
        await rig.inline(due_ms=T0 + 5)
        heard = [await listener.get_message(timeout=5) for _ in range(2)]
        assert [message["data"] for message in heard] == [f"{T0 + ms} {QUEUE}".encode() for ms in (10, 5)]
        assert await listener.get_message(timeout=0.01) is None


# ---- idempotency keys ------------------------------------------------------------------------------------------------


async def test_a_key_names_the_first_job_for_ever_after(rig):
    """Also when that job is long delivered: whoever repeats a request must not cause a second delivery."""
    first = await rig.inline(key="order-1")
    [again] = await rig.ledger.schedule(QUEUE, [rig.entry(key="order-1")])
    assert again == Scheduled(Outcome.REPLAYED, first, "why")
    assert (await rig.claim()).moved == 1
    [later] = await rig.ledger.schedule(QUEUE, [rig.entry(key="order-1")])
    assert later == again
    assert (await rig.claim()).moved == 0


async def test_a_key_used_for_another_request_is_an_error(rig):
    first = await rig.inline(key="order-1")
    [other] = await rig.ledger.schedule(QUEUE, [rig.entry(key="order-1", fingerprint="other")])
    assert other == Scheduled(Outcome.REUSED, first, "why")
    assert len((await rig.dump()).delayed) == 1


async def test_the_losers_payload_goes_to_the_trash_in_the_same_step(rig):
    """It was put before the key was decided: nothing else would ever delete it."""
    winner, loser = rig.entry(None, key="order-1"), rig.entry(None, key="order-1")
    assert await outcomes(rig, winner, loser) == ["scheduled", "replayed"]
    assert await rig.where(winner.reference) == {"delayed"}
    assert await rig.where(loser.reference) == {"trash"}
    assert await rig.score("trash", loser.reference) == T0


async def test_the_losers_inline_body_is_not_kept(rig):
    await outcomes(rig, rig.entry(b"winner", key="a"), rig.entry(b"the loser", key="a"))
    assert set((await rig.dump()).bodies.values()) == {b"winner", b"6"}


async def test_of_many_requests_with_one_key_at_once_one_wins(rig):
    entries = [rig.entry(key="a") for _ in range(10)]
    answers = await asyncio.gather(*(rig.ledger.schedule(QUEUE, [entry]) for entry in entries))
    assert sorted(answer.outcome for [answer] in answers) == ["replayed"] * 9 + ["scheduled"]
    assert len({answer.reference for [answer] in answers}) == 1


async def test_a_key_is_forgotten_after_its_time(rig):
    await rig.inline(key="a")
    key = rig.keys.queue(QUEUE).idempotency(None, "a")
    assert 86_300_000 < await rig.redis.pttl(key) <= 86_400_000


async def test_a_reason_or_fingerprint_with_odd_characters_comes_back(rig):
    first = rig.entry(key="a", fingerprint="line\nbreak")
    await rig.schedule(first)
    [again] = await rig.ledger.schedule(QUEUE, [rig.entry(key="a", fingerprint="line\nbreak")])
    assert again.outcome == "replayed"


# ---- refusals --------------------------------------------------------------------------------------------------------


async def test_a_payload_that_was_put_too_long_ago_is_refused(rig):
    """The sweeper may have taken it for an orphan by now; a reference to nothing must not be written."""
    fresh = rig.entry(None, put_at_ms=T0 - HALF_THE_GRACE_MS)
    stale = rig.entry(None, put_at_ms=T0 - HALF_THE_GRACE_MS - 1)
    assert await outcomes(rig, fresh, stale) == ["scheduled", "stale"]
    assert await rig.where(stale.reference) == {"trash"}


async def test_a_schedule_that_comes_after_the_cancel_is_refused(rig):
    """So that a DELETE settles an unknown outcome: the late command does not bring the job back."""
    for entry, left in ((rig.entry(), set()), (rig.entry(None), {"trash"}), (rig.entry(key="a"), set())):
        assert await rig.ledger.cancel(entry.reference) == "gone"
        assert await outcomes(rig, entry) == ["cancelled"]
        assert await rig.where(entry.reference) == left
    assert not (await rig.dump()).bodies


async def test_a_cancel_is_remembered_for_an_hour(rig):
    entry = rig.entry()
    await rig.ledger.cancel(entry.reference)
    marker = rig.keys.queue(QUEUE).cancelled(entry.reference.uuid)
    assert MARKER_TTL_MS - 60_000 < await rig.redis.pttl(marker) <= MARKER_TTL_MS


async def test_a_payload_in_the_trash_is_refused(rig):
    """It may be deleted at any moment."""
    entry = rig.entry(None)
    await rig.ledger.discard(QUEUE, [entry.reference])
    assert await outcomes(rig, entry) == ["discarded"]
    assert await rig.where(entry.reference) == {"trash"}


async def test_what_a_job_needs_is_not_discarded(rig):
    """The trash holds no live reference, whatever a confused caller asks."""
    delayed, dead = await rig.offloaded(due_ms=T0 + 10**6), await rig.dead()
    leased = (await rig.leased()).reference
    nobodys = Reference("s3", QUEUE, T0, new_uuid())
    await rig.ledger.discard(QUEUE, [delayed, leased, dead, nobodys], wait_ms=3_600_000)
    found = [await rig.where(job) for job in (delayed, leased, dead, nobodys)]
    assert found == [{"delayed"}, {"leases"}, {"dead"}, {"trash"}]
    assert await rig.score("trash", nobodys) == T0 + 3_600_000


# ---- queues ----------------------------------------------------------------------------------------------------------


async def test_queues_do_not_see_each_other(redis_url):
    """Names that contain one another share no key."""
    async with rigged(redis_url) as rig:
        names = ["a", "a:b", "a:delayed", "a..b", "b", "0", "x" * 128]
        rig.queues = set(names)
        for name in names:
            await rig.inline(name.encode(), queue=name)
        for name in names:
            assert (await rig.claim(name)).moved == 1
            assert await rig.ready(name) == [name.encode()]
            await rig.nothing_left(name)


async def test_payloads_are_delivered_byte_for_byte(rig):
    bodies = [b"", b"\0", bytes(range(256)), json.dumps({"a": "ü"}).encode(), b"\r\n$3\r\n", b"-ERR no\r\n"]
    for i, body in enumerate(bodies):
        await rig.inline(body, due_ms=T0 - 100 + i)
    await rig.claim()
    assert await rig.ready() == bodies
