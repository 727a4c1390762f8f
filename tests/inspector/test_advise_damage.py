"""Damaged data is told of, and never a traceback; what is sound beside it is still counted."""

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from service.advisor.picture import page
from service.advisor.report import Question, Report, plain, report
from service.advisor.survey import Extent, survey
from service.cli.advise import _show
from service.keys import Keys
from tests.kit.backlogs import FILLERS, known
from tests.kit.inspecting import Inspected

JOBS = 40
ZSETS = {
    "coatcheck": "coatcheck:{emails}:delayed",
    "asynq": "asynq:{mail}:scheduled",
    "bullmq": "bull:video:delayed",
    "rtq": "rtq:queue:reports:delayed",
    "celery": "unacked_index",
    "rq": "rq:scheduled:default",
    "sidekiq": "schedule",
}
RECORDS = {"asynq": "asynq:{mail}:t:*", "bullmq": "bull:video:[0-9]*", "rq": "rq:job:*"}
HASHES = {"coatcheck": "coatcheck:{emails}:bodies", "celery": "unacked"}
SECRET = "s3cr3t-payload"


async def told(inspected: Inspected) -> Report:
    """And shown in every way."""
    found = report(await survey(inspected.transport, Keys(), Extent(seed=1)), Question())
    texts = [page(found), json.dumps(plain(found))]
    _show(found, as_json=False)
    assert not any(SECRET in text for text in texts)
    return found


async def fill(inspected: Inspected, layout: str) -> int:
    contents = known(JOBS, lambda chance: chance.uniform(500, 900))
    await FILLERS[layout](inspected.redis, contents, await inspected.now_ms())
    return contents.payload_bytes


@pytest.mark.parametrize("layout", FILLERS)
async def test_a_delayed_set_of_another_type_hides_no_other(inspected: Inspected, layout):
    for other in FILLERS:
        await fill(inspected, other)
    before = (await told(inspected)).delayed_jobs.point
    await inspected.redis.delete(ZSETS[layout])
    await inspected.redis.set(ZSETS[layout], SECRET)
    after = await told(inspected)
    lost = JOBS // 2 if layout in {"asynq", "sidekiq"} else JOBS
    assert after.delayed_jobs.point == before - lost


@pytest.mark.parametrize("layout", ["coatcheck", "asynq", "celery", "rq", "sidekiq"])
async def test_what_a_registry_or_a_fixed_name_leads_to_is_named_if_it_is_of_another_type(inspected, layout):
    await fill(inspected, layout)
    await inspected.redis.delete(ZSETS[layout])
    await inspected.redis.rpush(ZSETS[layout], SECRET)
    assert f"{ZSETS[layout]} is no sorted set, or may not be read" in (await told(inspected)).problems


@pytest.mark.parametrize("layout", RECORDS)
async def test_records_that_are_missing_or_of_another_type_are_counted(inspected: Inspected, layout):
    await fill(inspected, layout)
    keys = sorted(await inspected.redis.keys(RECORDS[layout]))
    assert len(keys) == JOBS
    await inspected.redis.delete(*keys[:5])
    for key in keys[5:9]:
        await inspected.redis.delete(key)
        await inspected.redis.lpush(key, SECRET)
    for key in keys[9:12]:
        await inspected.redis.hdel(key, "msg", "data")
    found = await told(inspected)
    assert found.problems == [
        f"{layout}: an id has no record (5 of the jobs that were read)",
        f"{layout}: a record is of another type (4 of the jobs that were read)",
        f"{layout}: a record has no payload (3 of the jobs that were read)",
    ]
    assert found.delayed_jobs.point == JOBS


@pytest.mark.parametrize(
    ("layout", "fault"), [("coatcheck", "a reference has no payload"), ("celery", "a delivery tag")]
)
async def test_payloads_that_are_missing_are_counted(inspected: Inspected, layout, fault):
    await fill(inspected, layout)
    fields = await inspected.redis.hkeys(HASHES[layout])
    await inspected.redis.hdel(HASHES[layout], *fields[:30])
    assert any(fault in it for it in (await told(inspected)).problems)
    await inspected.redis.delete(HASHES[layout])
    await inspected.redis.set(HASHES[layout], SECRET)
    assert (await told(inspected)).problems


@pytest.mark.parametrize("score", ["inf", "-inf", "0", "-1", "1e300", "1764547200.5", "1e-320"])
@pytest.mark.parametrize("layout", FILLERS)
async def test_scores_that_are_no_times_are_counted_with_their_payload(inspected: Inspected, layout, score):
    """What takes memory takes it whatever its score says. 1764547200.5 is a time for libraries that write seconds."""
    size = await fill(inspected, layout)
    member = (await inspected.redis.zrange(ZSETS[layout], 0, 0))[0]
    await inspected.redis.zadd(ZSETS[layout], {member: score})
    found = await told(inspected)
    if layout != "celery":  # there the score says only when a worker took it
        assert found.payload_bytes.point == size
        in_seconds = layout in {"asynq", "rq", "sidekiq"} and score == "1764547200.5"
        assert any("its score is no time" in it for it in found.problems) != in_seconds


