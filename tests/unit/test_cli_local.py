"""What the command line can do without a service: explain routing and settings, help, complete; and start quickly."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from typer.testing import CliRunner

from service.cli import app, show
from service.cli.exits import Exit
from tests.kit.settings import named_file

S3 = {"COATCHECK_BACKENDS__S3__BUCKET": "payloads", "COATCHECK_ROUTING__OFFLOAD_TO": "s3"}
COMMANDS = {"serve", "dev", "enqueue", "job", "cancel", "reschedule", "queues", "jobs", "pause", "resume", "route",
            "config", "dead", "advise"}  # fmt: skip


def run(*arguments: str, code: Exit = Exit.DONE, **environ: str) -> Any:
    result = CliRunner().invoke(app, arguments, env={"COATCHECK_TEST_REDIS": None, **environ})
    assert result.exit_code == code, result.output
    return result


def told(*arguments: str, code: Exit = Exit.DONE, **environ: str) -> Any:
    return json.loads(run(*arguments, "--json", code=code, **environ).stdout)


def python(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("COATCHECK_")}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env={**clean, **environ}, check=False, timeout=60
    )


# ---- route -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "backend", "reason"),
    [
        (("--size", "100"), "redis", "tiny"),
        (("--size", "1MiB"), "s3", "large"),
        (("--size", "1KiB", "--delay", "1h"), "s3", "long"),
        (("--size", "1KiB", "--delay", "1m"), "redis", "small_and_short"),
        (("--size", "20KiB", "--without", "s3"), "redis", "fallback"),
    ],
    ids=lambda it: " ".join(it) if isinstance(it, tuple) else it,
)
def test_route_decides_as_the_service_does(arguments, backend, reason):
    answer = told("route", "--queue", "emails", *arguments, **S3)
    assert (answer["backend"], answer["reason"]) == (backend, reason)
    assert answer["rule"]


@pytest.mark.parametrize("more", [("--size", "1MiB"), ("--size", "20KiB", "--redis-memory", "0.9")])
def test_route_says_when_a_job_would_be_refused(more):
    answer = told("route", "--queue", "emails", "--without", "s3", *more, code=Exit.FAILED, **S3)
    assert (answer["backend"], answer["reason"]) == (None, "refused")


def test_route_names_the_source_of_each_value(tmp_path):
    """Who wonders why a job went to S3 has to know where to change it."""
    environ = named_file(
        tmp_path, '[queues."acme:mail"]\noffload_min_bytes = 10\n[tenants.acme]\ninline_max_bytes = 5\n'
    )
    environ |= S3 | {"COATCHECK_ROUTING__INLINE_MAX_DELAY": "1h"}
    answer = told("route", "--queue", "acme:mail", "--tenant", "acme", "--size", "20", **environ)
    assert (answer["backend"], answer["reason"]) == ("s3", "large")
    where = {it["name"]: (it["value"], it["set_for"], it["source"], it["setting"]) for it in answer["settings"]}
    assert where["inline_max_bytes"][:3] == (5, "tenant", "file")
    assert where["offload_min_bytes"][:3] == (10, "queue", "file")
    assert "acme:mail" in where["offload_min_bytes"][3]
    assert where["inline_max_delay"] == ("1h", "default", "environment", "COATCHECK_ROUTING__INLINE_MAX_DELAY")
    assert where["fallback_max_bytes"] == (65536, "default", "default", "COATCHECK_ROUTING__FALLBACK_MAX_BYTES")


@pytest.mark.parametrize(
    "arguments",
    [("--size", "1KB"), ("--delay", "30"), ("--queue", "a::b"), ("--tenant", "No Tenant"), ("--redis-memory", "-1")],
    ids=" ".join,
)
def test_route_refuses_what_the_service_would_not_understand(arguments):
    run("route", "--queue", "emails", *arguments, code=Exit.MISUSED, **S3)


def test_route_shows_people_the_rule():
    shown = run("route", "--queue", "emails", "--size", "1MiB", **S3).stdout
    assert "more than inline_max_bytes" in shown
    assert "COATCHECK_ROUTING__INLINE_MAX_BYTES" in shown


# ---- config ----------------------------------------------------------------------------------------------------------


def test_config_shows_values_sources_and_no_secret():
    """It is what people paste into a bug report."""
    environ = {"COATCHECK_REDIS__URL": "redis://user:hush@example.com:6379/0", "COATCHECK_RETRY__MAX_ATTEMPTS": "3"}
    result = run("config", "--json", **environ)
    assert "hush" not in result.output
    values = {row["name"]: (row["value"], row["source"]) for row in json.loads(result.stdout)}
    assert values["COATCHECK_REDIS__URL"] == ("redis://user:***@example.com:6379/0", "environment")
    assert values["COATCHECK_RETRY__MAX_ATTEMPTS"] == ("3", "environment")
    assert values["COATCHECK_BREAKER__OPEN"] == ("30s", "default")
    assert "hush" not in run("config", **environ).output


def test_config_can_be_narrowed():
    environ = {"COATCHECK_RETRY__MAX_ATTEMPTS": "3"}
    assert [row["name"] for row in told("config", "max_attempts", **environ)] == ["COATCHECK_RETRY__MAX_ATTEMPTS"]
    assert [row["name"] for row in told("config", "--given", **environ)] == ["COATCHECK_RETRY__MAX_ATTEMPTS"]


@pytest.mark.parametrize("command", [("config",), ("route", "--queue", "emails"), ("serve",), ("queues",)])
def test_all_mistakes_in_settings_are_shown_at_once(command):
    """Whoever fixes one, restarts, and finds the next, has lost the evening."""
    environ = {"COATCHECK_RETRY__MAX_ATTEMPTS": "many", "COATCHECK_DISPATCHER__LAESE": "60s"}
    result = run(*command, code=Exit.MISUSED, **environ)
    assert "COATCHECK_RETRY__MAX_ATTEMPTS" in result.stderr
    assert "COATCHECK_DISPATCHER__LEASE" in result.stderr


# ---- help, completion, start -----------------------------------------------------------------------------------------


def test_help_lists_every_command():
    shown = run("--help").stdout
    assert {name for name in COMMANDS if f" {name} " not in shown} == set()


def test_the_version_is_that_of_the_package():
    from importlib.metadata import version

    assert run("--version").stdout == f"coatcheck {version('coatcheck')}\n"


def commands(prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    import typer.main

    group: Any = typer.main.get_command(app)
    for name in prefix:
        group = group.commands[name]
    found = []
    for name, command in group.commands.items():
        found += commands((*prefix, name)) if hasattr(command, "commands") else [(*prefix, name)]
    return found


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_every_command_has_help_and_all_but_the_services_own_have_json(command):
    shown = run(*command, "--help", COLUMNS="200").stdout
    assert ("--json" in shown) == (command not in [("serve",), ("dev",), ("worker",)])


def test_help_loads_nothing_that_is_slow_to_load():
    """People ask for help and complete with the tab key: half a second of imports each time is felt."""
    slow = {"boto3", "botocore", "fastapi", "starlette", "redis", "httpx", "pydantic", "uvicorn", "service.settings"}
    code = f"""
