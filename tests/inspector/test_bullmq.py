"""BullMQ's layout on queues written by hand: what is damaged, what is moving, and what is too large to be read.

Whether the layout is BullMQ's is test_bullmq_library.py's business.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from service.inspector.answers import JobDetail, Problem
from service.inspector.bullmq.keys import QueueKeys, due_of, is_marker, priority_of, queue_of, score_at, sequence_of
from service.inspector.bullmq.layout import BullMQ
from service.inspector.layout import Look
from service.inspector.payloads import READ_BYTES
from service.inspector.reading import ReadOnly
from service.inspector.seeking import EACH_END
from service.inspector.times import Moment
from service.transport import Encodable, Transport
from tests.kit.inspecting import Inspected

QUEUE = "mail"
KEYS = QueueKeys(QUEUE)
HOUR_MS = 3_600_000
LISTS = {"active": "active", "waiting": "wait", "paused": "paused"}
#: In the library's order of asking.
ORDER = ("completed", "failed", "delayed", "prioritized", "active", "waiting", "paused", "waiting-children")


class Yard:
    """A queue whose keys are written one by one."""

    def __init__(self, inspected: Inspected, now_ms: int) -> None:
        self.inspected, self.redis, self.now_ms = inspected, inspected.redis, now_ms

    async def record(self, job: str, **fields: Any) -> None:
        """As the library writes one; None leaves a field out."""
        whole = {"name": "send", "data": "{}", "opts": "{}", "timestamp": self.now_ms, "delay": 0, "priority": 0}
        await self.redis.hset(
            KEYS.of(job), mapping={name: it for name, it in {**whole, **fields}.items() if it is not None}
        )

    async def place(self, state: str, *jobs: str, score: float | None = None) -> None:
        """Ids alone, the last of them leaves last."""
        if state in LISTS:
            await self.redis.lpush(KEYS.of(LISTS[state]), *jobs)
        else:
            at = self.now_ms * (4096 if state == "delayed" else 1) if score is None else score
            await self.redis.zadd(KEYS.of(state), dict.fromkeys(jobs, at))

    async def job(self, state: str, job: str, score: float | None = None, **fields: Any) -> None:
        """A job as it should be."""
        await self.record(job, **fields)
        await self.place(state, job, score=score)
        if state == "active":
            await self.redis.set(KEYS.part(job, "lock"), "token", px=HOUR_MS)
        if state == "waiting-children":
            await self.redis.sadd(KEYS.part(job, "dependencies"), "bull:other:1")
        if state in ("completed", "failed"):
            value = {"returnvalue": "1"} if state == "completed" else {"failedReason": "no"}
            await self.redis.hset(KEYS.of(job), mapping={"finishedOn": self.now_ms, **value})

    async def asked(self, job: str, **more: Any) -> JobDetail:
        detail = await (await self.inspected.look(BullMQ, **more)).job(QUEUE, job)
        assert detail is not None
        return detail

    async def problems(self) -> Mapping[str, Problem]:
        """By kind, of each the first."""
        found = await (await self.inspected.look(BullMQ)).problems(QUEUE)
        return {each.kind: each for each in reversed(found)}


@pytest.fixture
async def yard(inspected: Inspected) -> Yard:
    await inspected.redis.hset(KEYS.of("meta"), mapping={"version": "bullmq:6.7.0", "opts.maxLenEvents": 10000})
    return Yard(inspected, await inspected.now_ms())


def test_it_was_checked_against_the_releases_that_it_says():
    """test_bullmq_library.py runs those of the lock file."""
    wanted = json.loads((Path(__file__).parent / "bullmq/package.json").read_text())["dependencies"]
    releases = [wanted[name].removeprefix("npm:bullmq@") for name in ("bullmq5", "bullmq6")]
    assert BullMQ.checked_against == f"bullmq {' and '.join(releases)}"


@pytest.mark.parametrize(
    ("key", "queue"),
    [
        ("bull:mail:meta", "mail"),
        ("bull:mail:17", "mail"),
        ("bull:mail:a:b:c", "mail"),
        ("bull:meta:meta", "meta"),
        ("bull:größe 🧥:wait", "größe 🧥"),
        ("bull:{tag}:wait", "{tag}"),
        ("bull:\udcff:wait", "\udcff"),
        ("bull::relay:{default}:nodes", None),
        ("bull:mail", None),
        ("bull:mail:", None),
        ("bull", None),
        ("bullet:mail:meta", None),
        ("", None),
    ],
)
def test_a_key_names_its_queue(key, queue):
    """The relay's keys, which 6.x keeps beside its queues, name none."""
    assert queue_of(key) == queue


