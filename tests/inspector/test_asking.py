"""What inspect and advise say when Redis does not let them look: which Redis it was, why, and no secret."""

import asyncio
import io
import json
import os
import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from service.child import HOST
from service.cli import app, show
from service.cli.exits import Exit
from service.embedded import RedisServer
from tests.kit.processes import Process
from tests.kit.servers import client_of, running_redis
from tests.kit.waiting import eventually

pytestmark = pytest.mark.redis  #: by a server of its own

SECRET = "hunter2"
LOOKS = (("inspect",), ("advise",), ("inspect", "q", "1"), ("inspect", "--problems"))


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """One that is refused, hung and brought back, beside the one that all others look at."""
    with running_redis() as server:
        yield server


async def run(*arguments: str, code: Exit, **environ: str) -> Any:
    """The result; whatever was said, the secret was not."""
    more = {"COATCHECK_TEST_REDIS": None, "COLUMNS": "200", **environ}
    result = await asyncio.to_thread(CliRunner().invoke, app, list(arguments), env=more)
    assert result.exit_code == code, result.output
    assert SECRET not in result.output
    assert "Traceback" not in result.output
    return result


async def refused(url: str, code: Exit, *look: str, **environ: str) -> str:
    """What is said of it, which people and machines are told alike."""
    result = await run(*look, "--redis", url, code=code, **environ)
    [line] = (await run(*look, "--redis", url, "--json", code=code, **environ)).stdout.splitlines()
    assert result.stdout == ""
    told = json.loads(line)
    assert f"{told['title']}: {told['detail']}" in result.stderr
    return str(told["detail"])


@pytest.mark.parametrize("command", ["inspect", "advise"])
@pytest.mark.parametrize(
    "url",
    [
        "",
        f"redis://user:{SECRET}@host:port/0",
        f"redis://user:{SECRET}/x@host/0",
        f"redis://user:12/{SECRET}@host/0",
        f"redis://user:12?{SECRET}@host/0",
        f"redis://user:{SECRET}#x@host/0",
        f"redis://:{SECRET}@host:99999/0",
        f"redis://:{SECRET}@host/zero",
        f"redis://:{SECRET}@[::1/0",
        f"rediss://:{SECRET}@host/0?ssl_cert_reqs=whatever",
        "redis://host/0?protocol=3",
        "redis://host/0?decode_responses=true",
        "redis://host/0?timeout=x",
        "http://host",
    ],
)
async def test_a_url_that_cannot_be_is_misuse_and_is_not_quoted(command, url):
    """An empty one, mostly a variable that is not set, must not lead to another Redis than was meant."""
    result = await run(command, "--redis", url, code=Exit.MISUSED)
    assert "--redis" in result.stderr


@pytest.mark.parametrize(
    ("url", "why"),
    [
        (f"redis://:{SECRET}@{HOST}:1/0", f"{HOST}:1: nothing listens there"),
        (f"redis://:{SECRET}@no-such-host.invalid/0", "no-such-host.invalid:6379: "),
        (f"redis://:{SECRET}@{'a' * 300}/0", "no host of that name"),
        (f"unix:///no/such/socket?password={SECRET}", "/no/such/socket: there is no such file or socket"),
        (f"rediss://:{SECRET}@{HOST}:1/0?ssl_ca_certs=/no/such/file", "file"),
    ],
    ids=["port", "host", "long", "socket", "certificates"],
)
@pytest.mark.parametrize("look", LOOKS[:2], ids=" ".join)
async def test_which_redis_is_away_and_how_is_told_without_the_login(look, url, why):
    """Whoever is woken by this has several, and one of them is not what REDIS__URL says."""
    assert why in await refused(url, Exit.LATER, *look)


@pytest.mark.parametrize("look", LOOKS, ids=" ".join)
async def test_a_wrong_password_is_refused_for_good(look, server):
    """Trying again later helps nobody."""
    async with client_of(server.url) as admin:
        await admin.config_set("requirepass", "another")
        try:
            for login in ("", f":{SECRET}@", f"nobody:{SECRET}@"):
                told = await refused(f"redis://{login}{HOST}:{server.port}/0", Exit.FAILED, *look)
                assert f"{HOST}:{server.port}: it wants another user or password" in told
        finally:
            await admin.execute_command("AUTH", "another")
            await admin.config_set("requirepass", "")