import sys
from service.cli import app, show
try:
    app(["--help"])
finally:
    print("loaded", sorted({slow!r} & set(sys.modules)))
"""
    assert "loaded []" in python("-c", code).stdout


def test_the_module_runs_as_the_command_does():
    result = python("-m", "service.cli", "config", "--json", "url")
    assert (result.returncode, json.loads(result.stdout)[0]["name"]) == (0, "COATCHECK_URL")


def test_the_shell_can_complete():
    """As bash asks: which commands begin with `de`?"""
    environ = {"_COATCHECK_COMPLETE": "complete_bash", "COMP_WORDS": "coatcheck de", "COMP_CWORD": "1"}
    result = python("-c", "import sys; sys.argv[0] = 'coatcheck'; from service.cli import main; main()", **environ)
    assert result.stdout.split() == ["dev", "dead"]


@pytest.mark.parametrize(
    ("terminal", "quiet", "seen"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_a_bar_is_for_people_who_look_at_a_terminal(monkeypatch, capsys, terminal, quiet, seen):
    """Standard error of a cron job is mail, and --json is for machines."""
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with show.progress("Sending", 3, quiet=quiet) as advance:
        for _ in range(3):
            advance(1)
    told = capsys.readouterr()
    assert ("Sending" in told.err) == seen
    assert told.out == ""
