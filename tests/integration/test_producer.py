"""The producer on a real Redis and a real S3: accepted means kept, refused means nothing left behind."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta

import pytest

from service.errors import (
    BackendUnavailable,
    IdempotencyKeyReused,
    InvalidBody,
    InvalidHeader,
    InvalidQueue,
    InvalidTime,
    NotHere,
    OutcomeUnknown,
    PayloadTooLarge,
    RedisFull,
    RedisUnavailable,
    UnknownTenant,
)
from service.intake import NewJob
from service.producer import Accepted
from service.router import Resolved
from storage_backends.base import AccessDenied, PayloadMissing, StorageUnavailable
from storage_backends.reference import Reference
from tests.kit.desk import LARGE, MAX_PAYLOAD_BYTES, QUEUE, RULES, SMALL, Desk, a_desk
from tests.kit.s3_servers import S3Server
from tests.kit.servers import no_traces
from tests.kit.waiting import eventually

HOUR_MS = 3_600_000


@pytest.fixture
async def cut_off_desk(redis_url: str, s3_server: S3Server, redis_proxy) -> AsyncIterator[Desk]:
    """A desk whose way to Redis is `redis_proxy`."""
    async with a_desk(redis_url, s3_server, through=redis_proxy.url) as made:
        yield made


def failing(error: Exception) -> Callable[[Reference], Awaitable[None]]:
    async def fail(_: Reference) -> None:
        raise error

    return fail


def unavailable(*, maybe_done: bool = False) -> StorageUnavailable:
    return StorageUnavailable("as the test wants it", backend="s3", maybe_done=maybe_done)


async def script_named(desk: Desk, name: str) -> bytes:
    return desk.ledger._runner._scripts[name].sha.encode()


# ---- where payloads go -----------------------------------------------------------------------------------------------


async def test_a_small_payload_lies_in_redis_beside_its_reference(desk):
    accepted = await desk.enqueue(SMALL, delay="1h")
    assert (accepted.backend, accepted.reason, accepted.replayed) == ("redis", "tiny", False)
    assert await desk.where(accepted.reference) == {"delayed"}
    assert await desk.redis.hget(desk.keys.queue(QUEUE).bodies, accepted.reference.uuid) == SMALL
    assert desk.store.puts == []


async def test_a_large_payload_lies_in_s3_and_redis_holds_its_reference_alone(desk):
    accepted = await desk.enqueue(LARGE)
    assert (accepted.backend, accepted.reason) == ("s3", "large")
    assert await desk.stored(accepted.reference) == LARGE
    assert await desk.delayed() == [accepted.reference]
    assert not await desk.redis.exists(desk.keys.queue(QUEUE).bodies)


async def test_the_reference_is_written_only_when_the_payload_is_durable(desk):
    """The other way round a dispatcher could meet a reference whose payload is not there yet, and bury the job."""
    seen = []

    async def look(reference: Reference) -> None:
        seen.append(await desk.where(reference))

    desk.store.before = desk.store.after = look
    await desk.enqueue(LARGE)
    assert seen == [set(), set()]


@pytest.mark.parametrize("size", [511, 512, 16_384, 16_385])
async def test_thresholds_are_bytes_as_stored(desk, size):
    """Of a text with characters of two bytes; a limit in characters would be off by half."""
    payload = ("ü" * size).encode()[:size]
    accepted = await desk.enqueue(payload, delay="1s")
    assert accepted.reason == ("tiny" if size < 512 else "large" if size > 16_384 else "small_and_short")


async def test_an_empty_payload_is_a_payload(desk):
    accepted = await desk.enqueue(b"", due="2020-01-01T00:00:00Z")
    assert await desk.deliver_inline() == 1
    assert await desk.redis.rpop(desk.keys.queue(QUEUE).ready) == b""
    assert await desk.where(accepted.reference) == set()


class _HourAhead:
    def now_ms(self) -> int:
        return int(datetime.now(UTC).timestamp() * 1000) + HOUR_MS

    def monotonic_s(self) -> float:
        return asyncio.get_running_loop().time()


async def test_redis_tells_the_time_not_the_machine_that_a_producer_runs_on(redis_url, s3_server):
    """A machine whose clock is an hour ahead takes `due` for the past otherwise, and the job is an hour early."""
    async with a_desk(redis_url, s3_server, clock=_HourAhead()) as desk:
        in_half_an_hour = datetime.now(UTC) + timedelta(minutes=30)
        accepted = await desk.enqueue(due=in_half_an_hour)
        assert abs(accepted.due_ms - in_half_an_hour.timestamp() * 1000) <= 1
        delayed = await desk.enqueue(delay="10m")
        assert abs(delayed.due_ms - datetime.now(UTC).timestamp() * 1000 - 600_000) < 5_000


async def test_accepted_jobs_are_counted_where_they_went(desk):
    await desk.enqueue(LARGE, tenant="acme")
    assert desk.counted("jobs_total", backend="s3", outcome="accepted") == 1
    assert desk.counted("routing_decisions_total", backend="s3", reason="large") == 1


# ---- bad input -------------------------------------------------------------------------------------------------------

BAD = [
    (InvalidQueue, {"queue": "a::b"}),
    (InvalidQueue, {"queue": "a:"}),
    (InvalidQueue, {"queue": "{a}"}),
    (InvalidQueue, {"queue": "a b"}),
    (InvalidQueue, {"queue": "a/b"}),
    (InvalidQueue, {"queue": ".."}),
    (InvalidQueue, {"queue": "a\0"}),
    (InvalidQueue, {"queue": "a" * 129}),
    (InvalidQueue, {"queue": "ä"}),
    (InvalidQueue, {"queue": ""}),
    (InvalidTime, {"delay": "30"}),
    (InvalidTime, {"delay": "-1s"}),
    (InvalidTime, {"delay": "3654d"}),
    (InvalidTime, {"due": "2030-01-01T00:00:00"}),
    (InvalidTime, {"due": 1_764_547_200}),
    (InvalidTime, {"due": "2099-01-01T00:00:00Z"}),
    (InvalidTime, {"delay": "1s", "due": "2030-01-01T00:00:00Z"}),
    (UnknownTenant, {"tenant": "nobody"}),
    (UnknownTenant, {"tenant": "no such\nname" * 100}),
    (InvalidHeader, {"idempotency_key": ""}),
    (InvalidHeader, {"idempotency_key": "k" * 256}),
    (InvalidHeader, {"idempotency_key": "ü"}),
    (InvalidHeader, {"idempotency_key": "a\nb"}),
    (InvalidBody, {"payload": "text"}),
    (PayloadTooLarge, {"payload": b"x" * (MAX_PAYLOAD_BYTES + 1)}),
]


@pytest.mark.parametrize(("error", "wrong"), BAD)
async def test_bad_input_is_refused_and_leaves_nothing_behind(desk, error, wrong):
    with pytest.raises(error) as refusal:
        await desk.enqueue(**{"payload": LARGE, **wrong})
    assert len(str(refusal.value)) < 400
    assert desk.store.puts == []
    await no_traces(desk.redis)


async def test_neither_delay_nor_due_is_refused(desk):
    with pytest.raises(InvalidTime):
        await desk.producer.enqueue(SMALL, queue=QUEUE)
    await no_traces(desk.redis)


async def test_a_payload_of_just_the_limit_is_accepted(desk):
    assert (await desk.enqueue(b"x" * MAX_PAYLOAD_BYTES)).reason == "large"


# ---- the backend fails -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [unavailable(), AccessDenied("as the test wants it", backend="s3")],
    ids=["unavailable", "denied"],
)
async def test_a_put_that_certainly_failed_makes_an_inline_job_and_nothing_else(desk, error):
    desk.store.before = failing(error)
    accepted = await desk.enqueue(LARGE)
    assert (accepted.backend, accepted.reason) == ("redis", "fallback")
    assert await desk.delayed() == [accepted.reference]
    assert await desk.trash() == {}
    assert await desk.redis.hget(desk.keys.queue(QUEUE).bodies, accepted.reference.uuid) == LARGE


@pytest.mark.parametrize(
    "error", [unavailable(maybe_done=True), ZeroDivisionError("the backend's own")], ids=["timed out", "unknown"]
)
async def test_a_put_that_may_have_happened_makes_one_job_and_a_late_deletion(desk, error):
    """Deleted at once, a put that arrives later would stay for ever; not deleted, it is an orphan."""
    desk.store.after = failing(error)
    accepted = await desk.enqueue(LARGE)
    [upload] = desk.store.puts
    assert accepted.reason == "fallback"
    assert await desk.delayed() == [accepted.reference]
    assert await desk.stored(upload) == LARGE
    [(discarded, wait_ms)] = (await desk.trash()).items()
    assert discarded == upload
    assert HOUR_MS - 10_000 < wait_ms <= HOUR_MS


async def test_what_redis_may_not_keep_is_refused_when_the_backend_is_away(desk):
    desk.store.before = failing(unavailable())
    with pytest.raises(BackendUnavailable) as refusal:
        await desk.enqueue(b"x" * 70_000)
    assert refusal.value.retry_after_s > 0
    assert isinstance(refusal.value.__cause__, Exception)
    await no_traces(desk.redis)
    assert desk.counted("refused_total", code="backend-unavailable") == 1


async def test_a_refused_job_whose_put_may_have_happened_leaves_its_deletion_alone(desk):
    desk.store.after = failing(unavailable(maybe_done=True))
    with pytest.raises(BackendUnavailable):
        await desk.enqueue(b"x" * 70_000)
    assert await desk.delayed() == []
    assert list(await desk.trash()) == desk.store.puts


async def test_who_set_refuse_is_refused_however_small_the_payload(redis_url, s3_server):
    async with a_desk(redis_url, s3_server, rules=Resolved(offload_to="s3", when_unavailable="refuse")) as desk:
        desk.store.before = failing(unavailable())
        with pytest.raises(BackendUnavailable):
            await desk.enqueue(LARGE)
        await no_traces(desk.redis)


async def test_an_open_breaker_is_not_asked(desk):
    desk.store.before = failing(unavailable())
    for _ in range(5):
        await desk.enqueue(LARGE)
    assert not desk.guarded.available
    asked = len(desk.store.puts)
    assert (await desk.enqueue(LARGE)).reason == "fallback"
    assert len(desk.store.puts) == asked


async def test_redis_does_not_stand_in_above_its_watermark(desk):
    """An outage of S3 must not fill Redis."""
    desk.store.before = failing(unavailable())
    desk.memory_ratio = 0.85
    with pytest.raises(BackendUnavailable):
        await desk.enqueue(LARGE)
    assert (await desk.enqueue(SMALL)).backend == "redis"


async def test_a_payload_that_took_too_long_is_refused_and_goes_to_the_trash(redis_url, s3_server):
    """The sweeper may have found it in the meantime, and taken it for an orphan."""
    async with a_desk(redis_url, s3_server, stale_after_ms=-1) as desk:
        with pytest.raises(BackendUnavailable):
            await desk.enqueue(LARGE)
        assert await desk.delayed() == []
        assert list(await desk.trash()) == desk.store.puts


# ---- Redis fails -----------------------------------------------------------------------------------------------------


async def test_above_the_watermark_nothing_is_accepted_and_nothing_put(desk):
    desk.memory_ratio = 0.91
    for payload in (SMALL, LARGE):
        with pytest.raises(RedisFull):
            await desk.enqueue(payload)
    assert desk.store.puts == []
    await no_traces(desk.redis)


async def test_an_upload_that_redis_had_no_room_for_goes_to_the_trash(own_redis, s3_server):
    """The watermark is looked at now and then; Redis may be full before the next look."""
    server = own_redis()
    async with a_desk(server.url, s3_server) as desk:

        async def fill(_: Reference) -> None:
            await desk.redis.config_set("maxmemory", "1")

        desk.store.after = fill
        with pytest.raises(RedisFull):
            await desk.enqueue(LARGE)
        assert await desk.delayed() == []
        [(upload, wait_ms)] = (await desk.trash()).items()
        assert desk.store.puts == [upload]
        assert wait_ms <= 0
        assert desk.counted("refused_total", code="redis-full") == 1


async def test_a_redis_that_is_gone_after_the_put_is_the_error_and_the_upload_is_counted(cut_off_desk, redis_proxy):
    """That the upload could not be noted must not hide why; the sweeper finds it."""
    desk = cut_off_desk

    async def cut(_: Reference) -> None:
        await redis_proxy.refuse()

    desk.store.after = cut
    with pytest.raises(RedisUnavailable) as refusal:
        await desk.enqueue(LARGE)
    assert not isinstance(refusal.value, OutcomeUnknown)
    assert desk.counted("uploads_abandoned_total", backend="s3") == 1
    await no_traces(desk.redis)


async def test_a_redis_that_is_gone_before_anything_costs_no_upload(cut_off_desk, redis_proxy):
    await redis_proxy.refuse()
    for payload in (SMALL, LARGE):
        with pytest.raises(RedisUnavailable):
            await cut_off_desk.enqueue(payload)
    assert cut_off_desk.store.puts == []


@pytest.mark.parametrize("payload", [SMALL, LARGE], ids=["inline", "offloaded"])
@pytest.mark.parametrize("key", [None, "order-1"])
async def test_a_lost_reply_to_a_schedule_is_looked_up_or_repeated(cut_off_desk, redis_proxy, payload, key):
    desk = cut_off_desk
    lost = redis_proxy.swallow_reply(await script_named(desk, "schedule"))
    accepted = await desk.enqueue(payload, idempotency_key=key)
    await lost
    assert await desk.delayed() == [accepted.reference]
    assert not accepted.replayed
    assert await desk.trash() == {}


@pytest.mark.parametrize("payload", [SMALL, LARGE], ids=["inline", "offloaded"])
async def test_a_lost_schedule_without_a_key_is_unknown_and_its_payload_kept(cut_off_desk, redis_proxy, payload):
    """It may be on its way still: a payload deleted now would leave its reference dangling."""
    desk = cut_off_desk
    lost = redis_proxy.swallow_request(await script_named(desk, "schedule"))
    with pytest.raises(OutcomeUnknown) as unknown:
        await desk.enqueue(payload)
    await lost
    assert await desk.delayed() == []
    assert await desk.trash() == {}
    if payload is LARGE:
        assert await desk.stored(unknown.value.reference) == LARGE
    assert desk.counted("refused_total", code="outcome-unknown") == 1


@pytest.mark.parametrize("payload", [SMALL, LARGE], ids=["inline", "offloaded"])
async def test_a_lost_schedule_with_a_key_is_repeated(cut_off_desk, redis_proxy, payload):
    desk = cut_off_desk
    lost = redis_proxy.swallow_request(await script_named(desk, "schedule"))
    accepted = await desk.enqueue(payload, idempotency_key="order-1")
    await lost
    assert await desk.delayed() == [accepted.reference]


async def test_a_delete_settles_a_job_that_is_being_accepted(desk):
    """Whoever was told `unknown` deletes the reference; a schedule that arrives after that must not bring it back."""
    desk.store.after = desk.ledger.cancel
    with pytest.raises(NotHere):
        await desk.enqueue(LARGE)
    assert await desk.delayed() == []
    assert list(await desk.trash()) == desk.store.puts


# ---- idempotency keys ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("payload", [SMALL, LARGE], ids=["inline", "offloaded"])
async def test_the_same_request_again_is_the_first_answer_and_no_second_upload(desk, payload):
    first = await desk.enqueue(payload, idempotency_key="order-1")
    again = await desk.enqueue(payload, idempotency_key="order-1")
    assert again == Accepted(first.reference, first.reason, replayed=True)
    assert await desk.delayed() == [first.reference]
    assert len(desk.store.puts) == (payload is LARGE)
    assert desk.counted("replayed_total") == 1


async def test_a_replay_is_the_first_answer_also_when_the_job_is_delivered(desk):
    first = await desk.enqueue(due="2020-01-01T00:00:00Z", idempotency_key="order-1")
    assert await desk.deliver_inline() == 1
    again = await desk.enqueue(due="2020-01-01T00:00:00Z", idempotency_key="order-1")
    assert again == Accepted(first.reference, first.reason, replayed=True)
    assert await desk.delayed() == []


async def test_a_replay_is_the_first_answer_also_when_the_job_is_cancelled(desk):
    first = await desk.enqueue(LARGE, idempotency_key="order-1")
    assert await desk.ledger.cancel(first.reference) == "cancelled"
    assert (await desk.enqueue(LARGE, idempotency_key="order-1")).reference == first.reference
    assert await desk.delayed() == []


async def test_a_replay_needs_neither_memory_nor_the_backend(desk):
    """The client that repeats has lost the answer; the outage that took it must not keep it."""
    first = await desk.enqueue(b"x" * 70_000, idempotency_key="order-1")
    desk.memory_ratio = 0.95
    desk.store.before = failing(unavailable())
    again = await desk.enqueue(b"x" * 70_000, idempotency_key="order-1")
    assert again.replayed
    assert again.reference == first.reference


@pytest.mark.parametrize(
    "other", [{"payload": b"other"}, {"delay": "60m"}, {"delay": None, "due": "2030-01-01T00:00:00Z"}]
)
async def test_another_request_under_the_same_key_is_refused(desk, other):
    await desk.enqueue(SMALL, delay="1h", idempotency_key="order-1")
    with pytest.raises(IdempotencyKeyReused):
        await desk.enqueue(**{"payload": SMALL, "delay": "1h", "idempotency_key": "order-1", **other})
    assert len(await desk.delayed()) == 1


async def test_keys_of_different_queues_and_tenants_do_not_meet(desk):
    for options in ({}, {"queue": "other"}, {"tenant": "acme"}, {"tenant": "globex"}):
        assert not (await desk.enqueue(idempotency_key="order-1", **options)).replayed


@pytest.mark.parametrize("payload", [SMALL, LARGE], ids=["inline", "offloaded"])
async def test_of_two_at_once_under_one_key_one_job_is_made_and_the_losers_upload_is_trash(desk, payload):
    arrived, all_there = [], asyncio.Event()

    async def wait_for_the_other(reference: Reference) -> None:
        arrived.append(reference)
        if len(arrived) == 2:
            all_there.set()
        await all_there.wait()

    desk.store.before = wait_for_the_other
    one, two = await asyncio.gather(*(desk.enqueue(payload, idempotency_key="order-1") for _ in range(2)))
    assert one.reference == two.reference
    assert sorted([one.replayed, two.replayed]) == [False, True]
    assert await desk.delayed() == [one.reference]
    assert set(await desk.trash()) == set(desk.store.puts) - {one.reference}


async def test_a_key_twice_in_one_batch_makes_one_job(desk):
    job = NewJob(LARGE, QUEUE, delay="1h", idempotency_key="order-1")
    first, second = await desk.producer.enqueue_many([job, job])
    assert (first.replayed, second.replayed) == (False, True)
    assert await desk.delayed() == [first.reference]
    assert set(await desk.trash()) == set(desk.store.puts) - {first.reference}


# ---- many ------------------------------------------------------------------------------------------------------------


async def test_a_batch_is_answered_in_order_and_a_bad_job_fails_alone(desk):
    jobs = [
        NewJob(b"0", "a", delay="1h"),
        NewJob(b"1", "a::b", delay="1h"),
        NewJob(LARGE, "b", delay="1h"),
        NewJob(b"3", "a", delay="soon"),
        NewJob(b"4", "a", due="2030-01-01T00:00:00Z"),
    ]
    answers = await desk.producer.enqueue_many(jobs)
    assert [type(answer) for answer in answers] == [Accepted, InvalidQueue, Accepted, InvalidTime, Accepted]
    assert [answer.queue for answer in answers if isinstance(answer, Accepted)] == ["a", "b", "a"]
    assert await desk.delayed("a") == [answers[0].reference, answers[4].reference]
    assert await desk.delayed("b") == [answers[2].reference]


async def test_no_jobs_are_no_answers(desk):
    assert await desk.producer.enqueue_many([]) == []


async def test_many_jobs_of_one_moment_keep_their_order(desk):
    answers = await desk.producer.enqueue_many([NewJob(b"%d" % n, QUEUE, due=10**11) for n in range(2_500)])
    assert [answer.reference for answer in answers] == await desk.delayed()


async def test_puts_of_a_batch_run_at_once_and_no_more_than_their_backend_takes(redis_url, s3_server):
    async with a_desk(redis_url, s3_server, concurrency=3) as desk:
        answers = await desk.producer.enqueue_many([NewJob(LARGE, QUEUE, delay="1h") for _ in range(12)])
        assert {answer.backend for answer in answers} == {"s3"}
        assert desk.store.most_at_once == 3


async def test_one_unusable_queue_does_not_take_the_answers_of_the_others(desk):
    await desk.redis.set(desk.keys.queue("broken").delayed, "no zset")
    good, bad = await desk.producer.enqueue_many([NewJob(SMALL, q, delay="1h") for q in ("good", "broken")])
    assert await desk.where(good.reference) == {"delayed"}
    assert isinstance(bad, OutcomeUnknown)


async def test_an_error_that_nobody_foresaw_is_one_jobs_and_orphans_no_other(
    redis_url, s3_server, redis_proxy, monkeypatch
):
    """Raised for all, it would leave what the others put without a job, and without an entry in the trash."""
    async with a_desk(redis_url, s3_server, through=redis_proxy.url, concurrency=1) as desk:
        traps = []

        async def forbid_the_next(_: Reference) -> None:
            if not traps:
                monkeypatch.setattr(type(desk.ledger.clock), "known_for_s", lambda _: 60.0)
                traps.append(redis_proxy.forge_reply(b"-NOPERM no permission for 'time'\r\n", matching=b"TIME"))

        desk.store.before = forbid_the_next
        answers = await desk.producer.enqueue_many([NewJob(LARGE, QUEUE, delay="1h") for _ in range(5)])
        await traps[0]
        [refused] = [answer for answer in answers if not isinstance(answer, Accepted)]
        assert isinstance(refused, BackendUnavailable)
        accepted = {answer.reference for answer in answers if isinstance(answer, Accepted)}
        assert accepted == set(desk.store.puts) == set(await desk.delayed())
        assert len(accepted) == 4
        assert desk.counted("refused_total", code="backend-unavailable") == 1


async def test_a_batch_whose_backend_fails_in_the_middle_loses_nothing(desk):
    fails = iter([False, True] * 5)

    async def every_other(_: Reference) -> None:
        if next(fails):
            raise unavailable(maybe_done=True)

    desk.store.after = every_other
    answers = await desk.producer.enqueue_many([NewJob(LARGE, QUEUE, delay="1h") for _ in range(10)])
    assert {answer.reference for answer in answers} == set(await desk.delayed())
    lost = set(desk.store.puts) - {answer.reference for answer in answers}
    assert lost == set(await desk.trash())


# ---- callers who leave -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hook", ["before", "after"])
async def test_a_caller_who_leaves_during_the_put_leaves_no_upload_unaccounted_for(desk, hook):
    """The upload would have no job, and nobody who knows of it."""
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def pause(_: Reference) -> None:
        reached.set()
        await go_on.wait()

    setattr(desk.store, hook, pause)
    caller = asyncio.create_task(desk.enqueue(LARGE))
    await reached.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    go_on.set()
    await desk.producer.aclose()
    assert await desk.delayed() == desk.store.puts
    assert await desk.stored(desk.store.puts[0]) == LARGE


async def test_a_process_that_ends_during_the_put_notes_the_upload_for_deletion(desk):
    """At the very end even what runs on is cancelled."""
    reached = asyncio.Event()

    async def hang(_: Reference) -> None:
        reached.set()
        await asyncio.Event().wait()

    desk.store.after = hang
    caller = asyncio.create_task(desk.enqueue(LARGE))
    await reached.wait()
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    await eventually(desk.trash, described="the upload is in the trash")
    assert await desk.delayed() == []


@pytest.mark.parametrize(("fault", "jobs"), [("swallow_reply", 1), ("swallow_request", 0)])
async def test_a_caller_who_leaves_during_the_schedule_leaves_one_job_or_none(cut_off_desk, redis_proxy, fault, jobs):
    desk = cut_off_desk
    silent = getattr(redis_proxy, fault)(await script_named(desk, "schedule"), then_silence=True)
    caller = asyncio.create_task(desk.enqueue(SMALL))
    await silent
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert len(await desk.delayed()) == jobs
    assert (await desk.enqueue(SMALL)).reference in await desk.delayed()


async def test_a_payload_that_vanished_is_not_made_up(desk):
    """The kit's own check: `stored` asks the store itself."""
    with pytest.raises(PayloadMissing):
        await desk.stored(Reference("s3", QUEUE, 10**12, "0193f2a4-7c1e-7b3a-9d57-6f0a1c2b3d4e"))


def test_the_desk_offloads_by_the_default_rules():
    assert (RULES.offload_min_bytes, RULES.inline_max_bytes, RULES.fallback_max_bytes) == (512, 16_384, 65_536)
