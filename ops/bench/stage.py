"""What a measure stands on: a redis-server and an S3 on loopback, and the service as it runs in production."""

import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import TypeVar

from redis.asyncio import Redis

from service.child import HOST, Child, free_port
from service.clock import ServerClock, SystemClock
from service.embedded import RedisServer, S3Server, valkey_binary
from service.keys import Keys
from service.ledger import Ledger
from service.records import Entry
from service.scripts import Scripts
from service.settings import Settings, load
from service.transport import Transport, connect
from storage_backends.reference import Reference, new_uuid

T = TypeVar("T")

BUCKET = "bench"
_CREDENTIALS = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "not-a-secret"}
#: Filling is no part of what is measured; a script takes no more.
_FILL = 1000


@dataclass(frozen=True)
class Stage:
    """One bench run. Ours is in database 0, the bounds in database 1: each flushes only its own."""

    redis: RedisServer
    redis_kind: str
    s3_url: str
    runs: int  #: of ours and of the bound, alternating
    quick: bool
    told: Callable[[str], None] = field(repr=False)  #: progress, for people

    @property
    def bound_url(self) -> str:
        return self.redis.url.removesuffix("/0") + "/1"

    def scaled(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    def interleaved(self, ours: Callable[[], T], bound: Callable[[], T]) -> tuple[list[T], list[T]]:
        """Ours, bound, ours, bound, …: what else the machine does meanwhile hits both."""
        pairs = []
        for number in range(self.runs):
            self.told(f"run {number + 1} of {self.runs}")
            pairs.append((ours(), bound()))
        return [mine for mine, _ in pairs], [theirs for _, theirs in pairs]

    def environment(self, queues: Sequence[str] = (), **settings: object) -> dict[str, str]:
        """Settings as production has them, but for the ready lists' limit: nobody consumes what is moved here."""
        limits = {"max_ready": 10**9, "max_ready_bytes": "64GiB"}
        return {
            "COATCHECK_REDIS__URL": self.redis.url,
            "COATCHECK_BACKENDS__S3__BUCKET": BUCKET,
            "COATCHECK_BACKENDS__S3__ENDPOINT_URL": self.s3_url,
            "COATCHECK_BACKENDS__S3__REGION": "us-east-1",
            "COATCHECK_ROUTING__OFFLOAD_TO": "s3",
            "COATCHECK_QUEUES": json.dumps(dict.fromkeys(queues, limits)),
            **{f"COATCHECK_{name}": str(value) for name, value in settings.items()},
        }

    def settings(self, **settings: object) -> Settings:
        return load(self.environment(**settings))

    @contextmanager
    def service(self, role: str, environment: dict[str, str]) -> Iterator["ServiceProcess"]:
        """`coatcheck serve` in a process of its own, ready."""
        process = ServiceProcess(role, environment)
        try:
            process.wait_until_ready()
            yield process
        finally:
            process.stop()

    @asynccontextmanager
    async def bystander(self) -> AsyncIterator["Bystander"]:
        """Fills and looks, with an empty database to begin with."""
        pool = connect(self.redis.url, timeout_s=60, max_connections=8)
        client = Redis.from_url(self.redis.url, socket_timeout=60)  # a million jobs are not flushed in a moment
        try:
            await _emptied(client)
            yield Bystander(client, Ledger(Transport(pool), Keys(), Scripts(), ServerClock(SystemClock())), Keys())
        finally:
            await _emptied(client)
            await client.aclose()
            await pool.disconnect()


class ServiceProcess:
    """`coatcheck serve`, stopped by SIGTERM."""

    def __init__(self, role: str, environment: dict[str, str]) -> None:
        self.port = free_port()
        program = Path(sys.executable).parent / "coatcheck"
        own = {**environment, "COATCHECK_HTTP__PORT": str(self.port), "COATCHECK_LOG__LEVEL": "warning"}
        assignments = [f"{name}={value}" for name, value in own.items()]
        self.began_s = time.perf_counter()
        self._child = Child(["/usr/bin/env", *assignments, sys.executable, str(program), "serve", "--role", role])

    @property
    def pid(self) -> int:
        return self._child.pid

    def wait_until_ready(self) -> float:
        """Seconds from its start until it said that it is ready."""
        if not self._child.wait_until(self._ready, 60):
            raise RuntimeError(f"the service did not get ready: {self._child.output()}")
        return time.perf_counter() - self.began_s

    def cpu_s(self) -> float:
        """Of all its threads, so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mib(self) -> float:
        """Its own and its part of what is shared."""
        for line in Path(f"/proc/{self.pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
        raise RuntimeError("no Pss in smaps_rollup")

    def stop(self) -> None:
        self._child.terminate(30)
        words = self._child.output()
        if words:
            print(f"the service said: {words}", file=sys.stderr)
        self._child.close()

    def _ready(self) -> bool:
        connection = HTTPConnection(HOST, self.port, timeout=5)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()


@dataclass(frozen=True)
class Bystander:
    """Puts jobs where the service finds them, and looks at what became of them."""

    client: Redis
    ledger: Ledger
    keys: Keys

    async def fill(
        self, queue: str, jobs: int, body: bytes, due_ms: Callable[[int], int], backend: str = "redis"
    ) -> None:
        """Jobs as the producer schedules them; of those of another backend, the references alone."""
        await self.schedule(queue, [(due_ms(number), body) for number in range(jobs)], backend)

    async def schedule(self, queue: str, jobs: Sequence[tuple[int, bytes]], backend: str = "redis") -> None:
        put_at_ms = int(time.time() * 1000)
        for start in range(0, len(jobs), _FILL):
            entries = [
                Entry(reference, "small_and_short", body=body)
                if backend == "redis"
                else Entry(reference, "large", put_at_ms=put_at_ms)
                for due_ms, body in jobs[start : start + _FILL]
                for reference in (Reference(backend, queue, due_ms, new_uuid()),)
            ]
            for answer in await self.ledger.schedule(queue, entries):
                if isinstance(answer, Exception):
                    raise answer

    async def ready(self, queues: Sequence[str]) -> list[int]:
        """Lengths of their ready lists, at one moment."""
        async with self.client.pipeline(transaction=True) as pipe:
            for queue in queues:
                pipe.llen(self.keys.queue(queue).ready)
            return list(await pipe.execute())

    async def paused(self, queues: Sequence[str]) -> None:
        for queue in queues:
            await self.ledger.pause(queue)

    async def resumed(self, queues: Sequence[str]) -> None:
        await asyncio.gather(*(self.ledger.resume(queue) for queue in queues))


async def _emptied(client: Redis) -> None:
    """But for the installation, whose id is in the bucket, too."""
    meta, named = Keys().meta, await client.hgetall(Keys().meta)
    await client.flushdb()
    if named:
        await client.hset(meta, mapping=named)


@contextmanager
def redis_server() -> Iterator[tuple[RedisServer, str]]:
    """Debian's redis-server, which has jemalloc; without it the embedded Valkey, whose figures are its own."""
    found = shutil.which("redis-server")
    server = RedisServer(found or valkey_binary())
    server.start()
    try:
        yield server, "redis-server" if found else "Valkey (no redis-server on the PATH)"
    finally:
        server.stop()


@contextmanager
def s3_server(kind: str) -> Iterator[str]:
    """The endpoint of an S3 with an empty bucket: moto in a process of its own, or rclone over a folder in memory."""
    os.environ.update(_CREDENTIALS)
    with _moto() if kind == "moto" else _rclone() as url:
        yield url


@contextmanager
def _moto() -> Iterator[str]:
    server = S3Server()
    server.start()
    try:
        server.make_bucket(BUCKET)
        yield server.endpoint_url
    finally:
        server.stop()


@contextmanager
def _rclone() -> Iterator[str]:
    beside_python = str(Path(sys.executable).parent)
    binary = shutil.which("rclone", path=os.pathsep.join((beside_python, os.environ.get("PATH", ""))))
    if binary is None:
        raise RuntimeError("rclone is not installed")
    shm = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="coatcheck-bench-", dir=shm) as directory:
        (Path(directory) / BUCKET).mkdir()
        port = free_port()
        keys = ",".join(_CREDENTIALS.values())
        none = ["--config", str(Path(directory) / "none.conf")]
        child = Child([binary, "serve", "s3", "--auth-key", keys, "--addr", f"{HOST}:{port}", *none, directory])
        try:
            if not child.wait_until(lambda: _answers(port), 60):
                raise RuntimeError(f"rclone does not answer: {child.output()}")
            yield f"http://{HOST}:{port}"
        finally:
            child.close()


def _answers(port: int) -> bool:
    connection = HTTPConnection(HOST, port, timeout=2)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status > 0
    except OSError:
        return False
    finally:
        connection.close()
