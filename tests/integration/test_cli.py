"""The command line against a running service: what people see, what machines read, how it exits."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import click.testing
import pytest
from typer.testing import CliRunner

from service.child import HOST, free_port
from service.cli import app
from service.cli.exits import Exit
from storage_backends.base import StorageUnavailable
from storage_backends.reference import Reference, new_uuid
from tests.kit.desk import LARGE, QUEUE, Desk
from tests.kit.web import app_of, served

Run = Callable[..., Coroutine[Any, Any, click.testing.Result]]
NOBODY = f"redis::{QUEUE}::1764547200000::0193f2a4-7c1e-7b3a-9d57-6f0a1c2b3d4e"


@pytest.fixture
async def run(desk: Desk) -> AsyncIterator[Run]:
    """Runs `coatcheck` with these arguments; it finds the service as people's shells tell it."""
    async with served(app_of(desk)) as port:
        environ = {"COATCHECK_TEST_REDIS": None, "COATCHECK_URL": f"http://{HOST}:{port}"}  # the first is no setting

        async def invoke(
            *arguments: str, stdin: bytes | None = None, code: Exit | None = Exit.DONE, **more: str
        ) -> Any:
            result = await asyncio.to_thread(CliRunner().invoke, app, arguments, input=stdin, env={**environ, **more})
            assert code is None or result.exit_code == code, result.output
            return result

        yield invoke


async def told(run: Run, *arguments: str, **options: Any) -> Any:
    """What a machine reads."""
    return json.loads((await run(*arguments, "--json", **options)).stdout)


async def bury(desk: Desk, count: int, reason: str = "payload_missing") -> list[str]:
    members = [f"s3::{QUEUE}::1::{new_uuid()}" for _ in range(count)]
    of, (seconds, _) = desk.keys.queue(QUEUE), await desk.redis.time()
    await desk.redis.zadd(of.dead, {member: seconds * 1000 - count + n for n, member in enumerate(members)})
    await desk.redis.hset(of.trouble, mapping={member[-36:]: f'{{"reason":"{reason}"}}' for member in members})
    await desk.ledger.repair([QUEUE])
    return members


async def number_of_dead(desk: Desk) -> int:
    return int(await desk.redis.zcard(desk.keys.queue(QUEUE).dead))


# ---- one job ---------------------------------------------------------------------------------------------------------


async def test_a_job_goes_all_the_way_by_command(desk, run, tmp_path):
    """From a file with any bytes, and out again unchanged."""
    payload = bytes(range(256)) * 100
    (tmp_path / "payload").write_bytes(payload)
    accepted = await told(run, "enqueue", str(tmp_path / "payload"), "--queue", QUEUE, "--delay", "1h")
    assert accepted["backend"] == "s3"
    reference = accepted["reference"]
    assert (await run("job", reference, "--payload")).stdout_bytes == payload
    assert (await told(run, "reschedule", reference, "--due", "2030-01-01T00:00:00Z"))["due"].startswith("2030-01-01")
    assert (await told(run, "reschedule", reference, "--due", "1893456000000"))["due"] == "2030-01-01T00:00:00.000Z"
    assert (await told(run, "job", reference))["state"] == "delayed"
    assert (await told(run, "cancel", reference))["state"] == "cancelled"
    assert (await told(run, "job", reference, code=Exit.FAILED))["type"] == "urn:coatcheck:not-here"


async def test_standard_input_is_the_payload_unless_a_file_is_named(desk, run):
    arguments = ("enqueue", "--queue", QUEUE, "--due", "2030-01-01T00:00:00+01:00")
    reference = (await told(run, *arguments, stdin=b"hello\n"))["reference"]
    assert (await run("job", reference, "--payload")).stdout_bytes == b"hello\n"


async def test_tenant_and_idempotency_key_reach_the_service(desk, run):
    arguments = ("enqueue", "--queue", QUEUE, "--delay", "1h", "--tenant", "acme", "--idempotency-key", "order-4711")
    first = await told(run, *arguments, stdin=b"x")
    assert await told(run, *arguments, stdin=b"x") == first
    other = await told(run, *arguments, stdin=b"y", code=Exit.FAILED)
    assert other["type"] == "urn:coatcheck:idempotency-key-reused"
    refused = await told(run, "enqueue", "--queue", QUEUE, "--delay", "1h", "--tenant", "nobody", code=Exit.FAILED)
    assert refused["type"] == "urn:coatcheck:unknown-tenant"


async def test_people_get_words_and_not_json(desk, run):
    reference = (await desk.enqueue()).reference
    shown = (await run("job", str(reference))).stdout
    assert str(reference) in shown
    assert "next attempt" in shown
    failed = await run("job", NOBODY, code=Exit.FAILED)
    assert failed.stdout == ""
    assert "Not here" in failed.stderr
    assert "urn:coatcheck:not-here" in failed.stderr


