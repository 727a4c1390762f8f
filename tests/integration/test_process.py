"""The life of a process: how it starts, how it does not, how it ends. By what the shell sees: exit codes and stderr."""

import asyncio
import json
import os
import re
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from service.child import HOST, free_port
from service.embedded import RedisServer
from tests.kit.processes import Process, running
from tests.kit.proxy import Proxy
from tests.kit.s3_servers import ENVIRONMENT, S3Server, running_moto
from tests.kit.site import QUEUE, Site, accepted, consuming, payload
from tests.kit.waiting import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc, and PDEATHSIG is Linux's")


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with running_moto(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
async def site(redis_url: str, moto: S3Server) -> AsyncIterator[Site]:
    made = Site(redis_url, moto, moto.new_bucket())
    yield made
    await made.redis.aclose()


# ---- it does not start -----------------------------------------------------------------------------------------------


async def refused(environ: dict[str, str], code: int) -> str:
    """What it says when it does not start."""
    with running(environ) as process:
        assert await process.ended(within_s=30) == code, process.log
        assert "Traceback" not in process.log
        return process.log


async def test_wrong_settings_are_listed_all_at_once(site: Site) -> None:
    """A deployment that is mended one mistake at a time is started five times."""
    environ = site.environ(DISPATCHER__BATCH="0", DISPATCHER__LEASE="5", ROUTING__OFLOAD_TO="s3")
    said = await refused(environ, code=2)
    for name in ("COATCHECK_DISPATCHER__BATCH", "COATCHECK_DISPATCHER__LEASE", "COATCHECK_ROUTING__OFLOAD_TO"):
        assert name in said
    assert "ROUTING__OFFLOAD_TO" in said  # the nearest right one


async def test_a_port_that_is_taken_is_a_reason(site: Site) -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        said = await refused(site.environ(HTTP__PORT=str(port)), code=1)
        assert f"cannot listen on {HOST}:{port}" in said
        assert "COATCHECK_HTTP__PORT" in said


async def test_a_bucket_that_does_not_exist_is_a_reason(site: Site) -> None:
    """Everything else about S3 may mend itself; this is a typing mistake."""
    said = await refused(site.environ(BACKENDS__S3__BUCKET="no-such-bucket"), code=1)
    assert "there is no bucket 'no-such-bucket'" in said


async def test_a_redis_that_evicts_is_a_reason(own_redis: Callable[..., RedisServer], moto: S3Server) -> None:
    """It would throw jobs away without a word."""
    server = own_redis(maxmemory_policy="allkeys-lru")
    environ = Site(server.url, moto, moto.new_bucket()).environ()
    said = await refused(environ, code=1)
    assert "maxmemory-policy is allkeys-lru" in said
    assert "COATCHECK_REDIS__ALLOW_EVICTION" in said
    with running({**environ, "COATCHECK_REDIS__ALLOW_EVICTION": "true"}) as allowed:
        await allowed.is_ready()


# ---- it waits --------------------------------------------------------------------------------------------------------


async def test_without_redis_it_waits_alive_and_says_so(moto: S3Server, tmp_path: Path) -> None:
    """A restart loop would not bring Redis back sooner; and its orchestrator must not send it traffic."""
    from tests.kit.servers import redis_server

    server = redis_server(tmp_path)
    server.port = free_port()
    site = Site(server.url, moto, moto.new_bucket())
    with running(site.environ()) as process:
        await process.answers("/healthz")
        said = await process.answers("/readyz", 503)
        assert any("Redis" in reason for reason in said["reasons"])
        async with httpx.AsyncClient(base_url=process.url) as http:
            answer = await http.post(f"/v1/queues/{QUEUE}/jobs", params={"delay": "0s"}, content=b"1:early")
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:coatcheck:redis-unavailable")
        assert "Retry-After" in answer.headers
        try:
            server.start()
            await process.is_ready()
            assert await process.metric("redis_up") == 1
            async with consuming(site) as consumer:
                await _sent(process, 2)
                await consumer.has(1, within_s=10)
                consumer.exactly([2])
        finally:
            server.stop()
    await site.redis.aclose()


async def test_without_s3_it_starts_and_hands_over_what_needs_no_s3(site: Site) -> None:
    """Its breaker is open from the beginning; it mends itself when S3 appears."""
    async with Proxy(site.store.port) as s3:
        await s3.refuse()
        environ = site.environ(s3_url=s3.http_url, BREAKER__OPEN="1s", BACKENDS__S3__TIMEOUT="1s")
        with running(environ) as process:
            await process.is_ready()
            assert (await process.answers("/readyz"))["backends"]["s3"] == "breaker open"
            async with consuming(site) as consumer:
                assert await _sent(process, 1) == ("redis", "small_and_short")
                assert await _sent(process, 2, offloaded=True) == ("redis", "fallback")
                await consumer.has(2, within_s=10)
                await s3.heal()
                await eventually(lambda: _state(process, "s3", "ok"), 20, "the breaker is closed")
                assert await _sent(process, 3, offloaded=True) == ("s3", "large")
                await consumer.has(3, within_s=10)
                consumer.exactly([1, 2, 3])


async def _sent(process: Process, number: int, *, offloaded: bool = False) -> tuple[str, str]:
    """A job, due now: where its payload was kept, and why."""
    async with httpx.AsyncClient(base_url=process.url) as http:
        body = payload(number, offloaded=offloaded)
        answer = await http.post(f"/v1/queues/{QUEUE}/jobs", params={"delay": "0s"}, content=body)
        assert answer.status_code == 201, answer.text
        return answer.json()["backend"], answer.json()["reason"]


async def _state(process: Process, backend: str, state: str) -> bool:
    return bool((await process.answers("/readyz"))["backends"][backend] == state)


async def test_a_bucket_of_another_installation_is_shown_and_no_reason_to_stand_still(site: Site) -> None:
    """Deliveries are safe there; what sweeps is not, and people have to know."""
    marker = "v1/s3/INSTALLATION"
    other = "0193f2a4-7c1e-7b3a-9d57-6f0a1c2b3d4e"
    site.store.client.put_object(Bucket=site.bucket, Key=marker, Body=other.encode())
    with running(site.environ()) as process:
        said = await process.answers("/readyz")
        assert said["backends"]["s3"] == f"owned by another installation: {other}"
        assert await process.metric("ownership_mismatch", backend="s3") == 1
        assert "another installation owns" in process.log


# ---- it ends ---------------------------------------------------------------------------------------------------------


async def test_at_sigterm_jobs_in_hand_go_back_at_once(site: Site) -> None:
    """A deployment must not hold up jobs for the length of a lease: here a minute, of which nobody waits for any."""
    lease = {"DISPATCHER__LEASE": "60s", "DISPATCHER__FETCH_TIMEOUT": "30s", "BACKENDS__S3__TIMEOUT": "30s"}
    numbers = range(10)
    async with Proxy(site.store.port) as s3, site.producing() as service, consuming(site) as consumer:
        environ = site.environ(s3_url=s3.http_url, DISPATCHER__GRACE="1s", **lease)
        with running(environ, "dispatcher") as leaving, running(site.environ(**lease), "dispatcher") as staying:
            await staying.is_ready()
            staying.stall()
            await leaving.is_ready()
            s3.hold()
            await accepted(service, {number: payload(number, offloaded=True) for number in numbers})
            await eventually(lambda: _leases(site, len(numbers)), 20, "all jobs are in its hands")
            leaving.send(signal.SIGTERM)
            await eventually(lambda: _leases(site, 0), 10, "they were given back")
            staying.go_on()
            await consumer.has(len(numbers), within_s=20)
            await s3.heal()
            assert await leaving.ended() == 0, leaving.log
            await site.nothing_left()
            consumer.exactly(numbers)
            assert await staying.metric("jobs_total", outcome="expired") == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_with_exit_code_0(site: Site, number: signal.Signals) -> None:
    """Anything else is an alarm somewhere, at each deployment."""
    with running(site.environ()) as process:
        await process.is_ready()
        assert await process.stopped(number) == 0, process.log
        assert "Traceback" not in process.log


@pytest.mark.parametrize("grace_s", [0, 2])
async def test_a_stop_ends_soon_after_the_grace_period_whatever_hangs(site: Site, grace_s: int) -> None:
    """Who started it kills it then, and what it holds would not be given back: here S3 hangs in fetches and in an
    upload whose client still waits."""
    patience = {"DISPATCHER__FETCH_TIMEOUT": "30s", "BACKENDS__S3__TIMEOUT": "60s", "DISPATCHER__LEASE": "5m"}
    async with Proxy(site.store.port) as s3, site.producing() as service:
        with running(site.environ(s3_url=s3.http_url, DISPATCHER__GRACE=f"{grace_s}s", **patience)) as process:
            await process.is_ready()
            s3.hold()
            await accepted(service, {number: payload(number, offloaded=True) for number in range(4)})
            await eventually(lambda: _leases(site, 4), 20, "jobs are in its hands")
            connections = s3.connections
            upload = asyncio.create_task(_sent(process, 9, offloaded=True))
            await eventually(lambda: s3.connections > connections, 20, "an upload is under way")
            began_s = time.monotonic()
            assert await process.stopped(signal.SIGTERM) == 0, process.log
            took_s = time.monotonic() - began_s
            await asyncio.gather(upload, return_exceptions=True)
            assert took_s < grace_s + 5, process.log
            await _leases(site, 0)
        await s3.heal()


async def test_a_signal_ends_it_also_while_it_waits_for_redis(site: Site) -> None:
    with running(site.environ(redis_url=f"redis://{HOST}:{free_port()}/0")) as process:
        await process.answers("/healthz")
        assert await process.stopped(signal.SIGTERM, within_s=10) == 0, process.log


async def test_a_port_that_it_took_itself_is_in_its_log(site: Site) -> None:
    """Several workers of one machine each take a free one; who scrapes them reads here which."""
    with running(site.environ(HTTP__PORT="0")) as process:
        await eventually(lambda: '"event": "listening"' in process.log, 20, "it listens")
        (told,) = [line for line in process.log.splitlines() if '"event": "listening"' in line]
        async with httpx.AsyncClient() as http:
            assert (await http.get(f"http://{HOST}:{json.loads(told)['port']}/healthz")).status_code == 200


# ---- `coatcheck dev` -------------------------------------------------------------------------------------------------


@contextmanager
def development(folder: Path) -> Iterator[Process]:
    port = free_port()
    process = Process({"TMPDIR": str(folder), "HOME": str(folder)}, "dev", "--port", str(port), port=port, cwd=folder)
    try:
        yield process
    finally:
        process.child.close()


def descendants(pid: int) -> set[int]:
    """Processes that this one has started, and theirs."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {each for child in map(int, children) for each in (child, *descendants(child))}


def alive(pids: set[int]) -> set[int]:
    return {pid for pid in pids if _lives(pid)}


def _lives(pid: int) -> bool:
    try:
        return re.search(r"^State:\s+[^ZX]", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE) is not None
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_stopped_dev_leaves_no_process_and_no_file(tmp_path: Path, number: signal.Signals) -> None:
    """It is what people try first, often, and stop by Ctrl-C."""
    with development(tmp_path) as dev:
        await dev.is_ready()
        servers = descendants(dev.child.pid)
        assert len(servers) == 2, "Valkey and S3"
        assert await dev.stopped(number) == 0, dev.log
        assert not alive(servers)
        assert os.listdir(tmp_path) == []


async def test_a_killed_dev_leaves_no_server(tmp_path: Path) -> None:
    """Nobody would look for a Valkey that an editor's terminal left behind."""
    with development(tmp_path) as dev:
        await dev.is_ready()
        servers = descendants(dev.child.pid)
        assert len(servers) == 2
        os.kill(dev.child.pid, signal.SIGKILL)
        await eventually(lambda: not alive(servers), 10, "its servers are gone, too")


async def _leases(site: Site, count: int) -> bool:
    found = await site.count("leases")
    assert found == count, f"{found} leases"
    return True
