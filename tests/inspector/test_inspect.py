"""`coatcheck inspect` as people and machines run it: as the shipped user, on a primary or a replica, in their zone."""

import json
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest

from service.child import HOST, free_port
from service.cli.exits import Exit
from service.inspector.inspector import QUEUES, Inspector
from service.inspector.reading import READS
from service.keys import Keys
from storage_backends.reference import Reference, new_uuid
from tests.kit.commands import Run, looking, told
from tests.kit.inspecting import Inspected, inspected_server, inspectors_url
from tests.kit.ledgers import QUEUE, Rig, rigged
from tests.kit.processes import Process
from tests.kit.servers import client_of
from tests.kit.waiting import eventually

HOUR_MS = 3_600_000


@pytest.fixture
def run(inspected: Inspected) -> Run:
    return looking(inspected, "inspect")


@pytest.fixture
async def rig(inspected: Inspected, inspectors_redis) -> AsyncIterator[Rig]:
    async with rigged(inspectors_redis.url) as rig:
        rig.now_ms = await inspected.now_ms()
        yield rig


async def test_queues_of_every_layout_are_summed_up(run, inspected, rig):
    """One command, whichever library it was that lost a job."""
    await rig.inline(due_ms=rig.now_ms + HOUR_MS)
    await inspected.redis.sadd("asynq:queues", "mails")
    await inspected.redis.lpush("asynq:{mails}:pending", "a", "b")
    overview = await told(run)
    queues = {(each["layout"], each["queue"]): each for each in overview["queues"]}
    assert queues["coatcheck", QUEUE]["states"]["future"] == 1
    assert queues["coatcheck", QUEUE]["next_due"].endswith("Z")
    assert queues["asynq", "mails"]["states"]["pending"] == 2
    assert overview["keys_looked_at"] == overview["keys"] == await inspected.redis.dbsize()
    text = (await run()).stdout
    for expected in ("coatcheck", QUEUE, "asynq", "mails", "next due", "in 59 min"):
        assert expected in text
    only = await told(run, "--layout", "coatcheck")
    assert [each["layout"] for each in only["queues"]] == ["coatcheck"]


async def test_a_queue_is_shown_closely_and_those_of_two_libraries_both(run, inspected, rig):
    job = await rig.inline(due_ms=rig.now_ms + HOUR_MS)
    await inspected.redis.sadd("asynq:queues", QUEUE)
    await inspected.redis.lpush(f"asynq:{{{QUEUE}}}:pending", "a")
    details = await told(run, QUEUE)
    assert [each["summary"]["layout"] for each in details] == ["coatcheck", "asynq"]
    assert details[0]["states"][0]["head"][0]["id"] == str(job)
    text = (await run(QUEUE)).stdout
    assert str(job) in text
    assert f"coatcheck: {QUEUE}" in text
    assert f"asynq: {QUEUE}" in text


async def test_a_ready_queue_is_what_the_settings_say_that_it_is(run, inspected, rig):
    """Seen as a list, a stream would be a key of a wrong type; and the other way round it is one."""
    ready = rig.keys.queue(QUEUE).ready
    await inspected.redis.xadd(ready, {"payload": "hello", "reference": "", "due": "1"})
    streams = {"COATCHECK_QUEUES": json.dumps({QUEUE: {"ready_kind": "stream"}})}
    [detail] = await told(run, QUEUE, **streams)
    assert detail["summary"]["states"]["ready"] == 1
    assert await told(run, "--problems", **streams) == []
    assert [each["queue"] for each in await told(run, "--problems")] == [QUEUE]


async def test_a_job_is_told_with_its_payload_as_far_as_wanted(run, rig):
    job = str(await rig.inline(b'{"to": "zoe"}', due_ms=rig.now_ms + HOUR_MS))
    [detail] = await told(run, QUEUE, job)
    assert detail["state"] == "delayed"
    assert detail["agrees"] is True
    assert detail["payloads"]["payload"] == {"size_bytes": 13, "kind": "json", "shown": '{"to": "zoe"}', "cut": False}
    [cut] = await told(run, QUEUE, job, "--max-bytes", "5")
    assert cut["payloads"]["payload"] == {"size_bytes": 13, "kind": "json", "shown": '{"to"', "cut": True}
    text = (await run(QUEUE, job)).stdout
    assert '{"to": "zoe"}' in text
    assert "agree" in text
    assert "json, 13 bytes" in text


async def test_a_payload_s_lines_cannot_pass_for_the_inspector_s(run, rig):
    """A carriage return would write over what stands there; both are in anybody's hands who may enqueue."""
    job = str(await rig.inline(b"ok\r\nstate  ready\rstate  dead", due_ms=rig.now_ms + HOUR_MS))
    text = (await run(QUEUE, job)).stdout
    assert "\r" not in text
    assert "\n  ok\n  state  ready\\rstate  dead\n" in text


