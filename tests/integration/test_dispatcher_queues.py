"""What one queue does to the others, and how a queue waits: fairness, limits, suspensions, and no spinning."""

import asyncio

import pytest

from service.wiring import Service
from tests.kit.waiting import eventually
from tests.kit.yards import QUEUE, Hanging, Yard, a_yard, counted, hooked


@pytest.fixture
async def yard(redis_url, s3_server):
    async with a_yard(redis_url, s3_server) as yard:
        yield yard


def rounds(service: Service) -> float:
    return counted(service, "loop_rounds_total", loop="dispatch")


async def scripts_run(yard: Yard) -> int:
    stats = await yard.redis.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "eval"))


async def scripts_a_second(yard: Yard, within_s: float = 1.0) -> float:
    """How many scripts Redis was asked to run, by its own count and clock."""
    began_ms, before = await yard.now_ms(), await scripts_run(yard)

    async def over() -> bool:
        return await yard.now_ms() - began_ms > within_s * 1000

    await eventually(over, within_s=within_s + 5, described="the time is over")
    after, ended_ms = await scripts_run(yard), await yard.now_ms()
    return (after - before) / ((ended_ms - began_ms) / 1000)


async def wrong_typed(yard: Yard, queue: str) -> None:
    await yard.redis.set(yard.keys.queue(queue).ready, "no list")


# -- fairness ----------------------------------------------------------------------------------------------------------


async def test_a_single_job_is_at_most_two_rounds_late_whatever_the_others_do(yard: Yard, monkeypatch):
    """A queue hours behind, one whose backend hangs, one whose ready key is no list: none of them is its business."""
    hours_ms = 4 * 3_600_000
    service = yard.service(QUEUES='{"backlog": {"max_ready": 1000000}}', DISPATCHER__INTERVAL="1s")
    backend = hooked(service)
    backend.before_get = hanging = Hanging()
    arrivals: asyncio.Queue[float] = asyncio.Queue()
    count = service.metrics.delivered

    def delivered(queue: str, name: str, n: int = 1) -> None:
        if queue == "single":
            arrivals.put_nowait(rounds(service))
        count(queue, name, n)

    monkeypatch.setattr(service.metrics, "delivered", delivered)
    await wrong_typed(yard, "wrong")
    await yard.inline([b"x"] * 100, "wrong", in_ms=-hours_ms)
    await yard.offloaded([b"x"] * 3000, "slow", in_ms=-hours_ms, stored=False)
    await yard.ledger.pause("backlog")
    for _ in range(15):
        await yard.inline([b"x"] * 10_000, "backlog", in_ms=-hours_ms)
    async with yard.dispatcher(service):
        await eventually(lambda: backend.at_once == 16, described="the slow backend's slots are taken")
        await yard.ledger.resume("backlog")
        await eventually(lambda: yard.redis.llen(yard.keys.queue("backlog").ready), described="the backlog flows")
        late = []
        for _ in range(5):
            before = rounds(service)
            await yard.inline([b"single"], "single")
            late.append(await arrivals.get() - before)
        assert await yard.size("delayed", "backlog") > 0, "the backlog was gone before the test was over"
        assert max(late) <= 2, late
        assert await yard.size("delayed", "wrong") == 100
        hanging.end()


async def test_many_queues_with_old_backlogs_do_not_hide_a_new_job(yard: Yard, monkeypatch):
    """The index is asked for so many queues at once. Those behind them have their turn before the first come again."""
    monkeypatch.setattr("service.dispatcher._QUEUES_A_ROUND", 5)
    monkeypatch.setattr("service.dispatcher._SLICE_BATCHES", 1)
    service = yard.service(DISPATCHER__BATCH="1")
    for number in range(20):
        await yard.inline([b"x"] * 60, f"old-{number}", in_ms=-3_600_000)
    await yard.inline([b"single"], "single")
    async with yard.dispatcher(service):
        await yard.delivers([b"single"], "single")
        assert sum([await yard.size("delayed", f"old-{number}") for number in range(20)]) > 20 * 45
        assert rounds(service) < 15


# -- waiting -----------------------------------------------------------------------------------------------------------


