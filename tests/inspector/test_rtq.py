"""redis_task_queue's queues: an envelope's place is its state, and its only record is itself."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import given, strategies as st

from service.inspector.answers import JobDetail, Problem
from service.inspector.causes import CAUSES
from service.inspector.reading import Budget
from service.inspector.rtq.envelope import NotAnEnvelope, decode
from service.inspector.rtq.layout import Rtq
from service.inspector.times import Moment
from tests.kit.inspecting import Inspected
from tests.kit.rtq_writer import RtqWriter, dead_entry, envelope

QUEUE = "mail"


@pytest.fixture
async def mail(inspected: Inspected) -> RtqWriter:
    return RtqWriter(inspected.redis, QUEUE)


async def job(inspected: Inspected, id_: str) -> JobDetail:
    found = await (await inspected.look(Rtq)).job(QUEUE, id_)
    assert found is not None
    return found


async def problems(inspected: Inspected) -> Sequence[Problem]:
    found = await (await inspected.look(Rtq)).problems(QUEUE)
    assert {problem.kind for problem in found} <= set(CAUSES)
    return found


async def test_a_queue_in_every_state_is_summed_up(inspected: Inspected, mail: RtqWriter):
    now_ms = await inspected.now_ms()
    for id_ in ("old dead", "dead", "again", "in hand", "pending"):
        await mail.enqueue(id_)
    await mail.bury("w1", await mail.claim("w1"), None)
    await mail.bury("w1", await mail.claim("w1"), now_ms - 5000)
    await mail.retry("w2", await mail.claim("w2"), now_ms - 1000)
    await mail.claim("w2")
    await mail.enqueue("later", now_ms + 60_000)
    await RtqWriter(inspected.redis, "other").enqueue("not ours")
    summary = await (await inspected.look(Rtq)).summary(QUEUE)
    assert summary.states == {"pending": 1, "delayed": 2, "in-flight": 1, "dead": 2}
    assert (summary.oldest_due, summary.next_due) == (Moment(now_ms - 1000), Moment(now_ms + 60_000))
    assert (summary.paused, list(summary.problems), list(await problems(inspected))) == (None, [], [])
    for id_, state in (("old dead", "dead"), ("dead", "dead"), ("again", "delayed"), ("in hand", "in-flight")):
        assert (await job(inspected, id_)).state == state
    assert (await job(inspected, "later")).times == {"due": Moment(now_ms + 60_000)}


async def test_queues_are_found_by_what_is_in_flight_and_dead_too(inspected: Inspected):
    """A queue whose only task is in a worker's hands has no key of its own; the library's own stats miss it."""
    for queue in ("in hand", "dead", "waiting", "later"):
        writer = RtqWriter(inspected.redis, queue)
        await writer.enqueue("1", 2e12 if queue == "later" else None)
        if queue in ("in hand", "dead"):
            entry = await writer.claim("w")
            if queue == "dead":
                await writer.bury("w", entry, 1_796_046_292_000)
    layout = await inspected.look(Rtq)
    hints = {layout.hint(key.decode()) for key in await inspected.redis.keys("*")} - {None}
    assert hints == {"waiting", "later"}
    assert await layout.queues({*hints, "gone"}) == ["dead", "in hand", "later", "waiting"]
    assert [await layout.has(queue) for queue in ("dead", "in hand", "later", "gone")] == [True, True, True, False]


async def test_all_of_a_task_is_told(inspected: Inspected, mail: RtqWriter):
    await mail.enqueue("1", payload={"to": "ä", "n": [1]}, type="welcome", max_retries=3, attempt=1, trace="t")
    told = await job(inspected, "1")
    assert told.record == {
        "type": "welcome",
        "queue": QUEUE,
        "max_retries": 3,
        "attempt": 1,
        "unknown_fields": "trace",
    }
    assert (told.state, told.record_state, told.agrees) == ("pending", None, None)
    assert json.loads(told.payloads["payload"].shown) == {"to": "ä", "n": [1]}
    assert told.payloads["payload"].kind == "json"


async def test_a_dead_entry_tells_why_and_when_an_old_one_neither(inspected: Inspected, mail: RtqWriter):
    await mail.enqueue("new", attempt=5)
    await mail.bury("w", await mail.claim("w"), 1_796_046_292_123, "StateError: no handler")
    await mail.enqueue("old", attempt=5)
    await mail.bury("w", await mail.claim("w"), None)
    new, old = await job(inspected, "new"), await job(inspected, "old")
    assert (new.state, new.record["last_error"], new.record["attempts_made"]) == ("dead", "StateError: no handler", 6)
    assert new.times == {"died": Moment(1_796_046_292_123)}
    assert (old.state, old.record["format"], dict(old.times)) == ("dead", "bare envelope, as before 0.8.0", {})
    [dead] = [it for it in (await (await inspected.look(Rtq)).detail(QUEUE)).states if it.state == "dead"]
    assert [it.id for it in dead.head] == ["old", "new"]


async def test_in_flight_tasks_are_told_by_their_worker(inspected: Inspected, mail: RtqWriter):
    await mail.enqueue("1")
    await mail.claim("web-1:a")
    assert (await job(inspected, "1")).record["worker"] == "web-1:a"
    detail = await (await inspected.look(Rtq)).detail(QUEUE)
    assert [(it.state, it.key, it.count) for it in detail.states if it.state == "in-flight"] == [
        ("in-flight", "rtq:inflight:web-1:a", 1)
    ]
    assert detail.facts == {"workers": 1, "worker web-1:a": "1 in flight, of all queues"}


async def test_the_task_that_leaves_next_is_shown_first(inspected: Inspected, mail: RtqWriter):
    for n in range(30):
        await mail.enqueue(f"{n}")
        await mail.enqueue(f"d{n}", 1_796_046_292_000 + n)
    states = {it.state: it for it in (await (await inspected.look(Rtq)).detail(QUEUE)).states}
    assert [it.id for it in (*states["pending"].head, *states["pending"].tail)] == [
        f"{n}" for n in (*range(5), *range(25, 30))
    ]
    assert [it.id for it in (*states["delayed"].head, *states["delayed"].tail)] == [
        f"d{n}" for n in (*range(5), *range(25, 30))
    ]
    assert states["pending"].count == states["delayed"].count == 30
    assert ((await job(inspected, "3")).places[0].position, (await job(inspected, "d3")).places[0].position) == (
        3,
        None,
    )


async def test_what_a_worker_no_longer_works_on_is_told(inspected: Inspected, mail: RtqWriter):
    """It works on one task at a time. Left by a crash under another name, or by a claim whose answer was lost."""
    for id_ in ("left", "in hand"):
        await mail.enqueue(id_)
        await mail.claim("w")
    [told] = await problems(inspected)
    assert (told.kind, list(told.ids)) == ("active-without-lease", ["left"])


async def test_what_is_due_and_does_not_move_is_told(inspected: Inspected, mail: RtqWriter):
    now_ms = await inspected.now_ms()
    for id_, ago_ms in (("oldest", 3_600_000), ("old", 120_000), ("on its way", 2_000), ("future", -60_000)):
        await mail.enqueue(id_, now_ms - ago_ms)
    [told] = await problems(inspected)
    assert (told.kind, told.count, told.since) == ("due-not-moving", 2, Moment(now_ms - 3_600_000))
    assert list(told.ids) == ["oldest", "old"]
    assert [it.kind for it in (await job(inspected, "old")).problems] == ["due-not-moving"]
    assert list((await job(inspected, "on its way")).problems) == []


@pytest.mark.parametrize("score", [0, "-inf", "+inf", 1_796_046_292, 1e18])
async def test_a_score_that_is_no_time_is_told(inspected: Inspected, mail: RtqWriter, score):
    await inspected.redis.zadd(mail.delayed, {envelope("1", QUEUE): score})
    assert [(it.kind, it.count) for it in await problems(inspected)] == [("score-no-time", 1)]
    assert [it.kind for it in (await job(inspected, "1")).problems] == ["score-no-time"]


async def test_a_task_with_two_entries_is_told(inspected: Inspected, mail: RtqWriter):
    """The client repeats a request whose answer it lost; two workers of one name retry each other's tasks."""
    await mail.enqueue("1")
    await mail.enqueue("1")
    await mail.enqueue("2")
    await mail.enqueue("2", 2e12, attempt=1)
    told = {it.detail: list(it.ids) for it in await problems(inspected) if it.kind == "in-two-places"}
    assert told == {"twice in pending": ["1"], "in pending and delayed": ["2"]}
    assert len((await job(inspected, "1")).places) == 2