@pytest.mark.parametrize("member", [b"", b"\xff\xfe\x00", b"{", b"null", b"[1]", b"-7", b"[" * 5000, b"x" * 2_000_000])
@pytest.mark.parametrize("layout", FILLERS)
async def test_members_may_be_any_bytes(inspected: Inspected, layout, member):
    await fill(inspected, layout)
    now_ms = await inspected.now_ms()
    scores = {"coatcheck": now_ms, "rtq": now_ms, "bullmq": now_ms * 4096}
    await inspected.redis.zadd(ZSETS[layout], {member: scores.get(layout, now_ms / 1000)})
    found = await told(inspected)
    assert found.survey.sample.faults or (layout == "sidekiq" and len(member) > 2**20) or member == b"{"


@pytest.mark.parametrize(
    "message",
    [
        "",
        "{",
        "[]",
        "[{}]",
        '[{"headers": null}]',
        '[{"headers": []}]',
        '[{"headers": {"eta": 7}}]',
        '[{"headers": {"eta": "tomorrow"}}]',
        '[{"headers": {"eta": "9999-99-99T00:00:00"}}]',
        '{"0": 1}',
        "[" * 5000,
        b"\xff\xfe",
        "7",
        "null",
        "x" * 2_000_000,
    ],
    ids=lambda it: str(it[:30]),
)
async def test_celery_messages_may_be_anything(inspected: Inspected, message):
    await fill(inspected, "celery")
    tag = (await inspected.redis.zrange("unacked_index", 0, 0))[0]
    await inspected.redis.hset("unacked", tag, message)
    found = await told(inspected)
    assert found.delayed_jobs.point in (JOBS - 1, JOBS)


async def test_bullmq_times_may_be_anything(inspected: Inspected):
    await fill(inspected, "bullmq")
    for at, value in enumerate(["", "x", "-5", "1e9", "9" * 400, "0", b"\xff", "NaN", "²"]):
        await inspected.redis.hset(f"bull:video:{at}", mapping={"delay": value, "timestamp": value})
    found = await told(inspected)
    assert found.problems == []
    assert found.unrecorded.point >= 5


async def test_names_of_any_bytes_are_shown(inspected: Inspected):
    contents, now_ms = known(3, lambda chance: 500), await inspected.now_ms()
    for name in ("<script>alert(1)</script>", "a b\n", "ü", "{x}", "\x1b[2J"):
        await FILLERS["asynq"](inspected.redis, contents, now_ms, name) if "{" not in name else None  # type: ignore[call-arg]  # of this one
        await FILLERS["rq"](inspected.redis, contents, now_ms, name)  # type: ignore[call-arg]  # likewise
    await inspected.redis.zadd(b"rq:scheduled:\xff\xfe", {b"1": now_ms / 1000})
    found = await told(inspected)
    assert len(found.survey.sets) >= 10
    assert "<script>" not in page(found)


Value = Callable[[random.Random], Any]
_TEXTS: list[Value] = [
    lambda chance: chance.randbytes(chance.randrange(40)),
    lambda chance: json.dumps(
        {"class": "A", "args": [SECRET], "created_at": chance.choice([None, 1, 1e12, "x", True])}
    ),
    lambda chance: (
        f"redis::emails::{chance.randrange(2**54)}::{chance.randrange(2**40):08x}-0000-7000-8000-000000000000"
    ),
    lambda chance: str(chance.randrange(50)),
    lambda chance: json.dumps([{"headers": {"eta": chance.choice([None, 5, "2030-01-01T00:00:00", "now"])}}, "", ""]),
]


async def scatter(inspected: Inspected, chance: random.Random) -> None:
    """Every name that some layout knows, with any type and any contents."""
    names = [
        *ZSETS.values(),
        *HASHES.values(),
        "retry",
        "asynq:queues",
        "rq:queues",
        "coatcheck:queues",
        "bull:video:meta",
    ]
    names += [f"bull:video:{at}" for at in range(20)] + [f"rq:job:{at}" for at in range(20)]
    names += [f"asynq:{{mail}}:t:{at}" for at in range(20)]
    for name in names:
        text = [chance.choice(_TEXTS)(chance) for _ in range(chance.randrange(1, 30))]
        match chance.randrange(8):
            case 0:
                await inspected.redis.set(name, text[0])
            case 1:
                await inspected.redis.rpush(name, *text)
            case 2:
                await inspected.redis.sadd(name, *text)
            case 3 | 4:
                fields = [chance.choice([*text, "msg", "data", "delay", "timestamp", "created_at"]) for _ in text]
                await inspected.redis.hset(name, mapping=dict(zip(fields, text, strict=True)))
            case _:
                scores = [chance.choice([0, -1, 1e10, 1.8e9, 1.8e12, 7.4e15, 1e300, "inf"]) for _ in text]
                await inspected.redis.zadd(name, dict(zip(text, scores, strict=True)))


@pytest.mark.parametrize("seed", range(25))
async def test_fuzzed_contents_never_raise(inspected: Inspected, seed):
    await scatter(inspected, random.Random(seed))
    found = await told(inspected)
    assert found.payload_bytes.low <= found.payload_bytes.point <= found.payload_bytes.high