async def test_a_full_ready_list_waits_for_its_consumers_and_goes_on(yard: Yard):
    """Payloads stay cheap until someone consumes them; leased jobs count as if they were in the list already."""
    async with yard.dispatcher(QUEUES='{"emails": {"max_ready": 10}}', DISPATCHER__INTERVAL="1s"):
        await yard.inline([b"inline"] * 8)
        await yard.offloaded([b"offloaded"] * 8)
        await eventually(lambda: _length(yard, 10), described="the list is full")
        assert await scripts_a_second(yard) < 25
        assert await yard.size("delayed") + await yard.size("leases") == 6
        for _ in range(8):
            await yard.redis.rpop(yard.keys.queue(QUEUE).ready)
        await eventually(lambda: _length(yard, 8), described="the rest comes")
        assert await yard.size("delayed") == 0


async def test_leased_jobs_take_their_place_in_the_ready_list_before_they_arrive(yard: Yard):
    """Else a thousand slow fetches would all be let in while there is room for ten."""
    service = yard.service(QUEUES='{"emails": {"max_ready": 10}}')
    backend = hooked(service)
    backend.before_get = hanging = Hanging()
    await yard.offloaded([b"%d" % n for n in range(30)])
    async with yard.dispatcher(service):
        await eventually(lambda: backend.at_once == 10, described="ten are fetched")
        assert await yard.size("leases") == 10
        hanging.end()
        await eventually(lambda: _length(yard, 10), described="ten arrive")
        assert await yard.size("delayed") == 20


async def test_a_heavy_ready_list_waits_for_its_consumers_and_goes_on(yard: Yard):
    async with yard.dispatcher(QUEUES='{"emails": {"max_ready_bytes": "100KiB"}}', DISPATCHER__BATCH="10"):
        await yard.inline([b"x" * 10_000] * 200)
        await eventually(lambda: yard.redis.llen(yard.keys.queue(QUEUE).ready), described="the first arrive")

        async def stands_still() -> bool:
            before = await yard.redis.llen(yard.keys.queue(QUEUE).ready)
            await scripts_a_second(yard, 0.3)
            return before == await yard.redis.llen(yard.keys.queue(QUEUE).ready)

        await eventually(stands_still, described="it waits")
        assert await yard.size("delayed") >= 150
        await yard.redis.delete(yard.keys.queue(QUEUE).ready)
        left = await yard.size("delayed")
        await eventually(lambda: _fewer(yard, left), described="it goes on")


async def test_a_ready_key_of_another_type_suspends_its_queue_and_no_other(yard: Yard):
    """Nothing is lost: jobs stay where they are, and flow when people have put it right."""
    await wrong_typed(yard, "wrong")
    async with yard.dispatcher() as dispatcher:
        await yard.inline([b"inline"], "wrong")
        await yard.offloaded([b"offloaded"], "wrong")
        await yard.inline([b"fine"], "fine")
        await yard.delivers([b"fine"], "fine")
        await eventually(lambda: counted(dispatcher, "queues_suspended", cause="ready_unusable") == 1)
        assert await yard.size("delayed", "wrong") == 2
        assert await scripts_a_second(yard) < 25
        await yard.redis.delete(yard.keys.queue("wrong").ready)
        await yard.delivers([b"inline", b"offloaded"], "wrong")
        await eventually(lambda: counted(dispatcher, "queues_suspended", cause="ready_unusable") == 0)


async def test_a_ready_key_that_becomes_unusable_while_payloads_are_fetched_loses_nothing(yard: Yard):
    """Thirty find it out at once: they are given back uncharged, and one line is logged."""
    service = yard.service()
    backend = hooked(service)
    backend.before_get = hanging = Hanging()
    payloads = [b"%d" % n for n in range(30)]
    references = await yard.offloaded(payloads)
    async with yard.dispatcher(service):
        await eventually(lambda: yard.size("leases"), described="they are leased")
        await wrong_typed(yard, QUEUE)
        hanging.end()
        await eventually(lambda: counted(service, "ready_unusable_total") > 0)

        async def given_back() -> bool:
            return await yard.size("delayed") == 30

        await eventually(given_back, described="all are given back")
        assert counted(service, "ready_unusable_total") <= 3
        assert {(await yard.job(each)).attempts for each in references} == {0}  # type: ignore[union-attr]  # it is there
        await yard.redis.delete(yard.keys.queue(QUEUE).ready)
        await yard.delivers(payloads)