async def test_an_entry_that_names_another_queue_is_told(inspected: Inspected, mail: RtqWriter):
    """Its retries go elsewhere."""
    await inspected.redis.lpush(mail.pending, envelope("1", "elsewhere"))
    [told] = await problems(inspected)
    assert (told.kind, list(told.ids)) == ("state-differs", ["1"])
    assert [it.kind for it in (await job(inspected, "1")).problems] == ["state-differs"]


@pytest.mark.parametrize("where", ["pending", "delayed", "in-flight", "dead"])
async def test_entries_that_no_worker_can_read_are_told_wherever_they_are(inspected: Inspected, mail: RtqWriter, where):
    """A worker stumbles over one, and leaves it in its in-flight list for ever."""
    await mail.enqueue("1")
    for junk in (b'{"id": 1}', b"\xff", b"[]", envelope("2", QUEUE)[:-1]):
        if where == "delayed":
            await inspected.redis.zadd(mail.delayed, {junk: 2e12})
        else:
            key = {"pending": mail.pending, "in-flight": mail.in_flight("w"), "dead": mail.dead}[where]
            await inspected.redis.rpush(key, junk)
    told = [it for it in await problems(inspected) if it.kind == "does-not-parse"]
    assert sum(it.count or 0 for it in told) == 4
    assert all("\\xff" not in it.detail and "[]" not in it.detail for it in told)
    assert (await job(inspected, "1")).state == "pending"