# ---- many ------------------------------------------------------------------------------------------------------------


async def test_a_file_of_jobs_is_sent_in_pieces_and_each_line_is_answered(desk, run, tmp_path):
    """A bad line fails alone, and is named by its number in the file, not in the request that it happened to be in."""
    lines = [json.dumps({"payload": f"job {n}", "delay": "1h"}) for n in range(2500)]
    lines[1700] = '{"payload": "no time"}'
    (tmp_path / "jobs.ndjson").write_text("\n".join(lines))
    result = await run(
        "enqueue", str(tmp_path / "jobs.ndjson"), "--queue", QUEUE, "--batch", "--json", code=Exit.MISUSED
    )
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert [answer["line"] for answer in answers] == list(range(1, 2501))
    assert [answer["line"] for answer in answers if "problem" in answer] == [1701]
    assert len(await desk.delayed()) == 2499


async def test_people_are_told_which_lines_failed(desk, run):
    stdin = b'{"payload": "a", "delay": "1h"}\n{"payload": "b", "delay": "1h", "tenant": "nobody"}\n'
    result = await run("enqueue", "--queue", QUEUE, "--batch", stdin=stdin, code=Exit.FAILED)
    assert "accepted: 1, refused: 1" in result.stderr
    assert "unknown-tenant" in result.stdout


async def test_an_empty_file_of_jobs_is_done_at_once(desk, run):
    """A cron job that finds nothing to send has not failed."""
    assert "accepted: 0" in (await run("enqueue", "--queue", QUEUE, "--batch", stdin=b"")).stderr


async def test_a_batch_has_its_times_in_its_lines(run):
    result = await run("enqueue", "--queue", QUEUE, "--batch", "--delay", "1h", stdin=b"", code=Exit.MISUSED)
    assert "each line" in result.stderr


# ---- queues ----------------------------------------------------------------------------------------------------------


async def test_queues_are_shown_together_and_one_by_one(desk, run):
    await desk.enqueue(queue="b")
    await desk.enqueue(queue="a")
    assert [row["queue"] for row in await told(run, "queues")] == ["a", "b"]
    assert (await told(run, "queues", "a"))["future"] == 1
    table = (await run("queues")).stdout
    assert "future" in table
    assert "error" not in table


async def test_pausing_and_resuming_say_what_holds_now(desk, run):
    assert (await told(run, "pause", QUEUE))["paused"] is True
    assert (await told(run, "queues", QUEUE))["paused"] is True
    assert (await told(run, "resume", QUEUE))["paused"] is False


async def test_jobs_of_a_queue_are_listed_whatever_their_number(desk, run):
    jobs = [await desk.enqueue(due="2030-01-01T00:00:00Z") for _ in range(3)]
    listed = (await run("jobs", QUEUE, "--json")).stdout.splitlines()
    assert {json.loads(line)["reference"] for line in listed} == {str(job.reference) for job in jobs}
    assert len((await run("jobs", QUEUE, "--limit", "2", "--json")).stdout.splitlines()) == 2
    assert str(jobs[0].reference) in (await run("jobs", QUEUE)).stdout, "a table may not cut what one has to copy"


async def test_markup_in_a_name_is_a_name(desk, run):
    """What people store under is theirs; a table that reads it as colours shows something else."""
    await desk.redis.zadd(desk.keys.queue(QUEUE).dead, {"[red]boo[/red] \x1b[31m": 1})
    assert "[red]boo[/red]" in (await run("dead", "list", QUEUE)).stdout


# ---- dead jobs -------------------------------------------------------------------------------------------------------


async def test_the_dead_are_listed_revived_and_purged(desk, run):
    first, second, third = await bury(desk, 3)
    listed = [json.loads(line) for line in (await run("dead", "list", QUEUE, "--json")).stdout.splitlines()]
    assert [each["reference"] for each in listed] == [first, second, third]
    assert "payload_missing" in (await run("dead", "list", QUEUE)).stdout
    assert (await run("dead", "list", QUEUE, "--reason", "lease_expired", "--json")).stdout == ""
    assert await told(run, "dead", "revive", QUEUE, first) == {"done": 1, "left": 0}
    assert await told(run, "dead", "purge", QUEUE, second, third) == {"done": 2, "left": 0}
    assert [str(job) for job in await desk.delayed()] == [first]


