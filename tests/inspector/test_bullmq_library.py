"""The inspector beside BullMQ itself: both are asked about every job of queues that the library filled in every state.

5.x and 6.x are installed from the npm registry (tests/inspector/bullmq/). Each is asked about the queues that it wrote,
and 6.x about those that 5.x left behind, as after an upgrade.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from service.child import HOST
from service.inspector.answers import JobDetail, Problem
from service.inspector.bullmq.keys import PREFIX
from service.inspector.bullmq.layout import BullMQ
from service.inspector.inspector import Inspector
from service.inspector.layout import Look
from service.inspector.reading import ReadOnly
from service.keys import Keys
from tests.kit.inspecting import Inspected, Monitor, inspected_server, inspecting
from tests.kit.npm import Packages, installed

pytestmark = [pytest.mark.library, pytest.mark.timeout(300)]

WHOLE = 2**20  #: shown of a payload: all of it
#: What is in it makes the library remove something when it is asked; it is looked at apart.
LEGACY = "legacy"
QUEUES = {
    *("waiting", "prioritized", "delayed", "overdue", "retried", "active", "stalled", "finished", "paused", "resumed"),
    *("parents", "children", "schedulers", "deduplicated", "limited", "capped"),
    *("meta", "with space", "größe-🧥", "{tag}", "a*b", "a?[b]", "delayed.v2", LEGACY),
}


@dataclass(frozen=True)
class Filled:
    """A server with the queues of one release, and what a release says of them."""

    writer: str
    reader: str
    url: str
    dues: dict[tuple[str, str], int]  #: by queue and id: what who added it asked for, ms
    jobs: list[dict[str, Any]]  #: lines of describe.mjs
    queues: dict[str, dict[str, Any]]


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    return installed(Path(__file__).parent / "bullmq", tmp_path_factory.mktemp("npm"))


@pytest.fixture(
    scope="module",
    params=[("bullmq5", "bullmq5"), ("bullmq6", "bullmq6"), ("bullmq5", "bullmq6")],
    ids=["5", "6", "5-then-6"],
)
def filled(
    request: pytest.FixtureRequest, packages: Packages, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Filled]:
    writer, reader = request.param
    with inspected_server(tmp_path_factory.mktemp("acl")) as server:
        told = list(packages.lines_of("fill", writer, HOST, server.port, PREFIX))
        dues = {(line["queue"], line["id"]): line["due"] for line in told}
        lines = list(packages.lines_of("describe", reader, HOST, server.port, PREFIX, *sorted(QUEUES - {LEGACY})))
        jobs = [line for line in lines if "state" in line]
        yield Filled(writer, reader, server.url, dues, jobs, {it["queue"]: it for it in lines if "counts" in it})


@pytest.fixture
async def inspected(filled: Filled) -> AsyncIterator[Inspected]:
    monitor = Monitor(filled.url)
    try:
        async with inspecting(filled.url, emptied=False) as made:
            yield made
        await monitor.caught_up()
        assert monitor.refused == [], "an inspector sent what is no read"
    finally:
        monitor.close()


async def asked(inspected: Inspected, queue: str, job: str) -> JobDetail | None:
    return await (await inspected.look(BullMQ, max_bytes=WHOLE)).job(queue, job)


def test_the_library_made_every_state_there_is(filled):
    """Were one missing, its comparison below would be empty."""
    states = Counter(line["state"] for line in filled.jobs)
    assert set(states) == {
        *("waiting", "prioritized", "delayed", "active", "completed", "failed", "waiting-children", "unknown")
    }
    assert states["delayed"] > 4_096  # more of one millisecond than a score has numbers for


async def test_every_job_is_in_the_state_that_the_library_says_and_due_when_it_says(filled, inspected):
    wrong, now_ms = [], await inspected.now_ms()
    async with inspected.unchanged():
        found = [
            await BullMQ(Look(ReadOnly(inspected.unwatched), now_ms)).job(line["queue"], line["id"])
            for line in filled.jobs
        ]
    for line, detail in zip(filled.jobs, found, strict=True):
        state, due = (detail.state, detail.times.get("due")) if detail else ("unknown", None)
        if (state, due and due.ms) != (line["state"], line["due"]):
            wrong.append((line["queue"], line["id"], state, due, line["state"], line["due"]))
        elif line["state"] == "delayed" and filled.dues.get((line["queue"], line["id"]), line["due"]) != line["due"]:
            wrong.append((line["queue"], line["id"], "is not due when it was asked for"))
    assert wrong == []


async def test_what_a_job_says_is_what_the_library_reads(filled, inspected):
    """Data, options, return values and errors, decoded; times and counters by their long names."""
    for line in (line for line in filled.jobs if line["job"] is not None and not is_one_of_a_crowd(line)):
        detail, job = await asked(inspected, line["queue"], line["id"]), line["job"]
        assert detail is not None
        named = (line["queue"], line["id"])
        texts = {"name": job["name"], "parent_key": job.get("parentKey")}
        assert {name: detail.record.get(name) for name in texts} == texts, named
        reason = detail.payloads.get("failedReason")
        assert (reason.shown if reason else "") == job.get("failedReason", ""), named
        assert detail.record.get("attempts_made", 0) == job["attemptsMade"], named
        assert (detail.record["delay_ms"], detail.record["priority"]) == (job["delay"], job["priority"]), named
        times = {"added": job["timestamp"], "processed": job.get("processedOn"), "finished": job.get("finishedOn")}
        assert {name: at.ms if (at := detail.times.get(name)) else None for name in times} == times, named
        shown = {name: decoded(detail, name) for name in ("data", "returnvalue", "stacktrace", "progress")}
        expected = (job["data"], job.get("returnvalue"), job["stacktrace"] or None, job["progress"] or None)
        assert tuple(shown.values()) == expected, named
        options = {"attempts": 0, **decoded(detail, "opts")}  # what the library fills in
        assert {name: it for name, it in options.items() if name != "repeatJobKey"} == job["opts"], named


async def test_queues_counts_and_pauses_are_those_of_the_library(filled, inspected):
    overview = await Inspector(inspected.transport, Keys(), layouts={"bullmq": BullMQ}).overview()
    assert {summary.queue for summary in overview.summaries} == QUEUES
    for summary in overview.summaries:
        assert summary.problems == ()
        if summary.queue != LEGACY:
            told = filled.queues[summary.queue]
            assert {state: summary.states[state] for state in told["counts"]} == told["counts"], summary.queue
            assert summary.paused == told["paused"], summary.queue


async def test_every_entry_of_a_queue_s_ends_is_a_job_in_that_state(filled, inspected):
    states = {(line["queue"], line["id"]): line["state"] for line in filled.jobs}
    for queue in sorted(QUEUES - {LEGACY}):
        detail = await (await inspected.look(BullMQ)).detail(queue)
        assert detail.problems == ()
        assert detail.facts["meta version"].startswith("bullmq:")
        for state in detail.states:
            for entry in (*state.head, *state.tail):
                wanted = "waiting" if state.state == "paused" else state.state
                assert states[queue, entry.id] == wanted, (queue, entry)
                assert entry.facts["name"], (queue, entry)


async def test_what_is_right_is_no_problem_and_what_is_wrong_is_one(filled, inspected):
    """Only what the program left to die is told: two workers that lost their locks, and jobs that nobody moves."""
    told = {queue: await (await inspected.look(BullMQ)).problems(queue) for queue in sorted(QUEUES - {LEGACY})}
    kinds = {queue: {each.kind: each for each in problems} for queue, problems in told.items() if problems}
    assert {queue: set(by_kind) for queue, by_kind in kinds.items()} == {
        "active": {"active-without-lease"},
        "overdue": {"due-not-moving"},
        "delayed": {"not-all-looked-at"},
    }
    assert set(kinds["active"]["active-without-lease"].ids) == {"3", "4"}
    late: Problem = kinds["overdue"]["due-not-moving"]
    assert late.count == 3
    assert late.since is not None
    assert late.since.ms == filled.dues["overdue", "3"]


async def test_no_job_of_a_healthy_queue_disagrees_with_itself(filled, inspected):
    for line in (line for line in filled.jobs if line["job"] is not None and not is_one_of_a_crowd(line)):
        detail = await asked(inspected, line["queue"], line["id"])
        assert detail is not None
        assert detail.agrees is True, (line["queue"], detail)
        stuck = {problem.kind for problem in detail.problems}
        assert stuck <= {"active-without-lease", "due-not-moving"}, (line["queue"], detail.problems)


async def test_markers_of_old_releases_are_no_jobs(filled, inspected):
    look = await inspected.look(BullMQ)
    assert (await look.summary(LEGACY)).states["waiting"] == 1
    assert [each.kind for each in await look.problems(LEGACY)] == ["legacy-marker"]
    (waiting,) = [each for each in (await look.detail(LEGACY)).states if each.state == "waiting"]
    assert [entry.id for entry in waiting.head] == ["1"]
    detail = await asked(inspected, LEGACY, "1")
    assert detail is not None
    assert detail.state == "waiting"


def decoded(detail: JobDetail, name: str) -> Any:
    payload = detail.payloads.get(name)
    if payload is None:
        return None
    assert payload.kind == "json", (name, payload)
    assert not payload.cut
    found = json.loads(payload.shown)
    return found or None if name in ("stacktrace", "progress") else found


def is_one_of_a_crowd(line: dict[str, Any]) -> bool:
    """One of thousands that are all alike: what is asked of each job is asked of every hundredth of these."""
    return line["job"]["name"] == "crowd" and line["job"]["data"]["number"] % 100 != 0


@pytest.mark.parametrize("release", ["bullmq5", "bullmq6"])
async def test_a_queue_at_work_has_no_problems(inspected_at_work: Inspected, packages, release):
    """Jobs move between any two reads of a look. What is told of a healthy queue is believed only once."""
    port = inspected_at_work.pool.connection_kwargs["port"]
    working = asyncio.create_task(asyncio.to_thread(packages.lines_of, "work", release, HOST, port, PREFIX, 90))
    told, looks, jobs = Counter[str](), 0, 0
    while not working.done() and min(looks, jobs) < 100:
        for queue in ("busy", "busy children"):
            now_ms = await inspected_at_work.now_ms()

            def looking(now_ms: int = now_ms) -> BullMQ:
                return BullMQ(Look(ReadOnly(inspected_at_work.unwatched), now_ms))

            detail = await looking().detail(queue)
            found = [*await looking().problems(queue), *detail.problems]
            for entry in (entry for state in detail.states for entry in (*state.head[:1], *state.tail[:1])):
                job = await looking().job(queue, entry.id)
                found += job.problems if job else ()
                jobs += job is not None
            told.update(f"{each.kind}: {each.detail}" for each in found if each.kind != "not-all-looked-at")
            looks += 1
    await inspected_at_work.redis.set("enough", 1)
    (counts,) = await working
    assert told == Counter()
    assert min(counts.values()) > 0, counts
    assert min(looks, jobs) >= 100


@pytest.fixture
async def inspected_at_work(tmp_path: Path) -> AsyncIterator[Inspected]:
    with inspected_server(tmp_path) as server:
        async with inspecting(server.url) as made:
            yield made