async def test_problems_come_with_what_they_mean(run, inspected, rig):
    await rig.offloaded(due_ms=rig.now_ms - HOUR_MS)
    await inspected.redis.set("coatcheck:{broken}:dead", "x")
    found = {each["queue"]: each["problems"] for each in await told(run, "--problems")}
    assert {problem["kind"] for problem in found["broken"]} >= {"wrong-type"}
    [late] = [problem for problem in found[QUEUE] if problem["kind"] == "due-not-moving"]
    assert late["means"]
    assert late["usually"]
    assert late["since"].endswith("Z")
    assert [each["queue"] for each in await told(run, QUEUE, "--problems")] == [QUEUE]
    text = (await run("--problems")).stdout
    for expected in ("due-not-moving", "1 h", "wrong-type", "Usually:"):
        assert expected in text


async def test_whether_a_queue_is_paused_and_what_its_list_of_that_name_holds_are_two_columns(run, inspected):
    """BullMQ's `paused` holds ids, also of a queue that is not paused."""
    await inspected.redis.hset("bull:mail:meta", "version", "bullmq:6.7.0")
    await inspected.redis.lpush("bull:mail:paused", "1", "2", "3")
    head, _, row = [line.split() for line in (await run(COLUMNS="200")).stdout.splitlines()[2:5]]
    cells = dict(zip(" ".join(head).replace("in paused", "in-paused").split(), row, strict=False))
    assert (cells["in-paused"], cells["paused"]) == ("3", "no")


async def test_an_empty_redis_has_no_queues_and_no_problems(run):
    assert (await told(run))["queues"] == []
    assert await told(run, "--problems") == []
    assert "No queue was found" in (await run()).stdout
    assert "Nothing was found" in (await run("--problems")).stdout


async def test_what_is_nowhere_is_an_answer(run, rig):
    """Delivered, finished, removed or never there: the exit code tells scripts."""
    await rig.inline(due_ms=rig.now_ms + HOUR_MS)
    nobody = str(Reference("s3", QUEUE, rig.now_ms, new_uuid()))
    assert (await told(run, QUEUE, nobody, code=Exit.FAILED))["title"] == "Not here"
    assert (await told(run, "nobody", code=Exit.FAILED))["title"] == "Not here"
    assert "no such queue: nobody; `coatcheck inspect` lists" in (await run("nobody", code=Exit.FAILED)).stderr
    assert "or it never was there" in (await run(QUEUE, nobody, code=Exit.FAILED)).stderr


@pytest.mark.parametrize(
    "arguments", [("--layout", "celery"), ("--redis", "gopher://x"), ("q", "id", "--problems"), ("--max-bytes", "-1")]
)
async def test_misuse_is_told_as_that(run, arguments):
    await run(*arguments, code=Exit.MISUSED)


async def test_a_redis_that_is_away_or_refuses_is_told_as_that(run, inspected):
    away = await told(run, "--redis", f"redis://{HOST}:{free_port()}/0", code=Exit.LATER)
    assert away["title"] == "Redis unavailable"
    await inspected.redis.acl_setuser("nobody", enabled=True, passwords="+x", commands=["+ping", "+time", "+client"])
    port = inspected.url.rpartition(":")[2]
    refused = await told(run, "--redis", f"redis://nobody:x@{HOST}:{port}", code=Exit.FAILED)
    assert refused["title"] == "Refused by Redis"
    await inspected.redis.acl_deluser("nobody")


async def test_settings_say_where_and_under_which_names(run, inspected):
    await inspected.redis.zadd("acme:queues", {"x": 1})
    await inspected.redis.lpush("mails", "a")
    more = {"COATCHECK_KEY_PREFIX": "acme", "COATCHECK_QUEUES": '{"x": {"ready_key": "mails"}}'}
    [queue] = (await told(run, **more))["queues"]
    assert (queue["queue"], queue["states"]["ready"]) == ("x", 1)


async def test_times_are_the_users_own(inspected, rig):
    """Who looks at night in Tokyo should not have to count hours."""
    job = await rig.inline(due_ms=1_893_456_000_000)
    environ = {"COATCHECK_REDIS__URL": inspected.url, "TZ": "Asia/Tokyo"}
    process = Process(environ, "inspect", QUEUE, str(job))
    try:
        assert await process.ended() == Exit.DONE, process.log
        assert "2030-01-01 09:00:00.000 +0900 (in " in process.log
    finally:
        process.child.close()