@pytest.mark.parametrize("look", LOOKS, ids=" ".join)
async def test_a_redis_that_hangs_ends_a_look_in_time(look, server):
    """So does one that is no Redis, or wants TLS: it waits for what never comes."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        told = await refused(server.url, Exit.LATER, *look, COATCHECK_REDIS__TIMEOUT="200ms")
        assert "no answer within 0.2 s" in told
    finally:
        os.kill(server.pid, signal.SIGCONT)
    assert "no answer" in await refused(
        server.url.replace("redis://", "rediss://"), Exit.LATER, *look, COATCHECK_REDIS__TIMEOUT="200ms"
    )


async def test_what_is_no_redis_is_told_as_that(server):
    """A port off by one is another service's."""

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()  # until whoever asked has gone
        writer.close()

    async with await asyncio.start_server(greet, HOST, 0) as http:
        port = http.sockets[0].getsockname()[1]
        for look in LOOKS:
            assert "no Redis" in await refused(f"redis://{HOST}:{port}/0", Exit.LATER, *look)


async def test_watching_goes_on_while_redis_is_away(tmp_path):
    """That is when people watch; what they see is which moment it came back."""
    with running_redis() as server:
        process = Process({"COATCHECK_REDIS__URL": server.url}, "inspect", "--watch")
        try:
            await eventually(lambda: "No queue was found" in process.log, 60, "it has looked")
            server.stop()
            await eventually(lambda: "nothing listens there" in process.log, 60, "it has missed Redis")
            seen = process.log.count("No queue was found")
            server.start()
            await eventually(lambda: process.log.count("No queue was found") > seen, 60, "it has looked again")
            assert await process.stopped(signal.SIGINT) == Exit.INTERRUPTED
            assert "Traceback" not in process.log
        finally:
            process.child.close()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
@pytest.mark.parametrize("look", [*LOOKS[:2], ("inspect", "q"), ("inspect", "--problems")], ids=" ".join)
async def test_an_encoding_that_lacks_a_character_ends_no_look(server, look, encoding):
    """A container's locale is often C, and a box's line or an arrow none of its characters."""
    async with client_of(server.url) as admin:
        await admin.zadd("coatcheck:{q}:delayed", {"\u2192 nobody": 1})
        await admin.zadd(
            "schedule", {json.dumps({"class": "A", "args": ["x" * 20_000], "jid": n}): n for n in range(9)}
        )
        process = Process({"COATCHECK_REDIS__URL": server.url, "PYTHONIOENCODING": encoding}, *look)
        try:
            assert await process.ended() == Exit.DONE, process.log
        finally:
            process.child.close()
            await admin.flushall()


@pytest.mark.parametrize("columns", ["40", "80", "200"])
async def test_no_terminal_is_too_narrow_to_see_everything(columns, monkeypatch):
    """A column of one letter a line is read by nobody: one thing below another is."""
    written = io.StringIO()
    written.isatty = lambda: True  # type: ignore[method-assign]  # as a terminal would say
    monkeypatch.setattr("sys.stdout", written)
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    row = {"queue": "mail", "future": 12_345, "oldest_due": "2026-11-30 10:00:00.250 +0100 (2 d 4 h ago)"}
    more = {f"state{n}": n for n in range(8)}
    show.table([*row, *more], [row | more, row | more])
    text = re.sub(r"\x1b\[[0-9;]*m", "", written.getvalue())
    assert max(map(len, text.splitlines())) <= int(columns)
    for expected in ("mail", "12,345", "2026-11-30", "state7"):
        assert expected in text
    assert ("oldest due  2026" in text) == (columns != "200")


async def test_a_socket_is_a_place_like_any_other(tmp_path):
    """Redis beside an application often listens nowhere else."""
    with running_redis(unixsocket=tmp_path / "redis.sock", unixsocketperm="700"):
        for look in LOOKS:
            code = Exit.FAILED if "1" in look else Exit.DONE
            await run(*look, "--redis", f"unix://{tmp_path}/redis.sock?db=3", code=code)
