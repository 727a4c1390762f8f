"""What the README tells people to type is typed: in its order, by the shell or by Python, before a service of its own.

The service is the one that its section "Deploy" starts. Only addresses, the bucket and REFERENCE are exchanged.
"""

import asyncio
import json
import os
import re
import shutil
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest
from redis.asyncio import Redis

from service.child import HOST, Child, free_port
from service.keys import Keys
from tests.kit.s3_servers import ENVIRONMENT, S3Server
from tests.kit.servers import kind
from tests.kit.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
QUEUE = "emails"
#: What takes minutes or another machine: tests/house sees that it is there, other tests and CI run it.
ELSEWHERE = ("./ops/", "docker ")


@dataclass(frozen=True)
class Block:
    """One fenced piece of the README."""

    section: str
    language: str
    text: str

    @property
    def is_run_here(self) -> bool:
        return self.language in {"sh", "python"} and not self.text.startswith(ELSEWHERE)


def _blocks() -> list[Block]:
    found, section = [], ""
    for piece in re.finditer(r"^## ([^\n]+)$|^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL):
        section = piece[1] or section
        if piece[2]:
            found.append(Block(section, piece[2], piece[3]))
    return found


BLOCKS = _blocks()
(DEPLOY,) = [block for block in BLOCKS if "coatcheck serve" in block.text]
(CONSUMER,) = [block for block in BLOCKS if "r.blmove" in block.text]
(READER,) = [block for block in BLOCKS if "r.xreadgroup" in block.text]
(HANDLERS,) = [block for block in BLOCKS if "@worker.task" in block.text]
(WORKER,) = [block for block in BLOCKS if "coatcheck worker" in block.text]
(TASK,) = [block for block in BLOCKS if block.language == "python" and "enqueue_task" in block.text]
(POSTED,) = [block for block in BLOCKS if block.language == "sh" and '"task"' in block.text]
TYPED = [block for block in BLOCKS if block.is_run_here and block not in (DEPLOY, CONSUMER, READER, HANDLERS, WORKER)]


class Desk:
    """A newcomer's checkout and shell, with the service that they started."""

    def __init__(self, folder: Path, redis_url: str, store: S3Server) -> None:
        self.port, self.redis_url, self.bucket = free_port(), redis_url, store.new_bucket()
        self.url = f"http://{HOST}:{self.port}"
        self.folder = folder
        (folder / ".venv").mkdir()
        (folder / ".venv/bin").symlink_to(Path(sys.executable).parent)
        (folder / "README.md").symlink_to(ROOT / "README.md")
        (folder / ".curlrc").write_text("fail\nsilent\nshow-error\n")  # a refusal is an exit code, too
        self.reference = ""
        self.environ = {
            **ENVIRONMENT,
            **dict.fromkeys(("HOME", "CURL_HOME"), str(folder)),
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "COATCHECK_URL": self.url,
            "COATCHECK_REDIS__URL": redis_url,
        }
        #: What the machine of the one who deploys differs in.
        self.surroundings = {
            "COATCHECK_HTTP__PORT": str(self.port),
            "COATCHECK_BACKENDS__S3__ENDPOINT_URL": store.url,
            "COATCHECK_BACKENDS__S3__REGION": "us-east-1",
            "COATCHECK_BACKENDS__S3__ADDRESSING": "path",
        }

    def mapped(self, text: str) -> str:
        for theirs, ours in (
            ("http://127.0.0.1:8080", self.url),
            ("redis://localhost:6379/0", self.redis_url),
            ("my-payloads", self.bucket),
            ("REFERENCE", f"'{self.reference}'"),
        ):
            text = text.replace(theirs, ours)
        return text

    def command(self, block: Block) -> list[str]:
        text = self.mapped(block.text)
        return (
            [sys.executable, "-u", "-c", text]
            if block.language == "python"
            else ["bash", "-euo", "pipefail", "-c", text]
        )

    async def typed(self, block: Block) -> str:
        """What it printed. Fails unless it exits 0."""
        process = await asyncio.create_subprocess_exec(
            *self.command(block), cwd=self.folder, env=self.environ, stdout=PIPE, stderr=STDOUT
        )
        try:
            async with asyncio.timeout(60):
                output = (await process.communicate())[0].decode()
        except TimeoutError:
            process.kill()
            await process.wait()
            pytest.fail(f"it does not end: {block.text}")
        assert process.returncode == 0, f"{block.text}\n{output}"
        return output

    async def accepted(self, delay: str, queue: str = QUEUE) -> str:
        """The reference of a small job."""
        async with httpx.AsyncClient(base_url=self.url) as http:
            answer = await http.post(f"/v1/queues/{queue}/jobs", params={"delay": delay}, content=b"hello")
        assert answer.status_code == 201, answer.text
        return str(answer.json()["reference"])


@asynccontextmanager
async def deployed(desk: Desk) -> AsyncIterator[Child]:
    """The service, as the README starts it. It must end as the README says."""
    command = desk.mapped(DEPLOY.text).replace(
        ".venv/bin/coatcheck", "exec .venv/bin/coatcheck"
    )  # its signals, not bash's
    service = Child(["/bin/bash", "-c", command], cwd=desk.folder, environ={**desk.environ, **desk.surroundings})

    async def ready() -> bool:
        assert service.running, service.output()
        async with httpx.AsyncClient(base_url=desk.url) as http:
            try:
                return bool((await http.get("/readyz")).json() == {"status": "ready", "backends": {"s3": "ok"}})
            except httpx.TransportError:
                return False

    try:
        await eventually(ready, 60, "the service is ready")
        yield service
        os.kill(service.pid, signal.SIGTERM)
        assert await asyncio.to_thread(service.wait, 25) == 0, service.output()  # DISPATCHER__GRACE + 5 s
    finally:
        service.close()


@pytest.fixture
async def desk(tmp_path: Path, redis_url: str, s3_server: S3Server) -> Desk:
    for tool in ("bash", "curl", "redis-cli"):
        if shutil.which(tool) is None and not (
            os.environ.get("CI") and kind() == "redis-server"
        ):  # .ci/run installs them
            pytest.skip(f"{tool} is not installed")
    return Desk(tmp_path, redis_url, s3_server)


async def test_whoever_types_the_readme_from_top_to_bottom_gets_no_error(desk: Desk, redis_client: Redis) -> None:
    """It is the first thing that people do, and what fails there is the last."""
    of = Keys().queue(QUEUE)
    said = {}
    async with deployed(desk), consuming(desk, redis_client):
        await _lists_every_call(desk)
        for block in TYPED:
            await desk.accepted("0s")  # for whoever pops
            desk.reference = await desk.accepted("1h")
            said[block] = await desk.typed(block)
            if block.language == "python":
                assert await redis_client.zcard(of.delayed) > 0
        told = "\n".join(said.values())
        assert "s3_acme" in told, "the route for the tenant with a bucket of its own"
        assert "Jobs accepted: 2, refused: 0" in told
        assert f"coatcheck:{{{QUEUE}}}:ready" in told
        _as_shown(next(output for block, output in said.items() if "/jobs?delay=5s" in block.text))


async def test_the_worker_of_the_readme_does_the_task_of_the_readme(desk: Desk) -> None:
    (desk.folder / "tasks.py").write_text(HANDLERS.text)
    command = desk.mapped(WORKER.text).replace(".venv/bin/coatcheck", "exec .venv/bin/coatcheck")
    command = command.replace("PORT=8081", f"PORT={free_port()}")
    async with deployed(desk):
        worker = Child(["/bin/bash", "-c", command], cwd=desk.folder, environ=desk.environ)
        try:
            await desk.typed(TASK)
            await desk.typed(POSTED)
            await eventually(
                lambda: worker.output(2**20).count("sent to me@example.org as ") == 2, 30, "the tasks are done"
            )
            assert "sent to me@example.org as welcome-8" in worker.output(2**20)
            os.kill(worker.pid, signal.SIGTERM)
            assert await asyncio.to_thread(worker.wait, 25) == 0, worker.output()
        finally:
            worker.close()


async def test_the_stream_consumer_of_the_readme_takes_up_what_it_left_and_leaves_nothing(
    desk: Desk, redis_client: Redis
) -> None:
    ready = Keys(streams={"orders": "coatcheck"}).queue("orders").ready

    async def reading() -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(*desk.command(READER), env=desk.environ, stdout=PIPE)

    await redis_client.xadd(ready, {"payload": b"left behind"})
    await redis_client.xgroup_create(ready, "coatcheck", "0")
    await redis_client.xreadgroup("coatcheck", "consumer-1", {ready: ">"})
    desk.surroundings["COATCHECK_QUEUES__ORDERS__READY_KIND"] = "stream"
    async with deployed(desk):
        process = await reading()
        assert process.stdout is not None
        try:
            await desk.accepted("0s", "orders")
            async with asyncio.timeout(30):
                assert await process.stdout.readline() == b"left behind\n"
                assert await process.stdout.readline() == b"hello\n"

            async def nothing() -> bool:
                return not await redis_client.xlen(ready)

            await eventually(nothing, described="what was handled is gone")
            assert process.returncode is None
        finally:
            process.kill()
            await process.communicate()


async def _lists_every_call(desk: Desk) -> None:
    """The README's table of calls, abbreviated as it is, holds what /openapi.json does and nothing else."""
    async with httpx.AsyncClient(base_url=desk.url) as http:
        described = (await http.get("/openapi.json")).json()["paths"]
    there = {(method.upper(), path) for path, methods in described.items() for method in methods}
    rows = re.findall(r"^\| (`(?:[A-Z]+ )?/\S.*?) \|", README, re.MULTILINE)
    told = set()
    for row in rows:
        method = "GET"
        for named, end in re.findall(r"`(?:([A-Z]+) )?[…]?(/[^`?]*)", row):
            method = named or method
            told.add((method, end))
    assert not [each for each in told if not any(_is(each, call) for call in there)], "no such call"
    assert not [call for call in there if not any(_is(each, call) for each in told)], "not in the table"


def _is(told: tuple[str, str], call: tuple[str, str]) -> bool:
    return told[0] == call[0] and call[1].endswith(told[1])


def _as_shown(answer: str) -> None:
    """The one answer that the README shows."""
    (shown,) = (json.loads(block.text) for block in BLOCKS if block.language == "json")
    got = json.loads(answer)
    for name, text in shown.items():
        assert re.fullmatch(re.escape(text).replace("…", ".+"), got.pop(name)), name
    assert got == {}


@asynccontextmanager
async def consuming(desk: Desk, redis: Redis) -> AsyncIterator[None]:
    """The consumer that works at least once, of another queue, idle meanwhile; then there is a job for it, too."""
    text = CONSUMER.text.replace("emails", "letters")
    process = await asyncio.create_subprocess_exec(
        *desk.command(replace(CONSUMER, text=text)), env=desk.environ, stdout=PIPE
    )
    assert process.stdout is not None
    try:
        yield
        await desk.accepted("0s", "letters")
        async with asyncio.timeout(30):
            assert await process.stdout.readline() == b"hello\n"

        async def finished() -> bool:
            return not await redis.exists("letters:working", Keys().queue("letters").ready)

        await eventually(finished, described="what was handled is gone")
        assert process.returncode is None
    finally:
        process.kill()
        await process.communicate()


@pytest.mark.parametrize("language", ["sh", "python"])
def test_every_kind_of_block_was_found(language: str) -> None:
    """Were the pattern wrong, everything above would pass, and try nothing."""
    assert len([block for block in TYPED if block.language == language]) >= 2
    assert {block.language for block in BLOCKS} <= {"sh", "python", "json"}, "who runs the others?"