@pytest.mark.parametrize(
    ("score", "due_ms", "sequence"),
    [
        (score_at(1_764_547_200_000), 1_764_547_200_000, 0),
        (score_at(1_764_547_200_000) + 4095, 1_764_547_200_000, 4095),
        (score_at(1_764_547_200_001), 1_764_547_200_001, 0),
        (2**53 - 1, 2_199_023_255_551, 4095),
        (2**53, 2_199_023_255_552, None),
        (score_at(4_102_444_800_001), 4_102_444_800_001, None),
        (1_764_547_200_000, None, 1024),
        (float("inf"), None, None),
        (-1.0, None, None),
        (0, None, 0),
    ],
)
def test_a_delayed_score_is_a_time_and_a_sequence(score, due_ms, sequence):
    """Beyond 2^53 a score has no room for the sequence. One of seconds or ms is no time, and no error."""
    assert due_of(score) == (None if due_ms is None else Moment(due_ms))
    assert sequence_of(score) == sequence


def test_a_priority_is_read_from_any_score():
    assert priority_of(3 * 2**32 + 17) == 3
    assert priority_of(float("inf")) is None


@pytest.mark.parametrize(("entry", "marker"), [("0", True), ("0:17", True), ("0:", True), ("10", False), ("00", False)])
def test_markers_are_told_from_ids(entry, marker):
    assert is_marker(entry) is marker


@pytest.mark.parametrize("state", ORDER)
async def test_a_job_is_where_its_id_is(yard: Yard, state):
    await yard.job(state, "1")
    detail = await yard.asked("1")
    assert detail.state == ("waiting" if state == "paused" else state)
    assert [place.state for place in detail.places] == [state]
    assert detail.agrees is True
    assert {each.kind for each in detail.problems} <= {"left-in-paused"}


async def test_in_several_places_the_first_that_the_library_asks_counts(yard: Yard):
    """The order is the library's own; a job that is in two places is told of, whichever it is."""
    for state in ORDER:
        await yard.job(state, "1")
    for at, state in enumerate(ORDER[:-1]):
        detail = await yard.asked("1")
        assert detail.state == ("waiting" if state == "paused" else state)
        assert [place.state for place in detail.places] == list(ORDER[at:])
        assert detail.agrees is False
        assert "in-two-places" in {each.kind for each in detail.problems}
        await yard.redis.delete(KEYS.of(LISTS.get(state, state)))


async def test_what_nothing_holds_is_unknown_and_what_nobody_knows_is_nothing(yard: Yard):
    await yard.record("1")
    detail = await yard.asked("1")
    assert (detail.state, detail.agrees) == ("unknown", False)
    assert [each.kind for each in detail.problems] == ["record-without-id"]
    assert await (await yard.inspected.look(BullMQ)).job(QUEUE, "2") is None
    await yard.redis.set(KEYS.of("wait"), "of another type")
    assert (await yard.asked("1")).state is None  # it may have been there


