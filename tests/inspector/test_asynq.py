"""Asynq's queues: where a task really is, and what does not fit. Every kind of trouble is made as it comes about."""

from collections.abc import Sequence

import pytest

from service.inspector.answers import JobDetail, Problem
from service.inspector.asynq.layout import Asynq
from service.inspector.causes import CAUSES
from service.inspector.reading import Budget
from tests.kit.asynq_writer import AsynqWriter, message
from tests.kit.inspecting import Inspected

QUEUE = "mail"


@pytest.fixture
async def mail(inspected: Inspected) -> AsynqWriter:
    return AsynqWriter(inspected.redis, QUEUE, await inspected.now_ms() // 1000)


async def job(inspected: Inspected, id_: str) -> JobDetail:
    found = await (await inspected.look(Asynq)).job(QUEUE, id_)
    assert found is not None
    return found


async def problems(inspected: Inspected) -> Sequence[Problem]:
    found = await (await inspected.look(Asynq)).problems(QUEUE)
    assert {problem.kind for problem in found} <= set(CAUSES)
    return found


async def kinds(inspected: Inspected) -> dict[str, list[str]]:
    """Ids by kind of problem, as the queue's problems tell them."""
    told: dict[str, list[str]] = {}
    for problem in await problems(inspected):
        told.setdefault(problem.kind, []).extend(problem.ids)
    return told


async def kinds_of(inspected: Inspected, id_: str) -> set[str]:
    return {problem.kind for problem in (await job(inspected, id_)).problems}


async def test_a_queue_in_every_state_is_summed_up(inspected: Inspected, mail: AsynqWriter):
    for id_ in ("retry", "archived", "completed", "gone", "active"):
        await mail.enqueue(id_)
        await mail.dequeue()
    await mail.retry("retry", mail.now_s + 60)
    await mail.archive("archived")
    await mail.complete("completed")
    await mail.done("gone")
    await mail.enqueue("old", since_s=mail.now_s - 100.5)
    await mail.enqueue("young")
    await mail.schedule("scheduled", mail.now_s + 30)
    await mail.group("grouped", "g")
    await mail.group("in a set", "g2")
    await mail.aggregate("g2", "a-b-c")
    summary = await (await inspected.look(Asynq)).summary(QUEUE)
    one_each = dict.fromkeys(["active", "scheduled", "retry", "archived", "completed"], 1)
    assert summary.states == {"pending": 2, **one_each, "aggregating": 2}
    assert list(summary.states) == ["pending", *one_each, "aggregating"]
    assert summary.oldest_due is not None
    assert summary.next_due is not None
    assert (summary.oldest_due.ms, summary.next_due.ms) == ((mail.now_s * 1000 - 100_500), (mail.now_s + 30) * 1000)
    assert (summary.paused, list(summary.problems)) == (False, [])


async def test_the_task_that_leaves_next_is_shown_first(inspected: Inspected, mail: AsynqWriter):
    """New ids come in at the left, and are taken from the right."""
    for n in range(30):
        await mail.enqueue(f"{n}")
        await mail.schedule(f"s{n}", mail.now_s + 100 + n)
    states = {it.state: it for it in (await (await inspected.look(Asynq)).detail(QUEUE)).states}
    pending, scheduled = states["pending"], states["scheduled"]
    assert [it.id for it in pending.head] == ["0", "1", "2", "3", "4"]
    assert [it.id for it in pending.tail] == ["25", "26", "27", "28", "29"]
    assert [it.id for it in (*scheduled.head, *scheduled.tail)] == [f"s{n}" for n in (*range(5), *range(25, 30))]
    assert [it.at.ms for it in scheduled.head if it.at] == [(mail.now_s + 100 + n) * 1000 for n in range(5)]
    assert pending.head[0].facts == {"type": "mail"}
    assert ((await job(inspected, "3")).places[0].position, (await job(inspected, "s3")).places[0].at_is) == (3, "due")


async def test_all_of_a_task_is_told(inspected: Inspected, mail: AsynqWriter):
    await mail.enqueue(
        "1", unique_s=100, type="welcome", payload=b'{"to": 1}', headers={"trace": "t"}, deadline=mail.now_s + 99
    )
    told = await job(inspected, "1")
    assert (told.state, told.record_state, told.agrees, list(told.problems)) == ("pending", "pending", True, [])
    assert (told.record["type"], told.record["header trace"], told.record["timeout_s"]) == ("welcome", "t", 1800)
    assert told.record["unique_lock"] == "held by this task"
    assert told.times["deadline"].ms == (mail.now_s + 99) * 1000
    assert told.times["pending_since"].ms == mail.now_s * 1000
    assert (told.payloads["payload"].kind, told.payloads["payload"].shown) == ("json", '{"to": 1}')


async def test_a_unique_lock_of_another_task_is_told(inspected: Inspected, mail: AsynqWriter):
    """That is why a task of the same kind is refused."""
    await mail.enqueue("1", unique_s=100)
    lock = await inspected.redis.hget(mail.key("t:1"), "unique_key")
    await inspected.redis.set(lock, "other")
    assert (await job(inspected, "1")).record["unique_lock"] == "held by another task: other"
    await inspected.redis.delete(lock)
    assert (await job(inspected, "1")).record["unique_lock"] == "free"
    await inspected.redis.hset(mail.key("t:1"), "unique_key", mail.key("pending"))
    [told] = (await job(inspected, "1")).problems
    assert (told.kind, told.detail.startswith("its lock ")) == ("wrong-type", True)


async def test_nobody_knows_a_task_that_is_nowhere(inspected: Inspected, mail: AsynqWriter):
    await mail.enqueue("1")
    layout = await inspected.look(Asynq)
    assert await layout.job(QUEUE, "2") is None
    assert (await layout.has(QUEUE), await layout.has("other")) == (True, False)


async def test_fields_that_a_newer_release_may_write_are_shown(inspected: Inspected, mail: AsynqWriter):
    await mail.enqueue("1")
    newer = message(id="1", queue=QUEUE) + bytes([0x80, 0x01, 0x07])
    await inspected.redis.hset(mail.key("t:1"), mapping={"msg": newer, "shard": "b"})
    told = await job(inspected, "1")
    assert told.record["field 16"] == 7
    assert told.record["hash field shard"].shown == "b"
    assert list(told.problems) == []


async def test_a_worker_that_died_is_told_by_its_lease(inspected: Inspected, mail: AsynqWriter):
    """Asynq takes such a task back 30 s later, if a server of the queue is running."""
    for id_, ends_s in (("dead", -300), ("just over", -3), ("alive", 20)):
        await mail.enqueue(id_)
        await mail.dequeue(lease_s=mail.now_s + ends_s)
    told = await problems(inspected)
    assert [(it.kind, list(it.ids), it.count) for it in told] == [("lease-expired", ["dead"], 1)]
    assert told[0].since is not None
    assert told[0].since.ms == (mail.now_s - 300) * 1000
    assert await kinds_of(inspected, "dead") == await kinds_of(inspected, "just over") == {"lease-expired"}
    assert await kinds_of(inspected, "alive") == set()


async def test_an_active_task_without_a_lease_is_told(inspected: Inspected, mail: AsynqWriter):
    """hibiken/asynq#1144: the recoverer looks into the leases alone, and never finds it."""
    for id_ in ("1", "2"):
        await mail.enqueue(id_)
        await mail.dequeue()
    await inspected.redis.zrem(mail.key("lease"), "1")
    assert await kinds(inspected) == {"active-without-lease": ["1"]}
    assert await kinds_of(inspected, "1") == {"active-without-lease"}


async def test_a_lease_of_a_task_that_is_not_active_is_told(inspected: Inspected, mail: AsynqWriter):
    """hibiken/asynq#764: `recoverer: could not move task to archive: NOT FOUND`, every minute."""
    await mail.enqueue("1")
    await mail.dequeue()
    await mail.archive("1")
    await inspected.redis.zadd(mail.key("lease"), {"1": mail.now_s + 20})
    assert await kinds(inspected) == {"lease-without-active": ["1"]}
    assert await kinds_of(inspected, "1") == {"lease-without-active"}


async def test_a_hash_that_holds_a_result_alone_is_told(inspected: Inspected, mail: AsynqWriter):
    """hibiken/asynq#1167: written after the task was deleted; its id is refused from then on."""
    await mail.enqueue("1")
    await mail.dequeue()
    await mail.done("1")
    await inspected.redis.hset(mail.key("t:1"), "result", "late")
    assert await kinds(inspected) == {"record-incomplete": ["1"]}
    told = await job(inspected, "1")
    assert {it.kind for it in told.problems} == {"record-incomplete", "record-without-id"}
    assert (told.state, told.record_state, told.agrees) == (None, None, False)
    assert told.payloads["result"].shown == "late"


@pytest.mark.parametrize("state", ["pending", "active", "scheduled", "retry", "archived", "completed"])
async def test_an_id_whose_hash_is_gone_is_told(inspected: Inspected, mail: AsynqWriter, state):
    await mail.enqueue("other")
    for id_ in ("gone", "there"):
        await in_state(mail, id_, state)
    await inspected.redis.delete(mail.key("t:gone"))
    assert (await kinds(inspected))["id-without-record"] == ["gone"]
    told = await job(inspected, "gone")
    assert (told.state, told.record_state, told.agrees) == (state, None, None)
    assert {it.kind for it in told.problems} == {"id-without-record"}
    assert await kinds_of(inspected, "there") == set()


@pytest.mark.parametrize("state", ["pending", "active", "scheduled", "retry", "archived", "completed"])
async def test_a_hash_that_no_structure_names_is_told(inspected: Inspected, mail: AsynqWriter, state):
    """Archiving by hand trims the archive, and leaves such hashes (hibiken/asynq#885)."""
    for id_ in ("lost", "there"):
        await in_state(mail, id_, state)
    await inspected.redis.lrem(mail.key(state), 0, "lost") if state in ("pending", "active") else (
        await inspected.redis.zrem(mail.key(state), "lost")
    )
    await inspected.redis.zrem(mail.key("lease"), "lost")
    assert await kinds(inspected) == {"record-without-id": ["lost"]}
    assert await kinds_of(inspected, "lost") == {"record-without-id"}


@pytest.mark.parametrize("state", ["pending", "active", "scheduled", "retry", "archived", "completed"])
async def test_a_hash_that_says_another_state_is_told(inspected: Inspected, mail: AsynqWriter, state):
    """Asynq's own inspector would say what the hash says, and fail to run, archive or delete the task."""
    said = "retry" if state != "retry" else "archived"
    await in_state(mail, "1", state)
    await inspected.redis.hset(mail.key("t:1"), "state", said)
    assert (await kinds(inspected))["state-differs"] == ["1"]
    told = await job(inspected, "1")
    assert (told.state, told.record_state, told.agrees) == (state, said, False)


async def test_an_id_in_two_structures_is_told(inspected: Inspected, mail: AsynqWriter):
    await in_state(mail, "1", "retry")
    await inspected.redis.zadd(mail.key("archived"), {"1": mail.now_s})
    await in_state(mail, "2", "active")
    await inspected.redis.zadd(mail.key("scheduled"), {"2": mail.now_s + 60})
    told = await kinds(inspected)
    assert set(told["in-two-places"]) == {"1", "2"}
    first = await job(inspected, "1")
    assert (first.state, [place.state for place in first.places]) == ("retry", ["retry", "archived"])


@pytest.mark.parametrize("state", ["scheduled", "retry"])
async def test_what_is_due_and_does_not_move_is_told_with_for_how_long(inspected: Inspected, mail: AsynqWriter, state):
    for id_, ago_s in (("oldest", 3600), ("old", 60), ("on its way", 3)):
        await in_state(mail, id_, state)
        await inspected.redis.zadd(mail.key(state), {id_: mail.now_s - ago_s})
    [told] = await problems(inspected)
    assert (told.kind, told.count, list(told.ids)) == ("due-not-moving", 2, ["oldest", "old"])
    assert told.since is not None
    assert told.since.ms == (mail.now_s - 3600) * 1000
    assert await kinds_of(inspected, "old") == {"due-not-moving"}
    assert await kinds_of(inspected, "on its way") == set()


async def test_pending_tasks_that_nobody_serves_are_told(inspected: Inspected, mail: AsynqWriter):
    """The dashboard says pending, and nothing moves: no server is alive that has this queue."""
    await mail.enqueue("1", since_s=mail.now_s - 600)
    [told] = await problems(inspected)
    assert (told.kind, told.count, list(told.ids)) == ("due-not-moving", 1, ["1"])
    assert "no live server" in told.detail
    await mail.serve("others", expires_s=mail.now_s + 60)
    assert [it.kind for it in await problems(inspected)] == ["due-not-moving"]
    await mail.serve(QUEUE, expires_s=mail.now_s - 60)
    assert [it.kind for it in await problems(inspected)] == ["due-not-moving"]
    await mail.serve("others", QUEUE, expires_s=mail.now_s + 60)
    assert list(await problems(inspected)) == []
    facts = (await (await inspected.look(Asynq)).detail(QUEUE)).facts
    assert (facts["servers"], facts["server web-1:4711"]) == (1, "active, 0 of 10 tasks in hand")


async def test_a_paused_queue_is_told_as_why_nothing_moves(inspected: Inspected, mail: AsynqWriter):
    await mail.serve(QUEUE, expires_s=mail.now_s + 60)
    await mail.enqueue("1", since_s=mail.now_s - 600)
    await mail.pause()
    [told] = await problems(inspected)
    assert (told.kind, told.detail) == ("due-not-moving", "1 pending: the queue is paused")
    detail = await (await inspected.look(Asynq)).detail(QUEUE)
    assert detail.summary.paused is True
    assert str(detail.facts["paused_since"]).startswith("20")


async def test_who_works_on_an_active_task_is_told(inspected: Inspected, mail: AsynqWriter):
    await mail.enqueue("1")
    await mail.dequeue()
    await mail.serve(QUEUE, expires_s=mail.now_s + 60, tasks={"1": b""})
    assert (await job(inspected, "1")).record["worked_on_by"] == "web-1:4711:5e0f"


async def test_a_set_that_was_never_aggregated_is_told(inspected: Inspected, mail: AsynqWriter):
    await mail.group("1", "g")
    await mail.aggregate("g", "a-b-c", back_s=mail.now_s - 600)
    [told] = await problems(inspected)
    assert (told.kind, told.count) == ("due-not-moving", 1)
    assert (await job(inspected, "1")).places[0].key == mail.key("g:g:a-b-c")


async def test_a_group_that_nobody_will_look_into_is_told(inspected: Inspected, mail: AsynqWriter):
    """Asynq puts a task back into its group, and does not list the group again."""
    await mail.group("1", "g")
    await inspected.redis.srem(mail.key("groups"), "g")
    assert await kinds(inspected) == {"group-unlisted": ["1"]}
    told = await job(inspected, "1")
    assert (told.state, [it.kind for it in told.problems]) == ("aggregating", ["group-unlisted"])


@pytest.mark.parametrize("score", [0, -1, "-inf", "+inf", 1_796_046_292_000, 17])
@pytest.mark.parametrize("state", ["scheduled", "lease"])
async def test_a_score_that_is_no_time_is_told(inspected: Inspected, mail: AsynqWriter, state, score):
    """Milliseconds where seconds belong: never, or at once."""
    await in_state(mail, "1", "active" if state == "lease" else state)
    await inspected.redis.zadd(mail.key(state), {"1": score})
    told = await problems(inspected)
    assert [(it.kind, list(it.ids), it.count) for it in told] == [("score-no-time", ["1"], 1)]
    assert await kinds_of(inspected, "1") == {"score-no-time"}


async def test_messages_that_cannot_be_read_are_told(inspected: Inspected, mail: AsynqWriter):
    for id_ in ("cut", "foreign", "latin", "other"):
        await mail.schedule(id_, mail.now_s + 60)
    whole = await inspected.redis.hget(mail.key("t:cut"), "msg")
    for id_, data in (
        ("cut", whole[:-1]),
        ("foreign", b'{"json": 1}'),
        ("latin", message(id="latin", queue=QUEUE) + b"\x0a\x01\xe4"),
        ("other", message(id="another", queue=QUEUE)),
    ):
        await inspected.redis.hset(mail.key(f"t:{id_}"), "msg", data)
    told = await problems(inspected)
    assert {it.kind for it in told} == {"does-not-parse"}
    assert sorted(id_ for it in told for id_ in it.ids) == ["cut", "foreign", "latin", "other"]
    for id_ in ("cut", "foreign", "latin", "other"):
        assert await kinds_of(inspected, id_) == {"does-not-parse"}, id_
    assert (await job(inspected, "foreign")).payloads["msg"].shown == '{"json": 1}'


async def test_a_counter_that_is_no_number_is_told(inspected: Inspected, mail: AsynqWriter):
    """Asynq's scripts stop there, half way: the task is done, and counts as failed."""
    await mail.enqueue("1")
    await inspected.redis.set(mail.key("processed"), "many")
    [told] = await problems(inspected)
    assert (told.kind, "processed" in told.detail) == ("does-not-parse", True)


async def test_a_huge_payload_is_not_read(inspected: Inspected, mail: AsynqWriter):
    await mail.schedule("1", mail.now_s + 60, payload=b"x" * 3_000_000)
    [told] = await problems(inspected)
    assert (told.kind, list(told.ids)) == ("value-too-large", ["1"])
    layout = await inspected.look(Asynq, budget=Budget(reply_bytes=500_000))
    found = await layout.job(QUEUE, "1")
    assert found is not None
    assert (found.state, found.record_state, found.agrees) == ("scheduled", "scheduled", True)
    assert found.payloads["msg"].kind == "unread"
    assert [it.kind for it in found.problems] == ["value-too-large"]


async def test_an_id_in_the_middle_of_a_long_list_is_said_to_be_unsought(inspected: Inspected, mail: AsynqWriter):
    """Never as unknown: that would send somebody looking for a lost task."""
    await mail.enqueue("1")
    await inspected.redis.delete(mail.key("pending"))
    for side in ("a", "b"):
        ids = [f"{side}{n}" for n in range(60_000)]
        for at in range(0, 60_000, 10_000):
            await inspected.redis.lpush(mail.key("pending"), *ids[at : at + 10_000])
        if side == "a":
            await inspected.redis.lpush(mail.key("pending"), "1")
    told = await job(inspected, "1")
    assert (told.state, told.record_state, told.agrees, list(told.places)) == (None, "pending", None, [])
    assert [str(it) for it in told.unsought] == ["not in the first and last 50,000 of 120,001"]
    assert list(told.problems) == []
    assert (await job(inspected, "a7")).places[0].position == 7
    assert "record-without-id" not in await kinds(inspected)


async def test_a_large_queue_is_sampled_and_says_so(inspected: Inspected, mail: AsynqWriter):
    for n in range(700):
        await mail.schedule(f"{n:04}", mail.now_s + 100 + n)
    await inspected.redis.delete(mail.key("t:0003"), mail.key("t:0699"))
    layout = await inspected.look(Asynq, budget=Budget(commands=800))
    told = await layout.problems(QUEUE)
    assert {it.kind for it in told} == {"id-without-record", "not-all-looked-at"}
    assert [list(it.ids) for it in told if it.kind == "id-without-record"] == [["0003", "0699"]]
    assert any("of 700" in it.detail for it in told if it.kind == "not-all-looked-at")


async def in_state(mail: AsynqWriter, id_: str, state: str) -> None:
    """By the way that leads there."""
    if state == "scheduled":
        return await mail.schedule(id_, mail.now_s + 60)
    await mail.enqueue(id_)
    if state != "pending":
        for other in await take_all(mail, id_):
            await mail.requeue(other)
        if state == "retry":
            await mail.retry(id_, mail.now_s + 60)
        elif state == "archived":
            await mail.archive(id_)
        elif state == "completed":
            await mail.complete(id_)
    return None


async def take_all(mail: AsynqWriter, id_: str) -> list[str]:
    """Up to and including `id_`; those that were taken on the way."""
    taken = list[str]()
    while (other := await mail.dequeue()) != id_:
        taken.append(other)
    return taken