async def test_a_queue_whose_own_keys_are_broken_holds_up_no_other(yard: Yard):
    """A hand wrote a string over its delayed set: that is its affair, until people put it right."""
    await yard.inline([b"x"], "broken")
    await yard.redis.set(yard.keys.queue("broken").delayed, "no zset")
    async with yard.dispatcher() as dispatcher:
        await yard.inline([b"fine"], "fine")
        await yard.delivers([b"fine"], "fine")
        assert await scripts_a_second(yard) < 25
        assert dispatcher.alive().ok
        await yard.redis.delete(yard.keys.queue("broken").delayed)
        await yard.inline([b"again"], "broken")
        await yard.delivers([b"again"], "broken")


async def test_a_paused_queue_with_overdue_jobs_costs_nothing(yard: Yard):
    async with yard.dispatcher(DISPATCHER__INTERVAL="1s"):
        await yard.ledger.pause(QUEUE)
        await yard.inline([b"x"] * 10)
        assert await scripts_a_second(yard) < 5
        await yard.ledger.resume(QUEUE)
        await yard.delivers([b"x"] * 10)


async def test_a_hundred_idle_queues_cost_next_to_nothing(yard: Yard):
    """Jobs due in a month: one look at the index a second, whatever the number of queues."""
    async with yard.dispatcher(DISPATCHER__INTERVAL="1s"):
        for number in range(100):
            await yard.inline([b"x"], f"q{number}", in_ms=30 * 86_400_000)
        before, began_ms = await _processed(yard), await yard.now_ms()
        looks = 2

        async def over() -> bool:
            nonlocal looks
            looks += 1
            return await yard.now_ms() - began_ms > 3000

        await eventually(over, described="three seconds are over")
        assert (await _processed(yard) - before - looks) / 3 < 20


async def test_offloaded_jobs_that_wait_for_slots_let_inline_ones_by_without_a_spin(yard: Yard):
    """Thousands of them are due first, all slots are taken for long: the window that claim looks at holds only them."""
    service = yard.service(DISPATCHER__INTERVAL="1s", DISPATCHER__FETCH_TIMEOUT="2s")
    backend = hooked(service)
    backend.before_get = hanging = Hanging()
    async with yard.dispatcher(service):
        await yard.ledger.pause(QUEUE)
        await yard.offloaded([b"x"] * 5000, stored=False)
        await yard.inline([b"inline"])
        await yard.ledger.resume(QUEUE)
        await yard.delivers([b"inline"], within_s=5)
        assert backend.most_at_once <= 16
        assert await scripts_a_second(yard, 0.5) < 60
        hanging.end()


async def test_a_slow_backend_fills_its_own_slots(yard: Yard):
    """Its 32 hang; another backend's jobs and inline ones of the same queue flow by."""
    options = yard.store.options(yard.store.new_bucket())
    other = {f"BACKENDS__OTHER__{name.upper()}": str(value) for name, value in options.items()}
    service = yard.service(BACKENDS__OTHER__KIND="s3", **other)
    slow = hooked(service)
    slow.before_get = hanging = Hanging()
    async with yard.dispatcher(service):
        await yard.offloaded([b"%d" % n for n in range(100)])
        await eventually(lambda: slow.at_once == 16, described="as many as it serves at once are asked for")
        assert await yard.size("leases") == 32
        await yard.ledger.pause(QUEUE)  # else the job could be due before its payload is there
        (job,) = await yard.offloaded([b"other"], backend="other", stored=False)
        await service.backends["other"].put(job, b"other")
        await yard.inline([b"inline"])
        await yard.ledger.resume(QUEUE)
        await yard.delivers([b"other", b"inline"])
        hanging.end()


async def _length(yard: Yard, length: int) -> bool:
    found = await yard.redis.llen(yard.keys.queue(QUEUE).ready)
    assert found == length, found
    return True


async def _fewer(yard: Yard, than: int) -> bool:
    return await yard.size("delayed") < than


async def _processed(yard: Yard) -> int:
    """Commands by INFO, those of scripts not counted."""
    stats = await yard.redis.info("commandstats")
    return sum(each["calls"] for name, each in stats.items() if name in _SENT)


_SENT = {f"cmdstat_{name}" for name in ("evalsha", "eval", "ping", "info", "time", "scan", "subscribe", "hgetall")}