async def test_a_job_in_the_middle_of_a_long_list_is_not_called_unknown(yard: Yard):
    """LPOS over the whole list would hold Redis up; what was not looked at is said."""
    total = 2 * EACH_END + 10
    jobs = [str(number) for number in range(1, total + 1)]
    for at in range(0, total, 10_000):
        await yard.place("waiting", *jobs[at : at + 10_000])
    for job in ("1", jobs[-1], jobs[total // 2]):
        await yard.record(job)
    first, last, middle = [await yard.asked(job) for job in ("1", jobs[-1], jobs[total // 2])]
    assert [first.places[0].position, last.places[0].position] == [0, total - 1]
    assert (middle.state, middle.agrees, middle.problems) == (None, None, ())
    assert [str(each) for each in middle.unsought] == [f"not in the first and last 50,000 of {total:,}"]


async def test_a_record_is_spelt_out(yard: Yard):
    """Short names are the library's own abbreviations; what is new to us is named, and its value not guessed."""
    fields = {
        "opts": '{"attempts":3,"de":{"id":"x"},"fpof":true,"kl":5}',
        "data": '{"to":"größe 👩\u200d🔬"}',
        "failedReason": "first\nsecond",
        "stacktrace": '["Error: first"]',
        "parentKey": "bull:other:7",
        "brandNew": "?",
    }
    counters = {"atm": 2, "ats": 3, "stc": 1}
    await yard.job("delayed", "1", score_at(yard.now_ms + HOUR_MS) + 7, **fields, **counters)
    await yard.redis.rpush(KEYS.part("1", "logs"), "one", "two")
    detail = await yard.asked("1")
    assert json.loads(detail.payloads["opts"].shown) == {
        "attempts": 3,
        "deduplication": {"id": "x"},
        "failParentOnFailure": True,
        "keepLogs": 5,
    }
    assert json.loads(detail.payloads["data"].shown) == json.loads(fields["data"])
    assert detail.payloads["failedReason"].shown == "first\nsecond"
    facts = {"attempts_made": 2, "attempts_started": 3, "stalled_counter": 1, "sequence": 7, "log_lines": 2}
    assert {name: detail.record[name] for name in facts} == facts
    assert detail.record["unknown_fields"] == "brandNew"
    assert detail.times["due"] == Moment(yard.now_ms + HOUR_MS)


async def test_what_is_shown_of_a_payload_is_capped(yard: Yard):
    await yard.job("waiting", "1", data=json.dumps("x" * 5_000))
    payload = (await yard.asked("1", max_bytes=100)).payloads["data"]
    assert (payload.size_bytes, len(payload.shown), payload.kind, payload.cut) == (5_002, 100, "json", True)


async def test_ids_without_a_record_are_told_of_each_structure(yard: Yard):
    for state in ORDER:
        await yard.job(state, f"{state} whole")
        await yard.place(state, f"{state} gone")
    found = await (await yard.inspected.look(BullMQ)).problems(QUEUE)
    gone = {each.detail: list(each.ids) for each in found if each.kind == "id-without-record"}
    assert gone == {f"in {state}": [f"{state} gone"] for state in ORDER}
    assert (await yard.asked("delayed gone")).agrees is False


async def test_a_few_without_a_record_are_found_among_thousands(yard: Yard):
    jobs = [str(number) for number in range(1, 1_901)]
    pipeline = yard.redis.pipeline()
    for job in jobs:
        pipeline.hset(KEYS.of(job), mapping={"name": "n", "data": "{}", "timestamp": yard.now_ms})
    await pipeline.execute()
    await yard.place("waiting", *jobs)
    await yard.redis.delete(*(KEYS.of(job) for job in ("3", "950", "1900")))
    problem = (await yard.problems())["id-without-record"]
    assert (set(problem.ids), problem.count) == ({"3", "950", "1900"}, 3)


async def test_records_without_an_id_are_told(yard: Yard):
    """And nothing else that is a hash there: schedulers, metrics, what children returned, a deduplicated next job."""
    await yard.job("waiting", "1")
    await yard.record("lost")
    await yard.redis.hset(KEYS.of("touched"), "delay", 0)  # what a removed job leaves when something promotes it
    for name, fields in {
        "repeat:nightly": {"name": "night", "every": 1000, "ic": 1},
        "metrics:completed": {"count": 3, "prevTS": 1},
        "1:processed": {"bull:other:1": "null"},
        "dn:once": {"name": "next", "data": "{}", "opts": "{}"},
    }.items():
        await yard.redis.hset(KEYS.of(name), mapping=fields)
    await yard.redis.hset("bull:mailing:1", mapping={"name": "of another queue", "timestamp": yard.now_ms})
    problems = await yard.problems()
    assert set(problems) == {"record-without-id"}
    assert set(problems["record-without-id"].ids) == {"lost", "touched"}


async def test_a_queue_whose_name_is_a_pattern_is_looked_at_alone(inspected: Inspected):
    queues = ("a*", "a[b]", "a\\b", "ab")
    for queue in queues:
        keys = QueueKeys(queue)
        await inspected.redis.hset(keys.of("meta"), "version", "bullmq:6.7.0")
        await inspected.redis.hset(keys.of("1"), mapping={"name": "lost", "timestamp": 1})
    await inspected.redis.lpush(QueueKeys("ab").of("wait"), "1")
    found = {queue: await (await inspected.look(BullMQ)).problems(queue) for queue in queues}
    told = {queue: [each.kind for each in problems] for queue, problems in found.items()}
    assert told == {queue: [] if queue == "ab" else ["record-without-id"] for queue in queues}


async def test_active_jobs_without_a_lock_are_told_since_when(yard: Yard):
    for job in ("held", "lost", "also lost"):
        await yard.job("active", job, processedOn=yard.now_ms - len(job) * 60_000)
    await yard.redis.delete(KEYS.part("lost", "lock"), KEYS.part("also lost", "lock"))
    problem = (await yard.problems())["active-without-lease"]
    assert (set(problem.ids), problem.count) == ({"lost", "also lost"}, 2)
    assert problem.since == Moment(yard.now_ms - len("also lost") * 60_000)
    assert [each.kind for each in (await yard.asked("lost")).problems] == ["active-without-lease"]
    held = await yard.asked("held")
    assert held.problems == ()
    assert held.times["lock ends"].ms == pytest.approx(yard.now_ms + HOUR_MS, abs=60_000)


async def test_overdue_jobs_are_told_with_the_oldest(yard: Yard):
    """Not those that are late by seconds: a worker that waits asks every 10."""
    for job, late_ms in (("hours", 5 * HOUR_MS), ("minutes", 120_000), ("now", 0), ("later", -HOUR_MS)):
        await yard.job("delayed", job, score_at(yard.now_ms - late_ms) + 3)
    await yard.job("delayed", "no time", 5)
    problem = (await yard.problems())["due-not-moving"]
    assert (list(problem.ids), problem.count) == (["hours", "minutes"], 2)
    assert problem.since == Moment(yard.now_ms - 5 * HOUR_MS)
    assert "5 h" in problem.detail
    (late,) = (await yard.asked("minutes")).problems
    assert (late.kind, late.since) == ("due-not-moving", Moment(yard.now_ms - 120_000))
    assert (await yard.asked("now")).problems == ()
    summary = await (await yard.inspected.look(BullMQ)).summary(QUEUE)
    assert summary.oldest_due == problem.since
    assert summary.next_due == Moment(yard.now_ms + HOUR_MS)


@pytest.mark.parametrize("score", [1_764_547_200.0, 1_764_547_200_000.0, float("inf"), -5.0, 0.0, 1e300])
async def test_a_score_that_is_no_time_is_told(yard: Yard, score):
    """Seconds and milliseconds are mixed up easily; a job with such a score runs at once, or never."""
    await yard.job("delayed", "1", score)
    problems = await yard.problems()
    assert set(problems) == {"score-no-time"}  # nor is it late
    assert (list(problems["score-no-time"].ids), problems["score-no-time"].count) == (["1"], 1)
    assert "score-no-time" in {each.kind for each in (await yard.asked("1")).problems}


async def test_what_is_left_of_an_older_release_is_told(yard: Yard):
    """Markers are no jobs. Ids in `paused` are stranded where nothing is paused; where it is, 5.x keeps them there."""
    await yard.job("waiting", "1")
    await yard.job("paused", "2")
    await yard.place("waiting", "0:1764547200000")
    problems = await yard.problems()
    assert set(problems) == {"legacy-marker", "left-in-paused"}
    assert list(problems["left-in-paused"].ids) == ["2"]
    summary = await (await yard.inspected.look(BullMQ)).summary(QUEUE)
    assert (summary.states["waiting"], summary.states["paused"], summary.paused) == (1, 1, False)
    await yard.redis.hset(KEYS.of("meta"), "paused", 1)
    assert set(await yard.problems()) == {"legacy-marker"}
    assert (await yard.asked("2")).state == "waiting"
    assert (await (await yard.inspected.look(BullMQ)).summary(QUEUE)).paused is True


async def test_a_parent_that_waits_for_nobody_is_told(yard: Yard):
    for job in ("parent", "left"):
        await yard.job("waiting-children", job, yard.now_ms - HOUR_MS)
    await yard.job("waiting-children", "just written", yard.now_ms)
    await yard.redis.delete(KEYS.part("left", "dependencies"), KEYS.part("just written", "dependencies"))
    problems = await yard.problems()
    assert set(problems) == {"waits-for-nothing"}
    assert list(problems["waits-for-nothing"].ids) == ["left"]


async def test_ids_in_two_places_are_told(yard: Yard):
    """Whether sorted sets hold both, or a list one of them; between lists, among what was read of them."""
    for job, states in {"1": ("delayed", "failed"), "2": ("waiting", "completed"), "3": ("waiting", "active")}.items():
        for state in states:
            await yard.job(state, job, yard.now_ms * 4096 + HOUR_MS * 4096 if state == "delayed" else None)
    await yard.job("waiting", "4")
    found = await (await yard.inspected.look(BullMQ)).problems(QUEUE)
    told = {each.detail: list(each.ids) for each in found}
    assert told == {"in failed and delayed": ["1"], "in completed and waiting": ["2"], "in active and waiting": ["3"]}


async def test_records_are_not_called_lost_for_being_in_the_middle_of_a_long_list(yard: Yard):
    jobs = [str(number) for number in range(1, 25_001)]
    await yard.place("waiting", *jobs)
    for job in ("12499", "12500"):
        await yard.record(job)
    problems = await yard.problems()
    assert "record-without-id" not in problems
    assert "2,000 of 25,000 waiting" in problems["not-all-looked-at"].detail


TAKEN = "HSET {1} processedOn {now}; SET {1:lock} token PX 60000; LREM {wait} 1 1; LPUSH {active} 1"
FINISHED = "DEL {1:lock}; LREM {active} 1 1"
RELEASED = "DEL {1:dependencies}; ZREM {waiting-children} 1; LPUSH {wait} 1"
#: From a state, what the library does in one script each: between two requests of a look, or two in a row.
STEPS = {
    "taken": ("waiting", TAKEN),
    "completed": ("active", f"{FINISHED}; ZADD {{completed}} {{now}} 1"),
    "completed and removed": ("active", f"{FINISHED}; DEL {{1}}"),
    "removed, then added again": (
        "waiting",
        "LREM {wait} 1 1; DEL {1}",
        "HSET {1} name again data 1 timestamp {now}; LPUSH {wait} 1",
    ),
    "removed": ("delayed", "ZREM {delayed} 1; DEL {1}"),
    "promoted": ("delayed", "ZREM {delayed} 1; LPUSH {wait} 1; HSET {1} delay 0"),
    "tried again": ("active", f"{FINISHED}; LPUSH {{wait}} 1"),
    "tried again, then taken": ("active", f"{FINISHED}; LPUSH {{wait}} 1", TAKEN),
    "postponed": ("active", f"{FINISHED}; ZADD {{delayed}} {{later}} 1"),
    "released": ("waiting-children", RELEASED),
    "released, then waiting again": (
        "waiting-children",
        RELEASED,
        "SADD {1:dependencies} 2; LREM {wait} 1 1; ZADD {waiting-children} {now} 1",
    ),
}


class Meddling(Transport):
    """Takes a step before each of some requests of a look, the first of them the one of this number."""

    def __init__(self, inspected: Inspected, steps: Sequence[Callable[[], Awaitable[None]]], first: int) -> None:
        super().__init__(inspected.pool)
        self._steps, self.sent = {first + at: step for at, step in enumerate(steps)}, 0

    async def send(self, commands: Sequence[tuple[Encodable, ...]], *, raising: bool = True) -> list[Any]:
        self.sent += 1
        if self.sent in self._steps:
            await self._steps[self.sent]()
        return await super().send(commands, raising=raising)


@pytest.mark.parametrize("verb", ["problems", "job"])
@pytest.mark.parametrize("step", STEPS)
async def test_a_job_that_moves_while_it_is_looked_at_has_no_problem(yard: Yard, step, verb):
    """Whenever in the look it moves. Told otherwise, each look at a busy queue would tell of some."""
    state, *scripts = STEPS[step]
    later = score_at(yard.now_ms + HOUR_MS)

    async def take(script: str) -> None:
        pipeline = yard.redis.pipeline(transaction=True)
        for command in script.replace("{now}", str(yard.now_ms)).replace("{later}", str(later)).split("; "):
            words = (KEYS.of(word[1:-1]) if word.startswith("{") else word for word in command.split())
            pipeline.execute_command(*words)
        await pipeline.execute()

    first, ended = 1, False
    while not ended:
        await yard.redis.flushdb()
        await yard.redis.hset(KEYS.of("meta"), "version", "bullmq:6.7.0")
        score = {"delayed": later, "waiting-children": yard.now_ms - HOUR_MS}.get(state)
        await yard.job(state, "1", score)
        meddling = Meddling(yard.inspected, [partial(take, script) for script in scripts], first)
        look = BullMQ(Look(ReadOnly(meddling), yard.now_ms))
        answer = await (look.problems(QUEUE) if verb == "problems" else look.job(QUEUE, "1"))
        told = answer.problems if isinstance(answer, JobDetail) else answer or ()
        assert list(told) == [], f"before request {first}"
        ended = meddling.sent < first
        first += 1


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"data": '{"to":'}, "does-not-parse"),
        ({"opts": "[" * 5_000}, "does-not-parse"),
        ({"data": b"\xff\xfe"}, "does-not-parse"),
        ({"data": "NaN"}, "does-not-parse"),
        ({"timestamp": None, "name": None}, "does-not-parse"),
        ({"data": "x" * (READ_BYTES + 1)}, "value-too-large"),
    ],
)
async def test_a_record_that_no_worker_can_read_is_told(yard: Yard, fields, kind):
    """BullMQ parses data and options when it takes a job: there the worker fails, not when it was added."""
    await yard.job("waiting", "good")
    await yard.job("waiting", "bad", **fields)
    problems = await yard.problems()
    assert set(problems) == {kind}
    assert list(problems[kind].ids) == ["bad"]
    detail = await yard.asked("bad")
    assert detail.state == "waiting"
    assert kind in {each.kind for each in detail.problems}


async def test_a_record_of_a_completed_job_that_waits_is_told(yard: Yard):
    await yard.job("waiting", "1", finishedOn=yard.now_ms, returnvalue="1")
    detail = await yard.asked("1")
    assert (detail.state, detail.record_state, detail.agrees) == ("waiting", "completed", False)
    assert [each.kind for each in detail.problems] == ["state-differs"]


@pytest.mark.parametrize(
    "name", ["meta", *(LISTS.get(state, state) for state in ORDER), "17", "events", "repeat", "id"]
)
async def test_a_key_of_another_type_hides_nothing_else(yard: Yard, name):
    """Every other structure is still counted and shown, and every other job found."""
    whole = [state for state in ORDER if LISTS.get(state, state) != name]
    for state in ORDER:
        await yard.job(state, f"a {state} job")
    await yard.job("waiting", "17")
    await yard.redis.delete(KEYS.of(name))
    await yard.redis.sadd(KEYS.of(name), "of another type")
    look = await yard.inspected.look(BullMQ)
    summary, detail, problems = await look.summary(QUEUE), await look.detail(QUEUE), await look.problems(QUEUE)
    told = [each.detail for each in (*summary.problems, *detail.problems, *problems) if each.kind == "wrong-type"]
    assert any(KEYS.of(name) in each for each in told)
    assert [state for state in ORDER if summary.states[state]] == whole
    assert [state.state for state in detail.states if state.head] == whole
    for state in whole:
        assert (await yard.asked(f"a {state} job")).places[0].state == state


async def test_another_prefix_is_looked_under_when_it_is_named(inspected: Inspected):
    keys = QueueKeys("mail", "{app}:jobs")
    await inspected.redis.hset(keys.of("meta"), "version", "bullmq:5.81.5")
    await inspected.redis.lpush(keys.of("wait"), "1")
    look = await inspected.look(BullMQ, prefix="{app}:jobs")
    assert look.hint(keys.of("wait")) == "mail"
    assert await look.queues({"mail", "gone"}) == ["mail"]
    assert (await look.summary("mail")).states["waiting"] == 1
    assert await (await inspected.look(BullMQ)).has("mail") is False


async def test_queues_of_its_predecessor_are_not_taken_for_its_own(inspected: Inspected):
    """Bull has the same prefix and most of the names, but no `meta`; its scores would be read wrongly."""
    await inspected.redis.lpush("bull:old:wait", "1")
    assert await (await inspected.look(BullMQ)).queues({"old"}) == []


async def test_a_queue_s_ends_are_shown_with_what_its_states_are_known_by(yard: Yard):
    for number in range(1, 13):
        await yard.job("waiting", str(number), name=f"job {number}")
    await yard.job("delayed", "late", score_at(yard.now_ms + HOUR_MS) + 2)
    await yard.job("prioritized", "urgent", 5 * 2**32 + 1)
    await yard.job("active", "taken")
    await yard.redis.set(KEYS.of("limiter"), 3, px=HOUR_MS)
    detail = await (await yard.inspected.look(BullMQ)).detail(QUEUE)
    assert detail.problems == ()
    states = {each.state: each for each in detail.states}
    assert list(states) == list(ORDER)
    assert [entry.id for entry in states["waiting"].head] == ["1", "2", "3", "4", "5"]
    assert [entry.id for entry in states["waiting"].tail] == ["8", "9", "10", "11", "12"]
    assert states["waiting"].head[0].facts == {"name": "job 1", "data_bytes": 2}
    assert states["delayed"].head[0].at == Moment(yard.now_ms + HOUR_MS)
    assert states["delayed"].head[0].facts["sequence"] == 2
    assert states["prioritized"].head[0].facts["priority"] == 5
    assert isinstance(states["active"].head[0].facts["lock_ends"], Moment)
    assert detail.facts["meta version"] == "bullmq:6.7.0"
    assert detail.facts["rate_limit_used"] == "3"
    assert isinstance(detail.facts["rate_limit_ends"], Moment)