async def test_watching_looks_again_until_it_is_told_to_stop(inspected, rig):
    await rig.inline(due_ms=rig.now_ms + HOUR_MS)
    process = Process({"COATCHECK_REDIS__URL": inspected.url}, "inspect", "--watch", "--json")
    try:
        await eventually(lambda: process.log.count('"queues"') >= 2, 60, "it has looked twice")
        assert await process.stopped(signal.SIGINT) == Exit.INTERRUPTED
        assert "Traceback" not in process.log
    finally:
        process.child.close()


async def test_a_replica_tells_the_same(inspected, inspectors_redis, rig, run, tmp_path):
    """Looking must not burden the primary: where there is a replica, people look there."""
    job = str(await rig.inline(due_ms=rig.now_ms + HOUR_MS))
    await rig.leased(due_ms=rig.now_ms - 1)
    await rig.offloaded(due_ms=rig.now_ms - HOUR_MS)
    with inspected_server(tmp_path, replicaof=f"{HOST} {inspectors_redis.port}") as replica:
        async with client_of(replica.url) as client:

            async def in_step() -> bool:
                told, theirs = await client.info("replication"), await inspected.redis.info("replication")
                return bool(
                    told["master_link_status"] == "up" and told["slave_repl_offset"] == theirs["master_repl_offset"]
                )

            await eventually(in_step, 60, "the replica has everything")
            with pytest.raises(Exception, match="read only"):
                await client.set("k", "v")
        url = inspectors_url(replica.url)
        for arguments in ((), (QUEUE,), (QUEUE, job), ("--problems",)):
            ours, theirs = await told(run, *arguments), await told(run, *arguments, "--redis", url)
            assert _timeless(theirs) == _timeless(ours)


async def test_queues_are_found_among_more_keys_than_are_looked_at(inspected):
    """A large queue shows itself wherever the SCAN stops, and what was not looked at is said."""
    async with inspected.redis.pipeline(transaction=False) as pipe:
        for n in range(20_000):
            pipe.set(f"coatcheck:{{large}}:cancelled:{n}" if n % 2 else f"session:{n}", "")
        await pipe.execute()
    await inspected.redis.set("coatcheck:{small}:paused", "1")
    found = await Inspector(inspected.transport, Keys(), keys_at_most=2_000).found()
    assert ("coatcheck", "large") in found.queues
    assert 2_000 <= found.keys < found.total_keys == 20_001
    every = await Inspector(inspected.transport, Keys(), keys_at_most=None).found()
    assert set(every.queues) == {("coatcheck", "large"), ("coatcheck", "small")}
    assert every.keys >= every.total_keys


async def test_a_library_with_thousands_of_queues_hides_no_other_and_what_was_left_out_is_said(run, inspected):
    """Whoever reads `Nothing was found` would go to bed, while the queue was not among those that were looked at."""
    async with inspected.redis.pipeline(transaction=False) as pipe:
        for n in range(QUEUES + 100):
            pipe.zadd("coatcheck:queues", {f"mail{n}": "inf"})
        await pipe.execute()
    await inspected.redis.rpush("rtq:queue:z", "no envelope")
    overview = await told(run)
    assert ("rtq", "z") in {(each["layout"], each["queue"]) for each in overview["queues"]}
    assert len(overview["queues"]) == QUEUES
    assert overview["unlisted"] == 101
    for arguments in ((), ("--problems",), ("--problems", "--json")):
        result = await run(*arguments)
        assert "101 queues more" in result.stderr
        assert "does-not-parse" in result.stdout or "--problems" not in arguments
    assert "queues more" not in (await run("z", "--problems")).stderr


async def test_whether_a_queue_is_paused_is_not_guessed_where_it_may_not_be_read(run, inspected):
    """`no` sends whoever reads it looking elsewhere."""
    await inspected.redis.set("coatcheck:{mail}:paused", "1")
    await inspected.redis.sadd("asynq:queues", "mail")
    await inspected.redis.set("asynq:{mail}:paused", "1")
    reads = [f"+{name.lower()}" for name in READS if name != "EXISTS"]
    await inspected.redis.acl_setuser("half", enabled=True, passwords="+x", keys=["*"], commands=["+client", *reads])
    url = f"redis://half:x@{HOST}:{inspected.url.rpartition(':')[2]}"
    try:
        only = ("mail", "--layout", "coatcheck", "--layout", "asynq")
        assert [each["summary"]["paused"] for each in await told(run, *only)] == [True, True]
        assert [each["summary"]["paused"] for each in await told(run, *only, "--redis", url)] == [None, None]
    finally:
        await inspected.redis.acl_deluser("half")


def _timeless(value: Any) -> Any:
    """Without what differs between two looks, or two servers' memory."""
    if isinstance(value, dict):
        differing = ("now", "redis_bytes_about", "detail")
        return {name: _timeless(each) for name, each in value.items() if name not in differing}
    return [_timeless(each) for each in value] if isinstance(value, list) else value