async def test_many_are_done_in_bounded_calls_to_the_last(desk, run):
    await bury(desk, 2500)
    kept = await bury(desk, 1, "payload_corrupt")
    assert await told(run, "dead", "purge", QUEUE, "--reason", "payload_missing", "--yes") == {"done": 2500, "left": 0}
    assert await desk.redis.zrange(desk.keys.queue(QUEUE).dead, 0, -1) == [kept[0].encode()]


async def test_a_limit_is_kept(desk, run):
    await bury(desk, 5)
    assert await told(run, "dead", "revive", QUEUE, "--all", "--limit", "2") == {"done": 2, "left": 3}


async def test_a_reason_that_there_is_not_is_told_with_those_there_are(desk, run):
    """Nothing died of it, which looks like success."""
    await bury(desk, 1)
    result = await run("dead", "revive", QUEUE, "--reason", "failed")
    assert "'failed' is no reason" in result.stderr
    assert "attempts_exhausted" in result.stderr
    assert (await run("dead", "revive", QUEUE, "--reason", "worker_died")).stderr == ""


async def test_what_was_not_dead_is_a_failure(desk, run):
    """A script that purges by reference must notice that it named the wrong ones."""
    [reference] = await bury(desk, 1)
    result = await run("dead", "purge", QUEUE, reference, NOBODY, code=Exit.FAILED)
    assert "1 of these were not dead" in result.stderr
    assert await number_of_dead(desk) == 0


@pytest.mark.parametrize(
    "arguments",
    [(), ("--all", "--reason", "x"), (NOBODY, "--all"), (NOBODY, "--limit", "1"), ("--all",)],
    ids=["none", "all-and-reason", "named-and-all", "named-and-limit", "not-asked"],
)
async def test_purging_needs_to_be_told_what_and_nobody_guesses(desk, run, arguments):
    """Nor is anything purged that somebody was to be asked about, when nobody is there."""
    await bury(desk, 2)
    await run("dead", "purge", QUEUE, *arguments, code=Exit.MISUSED)
    assert await number_of_dead(desk) == 2


# ---- exit codes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("queues",), Exit.DONE),
        (("job", NOBODY), Exit.FAILED),
        (("cancel", NOBODY), Exit.FAILED),
        (("job", "no reference"), Exit.MISUSED),
        (("queues", "a::b"), Exit.MISUSED),
        (("queues", "../../metrics"), Exit.MISUSED),
        (("reschedule", NOBODY), Exit.MISUSED),
        (("reschedule", NOBODY, "--delay", "30"), Exit.MISUSED),
        (("enqueue", "--queue", QUEUE), Exit.MISUSED),
        (("enqueue", "--queue", QUEUE, "/no/such/file"), Exit.MISUSED),
        (("enqueue",), Exit.MISUSED),
        (("queues", "--limit", "0"), Exit.MISUSED),
        (("queues", "--url", f"http://{HOST}:1"), Exit.LATER),
        (("queues", "--url", "gopher://x"), Exit.MISUSED),
        (("queues", "--url", "nonsense"), Exit.MISUSED),
        (("no-such-command",), Exit.MISUSED),
    ],
    ids=lambda it: " ".join(it) if isinstance(it, tuple) else it.name,
)
async def test_the_exit_code_says_what_to_do(run, arguments, code):
    await run(*arguments, code=code)


async def test_exit_codes_are_documented_where_people_look(run):
    text = " ".join((await run("--help", COLUMNS="200")).stdout.replace("│", " ").split())
    for code in Exit:
        assert f"{code.value} " in text.partition("Exit codes:")[2], code


async def test_what_is_away_can_be_tried_again_later(desk, run, monkeypatch):
    """With the reason and the time, for people; with the problem as the service told it, for machines."""

    async def away(_: Reference) -> None:
        raise StorageUnavailable("down")

    desk.store.before = away
    result = await run("enqueue", "--queue", QUEUE, "--delay", "1h", stdin=LARGE * 4, code=Exit.LATER)
    assert "Try again in" in result.stderr
    problem = await told(run, "enqueue", "--queue", QUEUE, "--delay", "1h", stdin=LARGE * 4, code=Exit.LATER)
    assert problem["type"] == "urn:coatcheck:backend-unavailable"


async def test_another_server_at_the_address_is_no_success(run):
    """A typing error in the port must not look like an empty queue."""

    async def other(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/html")]})
        await send({"type": "http.response.body", "body": b"<html>Hello</html>"})

    async with served(other) as port:
        result = await run("queues", QUEUE, "--url", f"http://{HOST}:{port}", code=Exit.FAILED)
    assert "does not answer as Coatcheck does" in result.stderr


async def test_a_service_that_is_not_there_is_told_for_machines_too(run):
    problem = await told(run, "queues", "--url", f"http://{HOST}:{free_port()}", code=Exit.LATER)
    assert problem["title"] == "Away"
