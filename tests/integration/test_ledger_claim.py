"""claim: what is taken, what is left standing, what steps back, and what the answer says about it."""

import bisect
import math
import random

import pytest

from service.records import ClaimStatus, Share
from storage_backends.reference import Reference, new_uuid
from tests.kit.ledgers import LEASE_MS, QUEUE, T0, rigged

BOUNDS_MS = (10, 100, 1_000, 60_000)
MIB = 2**20


@pytest.fixture
async def rig(redis_url):
    async with rigged(redis_url, lateness_bounds_ms=BOUNDS_MS) as rig:
        yield rig


async def put_by_hand(rig, *members: str | bytes, score: int = T0) -> None:
    """As somebody with redis-cli would; the index then still says what it said."""
    await rig.redis.zadd(rig.keys.queue(QUEUE).delayed, dict.fromkeys(members, score))


# ---- whose turn it is ------------------------------------------------------------------------------------------------


async def test_nothing_is_claimed_before_it_is_due(rig):
    """By Redis's clock, to the millisecond."""
    inline, offloaded = await rig.inline(due_ms=T0 + 1), await rig.offloaded(due_ms=T0 + 1)
    early = await rig.claim()
    assert (early.took, early.next_look_ms) == (0, T0 + 1)
    rig.now_ms += 1
    on_time = await rig.claim()
    assert (on_time.moved, [job.reference for job in on_time.leased]) == (1, [offloaded])
    assert await rig.where(inline) == set()


async def test_inline_payloads_are_ready_oldest_first(rig):
    """Consumers take from the right: what was due first must stand there."""
    for late in (1, 3, 2):
        await rig.inline(b"late by %d" % late, due_ms=T0 - late)
    assert (await rig.claim()).moved == 3
    assert await rig.ready() == [b"late by 3", b"late by 2", b"late by 1"]
    await rig.nothing_left()


async def test_a_lease_ends_when_the_claim_said(rig):
    """The deadline as written is the token that fences this lease from all others."""
    reference = await rig.offloaded(due_ms=T0 - 7)
    [job] = (await rig.claim()).leased
    assert (job.reference, int(job.token), job.due_ms) == (reference, T0 + LEASE_MS, T0 - 7)
    assert await rig.score("leases", reference) == job.token


async def test_a_claim_says_whether_leases_ran_out_and_trash_is_due(rig):
    """One look does for all: the dispatcher asks nothing else about an idle queue."""
    job = await rig.leased()
    idle = await rig.claim()
    assert (idle.leases_expired, idle.trash_due) == (False, False)
    rig.now_ms = math.ceil(job.token)
    assert (await rig.claim()).leases_expired
    await rig.ledger.cancel(job.reference)
    after = await rig.claim()
    assert (after.leases_expired, after.trash_due) == (False, True)


# ---- how much --------------------------------------------------------------------------------------------------------


async def test_a_claim_takes_at_most_a_batch_of_both_kinds_together(rig):
    for i in range(6):
        await rig.inline(due_ms=T0 - 10 + i)
        await rig.offloaded(due_ms=T0 - 10 + i)
    claimed = await rig.claim(batch=5)
    assert claimed.took == 5
    assert abs(claimed.moved - len(claimed.leased)) <= 1, "neither kind is preferred"
    assert (await rig.claim(batch=500)).took == 7


async def test_a_batch_beyond_what_lua_can_unpack_is_cut_down(rig):
    """A setting must not be able to break a script half-way: Lua's unpack stops at about 8,000 values."""
    rig.transport.after = None
    await rig.ledger.schedule(QUEUE, [rig.entry(b"") for _ in range(9_000)])
    assert (await rig.claim(batch=100_000, max_ready=100_000)).moved == 1_000


@pytest.mark.parametrize("leases", [0, 2])
async def test_a_claim_leaves_the_ready_queue_within_its_limit_leased_jobs_counted_in(rig, leases):
    """Otherwise every dispatcher would fill it once more with what it holds."""
    for _ in range(leases):
        await rig.leased()
    for i in range(10):
        await rig.inline(due_ms=T0 - i)
        await rig.offloaded(due_ms=T0 - i)
    claimed = await rig.claim(max_ready=5)
    assert claimed.took == 5 - leases
    full = await rig.claim(max_ready=5)
    assert (full.status, full.took) == (ClaimStatus.FULL, 0)