async def test_a_task_in_the_middle_of_a_long_list_is_said_to_be_unsought(inspected: Inspected, mail: RtqWriter):
    """Never as unknown: that would send somebody looking for a lost task."""
    for start in (0, 4_000, 8_000):
        await inspected.redis.lpush(mail.pending, *(envelope(f"{n}", QUEUE) for n in range(start, start + 4_000)))
    layout = await inspected.look(Rtq, budget=Budget(reply_bytes=2**19))
    told = await layout.job(QUEUE, "6000")
    assert told is not None
    assert (told.state, list(told.places)) == (None, [])
    assert str(told.unsought[0]).startswith("not in the first and last ")
    assert str(told.unsought[0]).endswith(" of 12,000")
    assert (await job(inspected, "6000")).places[0].position == 6000
    assert await (await inspected.look(Rtq)).job(QUEUE, "12000") is None


async def test_no_entry_is_read_where_entries_are_huge(inspected: Inspected, mail: RtqWriter):
    for n in range(3):
        await mail.enqueue(f"{n}", payload={"x": "y" * 3_000_000})
    told = await job(inspected, "1")
    assert (told.state, [str(it) for it in told.unsought]) == (None, ["not in the first and last 0 of 3"])
    assert {it.kind for it in told.problems} == {"value-too-large"}
    assert (await (await inspected.look(Rtq)).summary(QUEUE)).states["pending"] == 3


async def test_another_prefix_is_looked_under_if_told(inspected: Inspected):
    await RtqWriter(inspected.redis, QUEUE, "jobs").enqueue("1")
    own, other = await inspected.look(Rtq), await inspected.look(Rtq, prefix="jobs")
    assert (own.hint("jobs:queue:mail"), other.hint("jobs:queue:mail")) == (None, QUEUE)
    assert (await own.job(QUEUE, "1"), await other.has(QUEUE)) == (None, True)


KEYS = st.text(max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
INTEGERS = st.integers(-(2**63), 2**63 - 1)


@given(st.tuples(TEXTS, TEXTS, TEXTS), st.dictionaries(TEXTS, JSON, max_size=3), INTEGERS, INTEGERS)
def test_whatever_the_library_writes_is_read_back(names, payload, max_retries, attempt):
    id_, queue, type_ = names
    entry = envelope(id_, queue, type=type_, payload=payload, max_retries=max_retries, attempt=attempt)
    dead = dead_entry(entry, "error", 1_796_046_292_000)
    for read in (decode(entry), decode(dead)):
        assert (read.id, read.queue, read.type) == (id_, queue, type_)
        assert (read.max_retries, read.attempt, read.unknown) == (max_retries, attempt, ())
        assert json.loads(read.payload) == json.loads(json.dumps(payload))
    assert (decode(entry).bare, decode(dead).bare, decode(dead).error) == (True, False, "error")


@given(st.binary(max_size=60) | JSON.map(json.dumps).map(str.encode))
def test_any_other_bytes_are_said_to_be_none(entry):
    with pytest.raises(NotAnEnvelope):
        decode(entry)


@pytest.mark.parametrize(
    "entry",
    [
        envelope("1").replace(b'"1"', b"1"),
        envelope("1").replace(b'"attempt":0', b'"attempt":true'),
        envelope("1").replace(b'"attempt":0', b'"attempt":0.5'),
        envelope("1").replace(b'{"n":1}', b"[1]"),
        envelope("1").replace(b'"n"', b'"\xff"'),
        b"\xef\xbb\xbf" + envelope("1"),
        envelope("1").decode().encode("utf-16"),
        dead_entry(envelope("1"), "e", 1).replace(b'"dead_at":1', b'"dead_at":"now"'),
        b"[" * 100_000,
        b'{"id":"1","task":{"type":"t","payload":{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}}}",
        envelope("1", payload={"x": "y" * 2**22}),
    ],
    ids=["id", "bool", "float", "list", "latin", "bom", "utf16", "time", "deep", "deep payload", "huge"],
)
def test_what_the_library_could_not_read_is_none(entry):
    with pytest.raises(NotAnEnvelope):
        decode(entry)


def test_a_lone_surrogate_in_json_is_shown_escaped():
    """JSON can spell what no encoding can write."""
    assert decode(envelope("1").replace(b'"1"', b'"\\ud800"')).id == "\\ud800"
