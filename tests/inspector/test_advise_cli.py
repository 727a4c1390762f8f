"""`coatcheck advise` as people and machines run it: as the shipped user, on a replica, at their prices."""

import json

import pytest

from service.advisor.finding import delayed_sets
from service.advisor.layouts import LAYOUTS
from service.child import HOST, free_port
from service.cli.exits import Exit
from service.inspector.reading import READS, Budget, ReadOnly
from service.keys import Keys
from service.settings import load
from tests.kit.backlogs import Known, known, rtq, sidekiq
from tests.kit.commands import Run, looking, told
from tests.kit.inspecting import Inspected, inspected_server, inspectors_url
from tests.kit.servers import client_of
from tests.kit.waiting import eventually

DAY_MS = 86_400_000


@pytest.fixture
def run(inspected: Inspected) -> Run:
    return looking(inspected, "advise")


@pytest.fixture
async def backlog(inspected: Inspected) -> Known:
    """Sidekiq's, of large jobs that wait for days."""
    contents = known(400, lambda chance: 20_000 + 60_000 * chance.random(), longest_ms=30 * DAY_MS)
    await sidekiq(inspected.redis, contents, await inspected.now_ms())
    return contents


async def test_people_are_told_the_share_the_shape_the_choices_and_the_settings(run, backlog):
    text = (await run()).stdout
    for expected in ("share of memory", "sidekiq", "schedule", "over 7d", "inline max bytes", "left in Redis", "PUT"):
        assert expected in text, expected
    assert "400 of 400" in text


async def test_the_settings_are_ready_to_paste(run, backlog):
    """They are read back by the settings themselves."""
    lines = (await run()).stdout.splitlines()
    pasted = dict(line.removeprefix("export ").split("=", 1) for line in lines if line.startswith("export "))
    chosen = load({"COATCHECK_BACKENDS__S3__BUCKET": "payloads", **pasted}).routing
    advice = (await told(run))["advice"]
    assert advice["settings"] == pasted
    assert chosen.offload_to == "s3"
    assert chosen.inline_max_bytes == advice["inline_max_bytes"]
    assert advice["sure"]
    assert advice["saving"]["low"] > 0


async def test_machines_are_told_everything_with_intervals(run, backlog):
    answer = await told(run, "--sample", "300", "--seed", "5")
    assert answer["sample"] == {"jobs": 400, "read": 300, "confidence": 0.95}
    for name in ("payload_bytes", "payload_share", "held_bytes", "held_share", "dollars"):
        assert answer[name]["low"] <= answer[name]["point"] <= answer[name]["high"], name
    assert answer["payload_bytes"]["low"] <= backlog.payload_bytes <= answer["payload_bytes"]["high"]
    assert {(it["layout"], it["queue"], it["jobs"]) for it in answer["sets"]} == {
        ("sidekiq", "schedule", 200),
        ("sidekiq", "retry", 200),
    }
    assert len(answer["grid"]) == 25
    assert len(answer["distribution"]) == 7 * 8
    assert answer["problems"] == []


async def test_the_same_seed_draws_the_same_jobs(run, backlog):
    first, again, other = [
        (await told(run, "--sample", "200", "--seed", seed))["payload_bytes"]["point"] for seed in ("1", "1", "2")
    ]
    assert first == again != other


async def test_prices_thresholds_and_a_bound_are_the_asker_s(run, backlog):
    """Requests so dear that nothing pays; then a bound that leaves no choice."""
    dear = await told(run, "--put-thousand", "1000", "--sizes", "4KiB", "--delays", "1h,2d")
    assert [(it["inline_max_bytes"], it["inline_max_delay"]) for it in dear["grid"]] == [
        (4096, "15m"),
        (4096, "1h"),
        (4096, "2d"),
        (16384, "15m"),  # what the settings say now is always in it
        (16384, "1h"),
        (16384, "2d"),
    ]
    assert dear["advice"]["settings"] == {"COATCHECK_ROUTING__OFFLOAD_TO": ""}
    bound = await told(run, "--put-thousand", "1000", "--at-most", "1MiB", "--offload-to", "s3_acme")
    assert bound["advice"]["fits"]
    assert bound["advice"]["redis_bytes"]["high"] <= 2**20
    assert bound["advice"]["settings"]["COATCHECK_ROUTING__OFFLOAD_TO"] == "s3_acme"
    assert not (await told(run, "--at-most", "1"))["advice"]["fits"]
    assert (await told(run, "--redis-gib", "0"))["dollars"]["point"] == 0


async def test_the_picture_stands_alone_and_holds_no_payload(run, inspected, backlog, tmp_path):
    await rtq(inspected.redis, known(50, lambda chance: 2_000), await inspected.now_ms(), queue="<i>")
    path = tmp_path / "advice.html"
    result = await run("--html", str(path))
    assert str(path) in result.stderr
    html = path.read_text(encoding="utf-8")
    assert html.startswith("<!doctype html>")
    assert "&lt;i&gt;" in html
    assert "<svg" in html
    for secret in ("HardJob", "cHBwcHBw", "max_retries", "<i>"):  # a class, a payload, an envelope, a name as it is
        assert secret not in html