async def test_a_full_ready_queue_with_nothing_due_is_not_called_full(rig):
    """`full` means that a due job waits for consumers."""
    await rig.inline()
    await rig.inline(due_ms=T0 + 1)
    assert (await rig.claim(max_ready=1)).moved == 1
    assert (await rig.claim(max_ready=1)).status is ClaimStatus.OK


async def test_a_ready_queue_may_be_too_heavy_for_more(rig):
    await rig.inline(bytes(100_000))
    assert (await rig.claim(max_ready_bytes=50_000)).moved == 1, "an empty one weighs nothing"
    await rig.inline()
    assert (await rig.claim(max_ready_bytes=50_000)).status is ClaimStatus.FULL
    assert (await rig.claim(max_ready_bytes=200_000)).moved == 1
    await rig.inline()
    assert (await rig.claim(max_ready_bytes=None)).moved == 1, "not weighed this time"


async def test_a_call_moves_at_most_a_mebibyte_but_always_one_job(rig):
    """Redis serves nobody else while it copies."""
    for i, size in enumerate([MIB // 2, MIB // 2, 1, 3 * MIB, 1, MIB]):
        await rig.inline(bytes(size), due_ms=T0 + i)
    rig.now_ms += 10
    assert [(await rig.claim()).moved for _ in range(5)] == [2, 1, 1, 1, 1]
    await rig.nothing_left()


async def test_small_bodies_beside_a_large_one_are_moved_in_one_call(rig):
    """`largest` is only a bound: where it does not do, each body's length is asked."""
    await rig.inline(bytes(MIB), due_ms=T0 + 1)
    for _ in range(50):
        await rig.inline(b"small")
    assert (await rig.claim()).moved == 50


async def test_empty_payloads_are_jobs_like_others(rig):
    for _ in range(3):
        await rig.inline(b"")
    assert (await rig.claim()).moved == 3
    assert await rig.ready() == [b""] * 3
    await rig.nothing_left()


async def test_a_hash_of_bodies_that_somebody_else_began_has_no_largest(rig):
    """A bound that is too low would let one call move gigabytes."""
    await rig.inline(bytes(MIB))
    await rig.inline(bytes(MIB - 10))
    await rig.redis.hdel(rig.keys.queue(QUEUE).bodies, "largest")
    await rig.inline(b"small", due_ms=T0 + 1)
    rig.now_ms += 1
    assert b"largest" not in (await rig.dump()).bodies
    assert [(await rig.claim()).moved for _ in range(3)] == [1, 2, 0]


async def test_the_largest_body_is_forgotten_with_the_hash(rig):
    await rig.inline(bytes(1000))
    assert (await rig.dump()).bodies[b"largest"] == b"1000"
    await rig.claim()
    await rig.inline(bytes(10))
    assert (await rig.dump()).bodies[b"largest"] == b"10"


# ---- backends --------------------------------------------------------------------------------------------------------


async def test_each_backend_gives_as_many_jobs_as_the_caller_has_slots(rig):
    """A slow backend fills its own slots, and no others."""
    for i in range(4):
        for backend in ("s3", "gcs", "azure"):
            await rig.offloaded(backend=backend, due_ms=T0 - i)
    claimed = await rig.claim(shares={"s3": Share(1), "gcs": Share(0), "*": Share(3)})
    taken = [job.reference.backend for job in claimed.leased]
    assert sorted(taken) == ["azure"] * 3 + ["s3"]
    assert claimed.skipped == 12 - 4
    assert claimed.status is ClaimStatus.OK


async def test_jobs_without_a_slot_stay_where_they_stand(rig):
    """Another dispatcher may have a slot: it finds them at once, and in their old order."""
    waiting = [await rig.offloaded(due_ms=T0 - 5 + i) for i in range(5)]
    await rig.inline(due_ms=T0)
    claimed = await rig.claim(shares={"*": Share(0)})
    assert (claimed.moved, claimed.skipped, claimed.leased) == (1, 5, [])
    assert [await rig.score("delayed", job) for job in waiting] == [T0 - 5 + i for i in range(5)]
    assert [job.reference for job in (await rig.claim()).leased] == waiting


async def test_a_caller_that_names_no_share_for_a_backend_takes_none_of_its_jobs(rig):
    """A script that fails half-way is not rolled back: a forgotten `*` must not be an error in it."""
    await rig.offloaded()
    assert (await rig.claim(shares={"gcs": Share(5)})).skipped == 1


async def test_small_batches_look_past_what_waits_for_a_slot(rig):
    """A claim reads up to four batches, so that jobs of a busy backend do not hide those behind them."""
    for i in range(30):
        await rig.offloaded(due_ms=T0 - 100 + i)
    for _ in range(3):
        await rig.inline()
    claimed = await rig.claim(batch=10, shares={"*": Share(0)})
    assert (claimed.moved, claimed.skipped) == (3, 30)


async def test_a_whole_window_that_waits_steps_back_for_a_second_or_two(rig):
    """Four batches of jobs without a slot would hide an inline job behind them for as long as the backend is slow."""
    for i in range(45):
        await rig.offloaded(due_ms=T0 - 100 + i)
    hidden = await rig.inline()
    claimed = await rig.claim(batch=10, shares={"*": Share(0)})
    assert (claimed.took, claimed.skipped) == (0, 0)
    [put_back] = claimed.put_back
    assert (put_back.backend, put_back.count, put_back.oldest_due_ms) == ("s3", 40, T0 - 100)
    moved = [score for score in (await rig.dump()).delayed.values() if score > T0]
    assert len(moved) == 40
    assert all(T0 + 1_000 <= score <= T0 + 2_000 for score in moved)
    assert len(set(moved)) > 5, "they do not come back together"
    assert (await rig.claim(batch=10, shares={"*": Share(0)})).moved == 1
    assert await rig.where(hidden) == set()


async def test_an_open_breaker_puts_its_jobs_back_without_a_lease_or_a_charge(rig):
    """Later than the next probe, and not all together; their number and age are told, for they are overdue."""
    jobs = [await rig.offloaded(due_ms=T0 - 50 + i) for i in range(20)]
    await rig.inline()
    claimed = await rig.claim(shares={"s3": Share(16, probe_in_ms=30_000), "*": Share(16)})
    assert (claimed.moved, claimed.leased, claimed.skipped) == (1, [], 0)
    [put_back] = claimed.put_back
    assert (put_back.backend, put_back.count, put_back.oldest_due_ms) == ("s3", 20, T0 - 50)
    assert put_back.until_ms == T0 + 30_000
    scores = [await rig.score("delayed", job) for job in jobs]
    assert all(T0 + 30_000 <= score <= T0 + 31_000 for score in scores)
    assert len(set(scores)) > 5
    assert not (await rig.dump()).trouble
    assert claimed.next_look_ms == min(scores)


async def test_what_was_put_back_still_tells_its_owners_due_time(rig):
    """Overdue gauges would otherwise start anew with each put-back; so would lateness."""
    job = await rig.offloaded(due_ms=T0 - 50)
    await rig.ledger.reschedule(job, T0 - 20)
    for _ in range(2):
        [put_back] = (await rig.claim(shares={"*": Share(1, probe_in_ms=0)})).put_back
        assert put_back.oldest_due_ms == T0 - 20
        rig.now_ms += 2_000
    [leased] = (await rig.claim()).leased
    assert leased.due_ms == T0 - 20


async def test_a_claim_reads_at_most_four_batches(rig):
    """Bounded work, whatever the backlog: counted by what an open breaker puts back."""
    for i in range(50):
        await rig.offloaded(due_ms=T0 - 100 + i)
    [put_back] = (await rig.claim(batch=10, shares={"*": Share(16, probe_in_ms=9_000)})).put_back
    assert put_back.count == 40


async def test_a_half_open_breaker_probes_with_another_job_than_the_last_that_failed(rig):
    """One bad object must not keep a backend's breaker from closing."""
    failed, other = await rig.offloaded(due_ms=T0 - 2), await rig.offloaded(due_ms=T0 - 1)
    claimed = await rig.claim(shares={"s3": Share(1, avoid=failed)})
    assert [job.reference for job in claimed.leased] == [other]
    assert claimed.skipped == 1


async def test_a_half_open_breaker_probes_with_the_job_that_failed_if_there_is_no_other(rig):
    failed = await rig.offloaded()
    claimed = await rig.claim(shares={"s3": Share(1, avoid=failed)})
    assert [job.reference for job in claimed.leased] == [failed]
    assert claimed.skipped == 0


async def test_a_probe_takes_no_more_than_there_is_room_for(rig):
    """The job to avoid is considered last, when the room may be gone."""
    failed = await rig.offloaded(due_ms=T0 - 2)
    await rig.inline()
    claimed = await rig.claim(max_ready=1, shares={"s3": Share(1, avoid=failed)})
    assert (claimed.took, await rig.where(failed)) == (1, {"delayed"})


# ---- states ----------------------------------------------------------------------------------------------------------


async def test_a_paused_queue_gives_nothing(rig):
    await rig.inline()
    await rig.offloaded()
    await rig.ledger.pause(QUEUE)
    claimed = await rig.claim()
    assert (claimed.status, claimed.took, claimed.next_look_ms) == (ClaimStatus.PAUSED, 0, None)
    await rig.ledger.resume(QUEUE)
    assert (await rig.claim()).took == 2


async def test_an_unusable_ready_key_changes_nothing(rig):
    """A script is not rolled back: an error after the first write would leave leases that nobody was told of."""
    await rig.inline()
    await rig.offloaded()
    await rig.redis.set(rig.keys.queue(QUEUE).ready, "not a list")
    before = await rig.dump()
    assert (await rig.claim()).status is ClaimStatus.UNUSABLE
    assert await rig.dump() == before
    await rig.redis.delete(rig.keys.queue(QUEUE).ready)
    assert (await rig.claim()).took == 2


# ---- what is no job --------------------------------------------------------------------------------------------------


async def test_a_job_without_its_body_is_dead_and_the_others_arrive(rig):
    """One bad job does not hold up its neighbours, and its reference is kept for whoever asks."""
    jobs = [await rig.inline(b"%d" % i, due_ms=T0 - 10 + i) for i in range(5)]
    await rig.redis.hdel(rig.keys.queue(QUEUE).bodies, jobs[2].uuid)
    claimed = await rig.claim()
    assert claimed.moved == 4
    assert [(bad.member, bad.reason) for bad in claimed.buried] == [(str(jobs[2]), "payload_missing")]
    assert await rig.ready() == [b"0", b"1", b"3", b"4"]
    assert await rig.where(jobs[2]) == {"dead"}
    assert (await rig.record(jobs[2]))["reason"] == "payload_missing"


UUID = "0193f2a4-7c1e-7b3a-9d57-6f0a1c2b3d4e"
JUNK = [
    b"",
    b"\xff\xfe\x00\r\n",
    b"x" * 1_000_000,
    "☂::emails::1::x".encode(),
    b"redis::emails::" + b"9" * 100,
    b"redis::emails::",
    f"s3::other-queue::1::{UUID}".encode(),
    f"redis::other-queue::1::{UUID}".encode(),
    f"S3::emails::1::{UUID}".encode(),
    f"s3::emails::01::{UUID}".encode(),
    f"s3::emails::1::{UUID.upper()}".encode(),
    f"s3::emails::1::{UUID}\n".encode(),
    f"s3::emails::99999999999999999::{UUID}".encode(),
]


async def test_junk_in_the_delayed_set_is_dead_and_the_others_arrive(rig):
    """A loop never stops or spins on it, whatever bytes somebody put there."""
    await put_by_hand(rig, *JUNK, score=T0 - 5)
    good = [await rig.inline(b"good"), await rig.offloaded()]
    claimed = await rig.claim()
    assert (claimed.moved, [job.reference for job in claimed.leased]) == (1, good[1:])
    assert {bad.reason for bad in claimed.buried} == {"not_a_reference"}
    assert sorted(bad.member.encode("utf-8", "surrogateescape") for bad in claimed.buried) == sorted(JUNK)
    assert set((await rig.dump()).dead) == set(JUNK)


async def test_junk_can_be_purged_by_the_name_that_the_claim_gave_it(rig):
    """Any bytes come back as the same bytes."""
    await put_by_hand(rig, *JUNK)
    buried = [bad.member for bad in (await rig.claim()).buried]
    assert sorted(await rig.members("dead")) == sorted(buried)
    assert await rig.ledger.revive(QUEUE, buried) == 0
    assert await rig.ledger.purge(QUEUE, buried) == len(JUNK)
    await rig.nothing_left()


@pytest.mark.parametrize(
    "spelling",
    [
        "0x193abcdef12",
        "1764547200e3",
        "017645472000",
        " 176454720000",
        "inf",
        "1764547200.00",
        "9" * 17,
        "1764547200000:",
    ],
)
async def test_what_merely_looks_like_an_inline_reference_takes_no_body(rig, spelling):
    """Its last 36 bytes name another job's body: taking it would deliver that one early."""
    job = await rig.inline(due_ms=T0 + 1_000)
    await put_by_hand(rig, f"redis::{QUEUE}::{spelling}::{job.uuid}")
    claimed = await rig.claim()
    assert (claimed.moved, [bad.reason for bad in claimed.buried]) == (0, ["not_a_reference"])
    rig.now_ms += 1_000
    assert (await rig.claim()).moved == 1


@pytest.mark.parametrize("due_ms", [0, 7, 10**11, 10**12 - 1, 10**12, 10**13 - 1])
async def test_references_of_any_time_are_moved(rig, due_ms):
    """Those of 13 digits are read by a shorter way."""
    rig.now_ms = 10**13
    await rig.inline(due_ms=due_ms)
    claimed = await rig.claim()
    assert (claimed.moved, claimed.lateness_sum_ms) == (1, 10**13 - due_ms)


# ---- lateness --------------------------------------------------------------------------------------------------------


async def test_the_lateness_of_inline_jobs_is_counted_as_python_would(rig):
    """Jobs that were moved count from where they were moved to, and nothing is ever early."""
    random.seed(7)
    dues = [T0 - random.choice([0, 1, 10, 11, 100, 101, 999, 1_000, 60_000, 60_001, 10**7, 10**10]) for _ in range(300)]
    rig.transport.after = None
    entries = [rig.entry(b"x", due_ms=due) for due in dues]
    await rig.ledger.schedule(QUEUE, entries)
    for i in range(0, 300, 7):
        dues[i] = T0 - random.randrange(2_000)
        await rig.ledger.reschedule(entries[i].reference, dues[i])
    early = Reference("redis", QUEUE, T0 + 5_000, new_uuid())
    await put_by_hand(rig, str(early))
    await rig.redis.hset(rig.keys.queue(QUEUE).bodies, early.uuid, b"x")
    dues.append(T0)

    moved, total, counts = 0, 0, [0] * (len(BOUNDS_MS) + 1)
    while (claimed := await rig.claim(batch=70)).moved:
        moved, total = moved + claimed.moved, total + claimed.lateness_sum_ms
        counts = [a + b for a, b in zip(counts, claimed.lateness_counts, strict=True)]
    expected = [0] * (len(BOUNDS_MS) + 1)
    for due in dues:
        expected[bisect.bisect_left(BOUNDS_MS, T0 - due)] += 1
    assert (moved, counts, total) == (301, expected, sum(T0 - due for due in dues))
    await rig.check()
    await rig.nothing_left()


async def test_bad_members_count_no_lateness(rig):
    job = await rig.inline(due_ms=T0 - 5)
    await rig.redis.hdel(rig.keys.queue(QUEUE).bodies, job.uuid)
    claimed = await rig.claim()
    assert (sum(claimed.lateness_counts), claimed.lateness_sum_ms) == (0, 0)
