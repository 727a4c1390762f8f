"""What Asynq itself wrote, and what its own inspector said of it: recorded once, since no CI of ours has Go modules.

asynq/record.go made asynq/recorded.json: a server with tasks in every state, through the public API alone.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from service.inspector.asynq.layout import Asynq
from service.inspector.inspector import Inspector
from service.inspector.layout import Look
from service.keys import Keys
from tests.kit.asynq_writer import AsynqWriter
from tests.kit.inspecting import Inspected

RECORDED: dict[str, Any] = json.loads((Path(__file__).parent / "asynq" / "recorded.json").read_text())
TASKS = {name: (queue, id_) for name, (queue, id_) in RECORDED["names"].items()}


@pytest.fixture
async def recorded(inspected: Inspected) -> Inspected:
    for key, kept in RECORDED["keys"].items():
        value = kept["value"]
        match kept["type"]:
            case "string":
                await inspected.redis.set(key, bytes.fromhex(value))
            case "list":
                await inspected.redis.rpush(key, *value)
            case "set":
                await inspected.redis.sadd(key, *value)
            case "zset":
                await inspected.redis.zadd(key, value)
            case "hash":
                await inspected.redis.hset(key, mapping={name: bytes.fromhex(data) for name, data in value.items()})
    return inspected


def look(recorded: Inspected) -> Asynq:
    """At the moment of the recording."""
    return Asynq(Look(recorded.reader, RECORDED["recorded_at_ms"], Keys()))


@pytest.mark.parametrize("name", TASKS)
async def test_every_task_is_told_as_asynqs_own_inspector_tells_it(recorded: Inspected, name):
    queue, id_ = TASKS[name]
    says = RECORDED["says"][id_]
    job = await look(recorded).job(queue, id_)
    assert job is not None
    assert (job.state, job.record_state, job.agrees, list(job.problems)) == (says["State"], says["State"], True, [])
    assert (job.record["type"], job.record["queue"]) == (says["Type"], says["Queue"])
    assert (job.record["max_retries"], job.record["retried"]) == (says["MaxRetry"], says["Retried"])
    assert (job.record.get("last_error") or "") == says["LastErr"]
    assert (job.record.get("group") or "") == says["Group"]
    assert {k[7:]: v for k, v in job.record.items() if k.startswith("header ")} == (says["Headers"] or {})
    for ours, theirs in (
        ("due", "Next"),
        ("last_failed", "LastFailed"),
        ("deadline", "Deadline"),
        ("completed", "CompletedAt"),
    ):
        at_s = says[theirs] if ours != "due" or says["State"] in ("scheduled", "retry") else 0
        assert (job.times[ours].ms // 1000 if ours in job.times else 0) == at_s, ours
    for payload, theirs in (("payload", "Payload"), ("result", "Result")):
        assert (job.payloads[payload].size_bytes if payload in job.payloads else 0) == len(says[theirs]) // 2
    assert job.record.get("timeout_s", 0) == says["Timeout"]


async def test_a_healthy_queue_has_no_problems(recorded: Inspected):
    """What Asynq writes of its own accord, tasks run and archived by hand among it, is no problem."""
    assert await look(recorded).queues([]) == ["grouped", "mail"]
    for queue in ("mail", "grouped"):
        assert list(await look(recorded).problems(queue)) == []
        assert list((await look(recorded).detail(queue)).problems) == []


async def test_the_summary_counts_what_asynq_counted(recorded: Inspected):
    mail, grouped = await look(recorded).summary("mail"), await look(recorded).summary("grouped")
    states = [says["State"] for says in RECORDED["says"].values() if says["Queue"] == "mail"]
    assert {state: count for state, count in mail.states.items() if count} == {it: states.count(it) for it in states}
    assert (mail.paused, grouped.paused) == (True, False)
    assert {state: count for state, count in grouped.states.items() if count} == {"aggregating": 6}


async def test_who_works_on_a_task_is_known(recorded: Inspected):
    queue, id_ = TASKS["active"]
    job = await look(recorded).job(queue, id_)
    assert job is not None
    assert str(job.record["worked_on_by"]).count(":") == 2
    assert job.times["lease_ends"].ms > RECORDED["recorded_at_ms"]


async def test_the_unique_lock_of_a_task_is_its_own(recorded: Inspected):
    queue, id_ = TASKS["scheduled unique"]
    job = await look(recorded).job(queue, id_)
    assert job is not None
    assert job.record["unique_lock"] == "held by this task"


async def test_a_task_in_an_aggregation_set_is_found_there(recorded: Inspected):
    """Its hash says the group, whose own set it has left."""
    jobs = [await look(recorded).job(*at) for name, at in TASKS.items() if name.startswith("aggregating ")]
    keys = [job.places[0].key for job in jobs if job is not None]
    assert sum(key.count(":") > "asynq:{grouped}:g:news:daily".count(":") for key in keys) == 2


async def test_the_inspector_as_a_whole_finds_the_queues(recorded: Inspected):
    overview = await Inspector(recorded.transport, Keys()).overview()
    assert [(it.layout, it.queue) for it in overview.summaries] == [("asynq", "grouped"), ("asynq", "mail")]


async def test_the_writer_of_these_tests_writes_the_keys_that_asynq_writes(recorded: Inspected):
    """Same names, same types, same fields of hashes: else what is tested with it would prove nothing."""
    now_s = RECORDED["recorded_at_ms"] // 1000
    mail, grouped = (AsynqWriter(recorded.redis, queue, now_s) for queue in ("written", "written too"))
    for id_ in ("retry", "archived", "completed"):
        await mail.enqueue(id_)
        await mail.dequeue()
    await mail.retry("retry", now_s + 60)
    await mail.archive("archived")
    await mail.complete("completed", result=b"42 sent")
    await mail.enqueue("ran by hand")
    await mail.enqueue("active")
    await mail.enqueue("active unique", unique_s=3600)
    for _ in range(3):
        await mail.dequeue()
    await mail.requeue("ran by hand")
    await mail.enqueue("pending first")
    await mail.enqueue("pending unique", unique_s=3600)
    await mail.schedule("scheduled", now_s + 3600)
    await mail.schedule("scheduled unique", now_s + 3600, unique_s=3600)
    await mail.pause()
    await grouped.group("aggregating 1", "news:daily")
    await grouped.aggregate("news:daily", "23c0dfdf")
    await grouped.group("aggregating 0", "news:daily")

    async def shape(writer: AsynqWriter, names: Iterable[str]) -> dict[str, str]:
        return {name: (await recorded.redis.type(writer.key(name))).decode() for name in names}

    for writer, queue in ((mail, "mail"), (grouped, "grouped")):
        kept = {key.split("}:")[1]: it["type"] for key, it in RECORDED["keys"].items() if f"{{{queue}}}" in key}
        own = {
            name: kind for name, kind in kept.items() if not re.search("^t:|^unique:|:2026-|weekly|news:daily:", name)
        }
        assert await shape(writer, own) == own
        for name, (its_queue, id_) in TASKS.items():
            fields = await recorded.redis.hkeys(writer.key(f"t:{name}"))
            if its_queue == queue and fields:
                assert {field.decode() for field in fields} == RECORDED["keys"][f"asynq:{{{queue}}}:t:{id_}"][
                    "value"
                ].keys()