async def test_what_was_read_is_not_lost_with_a_picture_that_cannot_be_written(run, backlog, tmp_path):
    """A sample of a busy Redis is not drawn twice for a wrong path."""
    path = str(tmp_path / "no" / "folder.html")
    people, machines = [await run("--html", path, *more, code=Exit.FAILED) for more in ((), ("--json",))]
    assert "share of memory" in people.stdout
    assert json.loads(machines.stdout)["sample"]["read"] == 400
    for failed in (people, machines):
        assert f"Not written: {path}: No such file" in failed.stderr


async def test_a_redis_without_delayed_jobs_is_no_error(run):
    assert "no delayed job" in (await run()).stdout
    answer = await told(run)
    assert answer["payload_bytes"] == {"point": 0, "low": 0, "high": 0}
    assert answer["advice"]["settings"] == {"COATCHECK_ROUTING__OFFLOAD_TO": ""}


@pytest.mark.parametrize(
    "arguments",
    [
        ("--sample", "5"),
        ("--sizes", "big"),
        ("--delays", "5"),
        ("--delays=-1h",),
        ("--at-most", "1GB"),
        ("--redis-gib", "-1"),
        ("--redis", "nonsense"),
        ("--most-bytes", "x"),
        ("--most-bytes", "0"),  # nothing would be read, and so nothing cost anything
        ("--redis-gib", "inf"),
        ("--put-thousand", "1e300"),
        ("--sizes", ",".join(map(str, range(1, 100)))),
        ("--delays", ",".join(f"{n}s" for n in range(1, 100))),
        ("--offload-to", "s3;reboot"),  # is told to be pasted into a shell
        ("--offload-to", "redis"),
    ],
    ids=" ".join,
)
async def test_what_cannot_be_is_misuse(run, arguments):
    await run(*arguments, code=Exit.MISUSED)


async def test_redis_away_is_told_so(run):
    result = await run("--redis", f"redis://{HOST}:{free_port()}/0", code=Exit.LATER)
    assert "Redis unavailable" in result.stderr
    [line] = (await run("--redis", f"redis://{HOST}:{free_port()}/0", "--json", code=Exit.LATER)).stdout.splitlines()
    assert json.loads(line)["title"] == "Redis unavailable"


async def test_whoever_may_not_read_is_told_so(run, inspected):
    await inspected.redis.execute_command("ACL", "SETUSER", "nobody", "on", "nopass", "~*", "-@all", "+ping", "+client")
    try:
        url = inspected.url.replace(inspected.url.split("@")[0].removeprefix("redis://"), "nobody:x")
        result = await run("--redis", url, code=Exit.FAILED)
        assert "Refused by Redis" in result.stderr
    finally:
        await inspected.redis.execute_command("ACL", "DELUSER", "nobody")


@pytest.mark.parametrize("lacking", ["ZCARD", "ZRANGE"])
async def test_what_may_not_be_read_is_not_taken_for_nothing(run, inspected, backlog, lacking):
    """`There is no delayed job` is what the price of a Redis may be decided by."""
    reads = [f"+{name.lower()}" for name in READS if name != lacking]
    await inspected.redis.acl_setuser("half", enabled=True, passwords="+x", keys=["*"], commands=["+client", *reads])
    url = f"redis://half:x@{HOST}:{inspected.url.rpartition(':')[2]}"
    try:
        result = await run("--redis", url)
        assert "no delayed job" not in result.stdout
        assert "schedule is no sorted set, or may not be read" in result.stderr
        assert (await told(run, "--redis", url))["problems"]
    finally:
        await inspected.redis.acl_deluser("half")


async def test_more_sets_than_can_be_asked_are_counted_and_the_longest_are_read(inspected, backlog):
    """Tens of thousands of queues, as some make one a customer, must not be a traceback."""
    async with inspected.redis.pipeline(transaction=False) as pipe:
        for n in range(1_000):
            pipe.zadd(f"rtq:queue:q{n}:delayed", {"{}": 1})
        await pipe.execute()
    layouts = {layout.name: layout(Keys()) for layout in LAYOUTS}
    found = await delayed_sets(ReadOnly(inspected.unwatched, Budget(commands=300)), layouts)
    assert {it.queue for it in found.sets} >= {"schedule", "retry"}
    assert len(found.sets) + found.unasked == 1_002
    assert found.unasked > 700


async def test_a_replica_answers_as_well(run, inspected, inspectors_redis, backlog, tmp_path):
    """Whoever is careful with a primary asks its replica."""
    with inspected_server(tmp_path, replicaof=f"{HOST} {inspectors_redis.port}") as replica:
        async with client_of(replica.url) as client:

            async def caught_up() -> bool:
                return bool(
                    await client.zcard("retry") == 200
                    and (await client.info("replication"))["master_link_status"] == "up"
                )

            await eventually(caught_up, 30, "the replica has all jobs")
        answer = await told(run, "--redis", inspectors_url(replica.url))
    assert answer["payload_bytes"]["point"] == backlog.payload_bytes
