"""A process of ours that does not outlive us, and a port for it to listen on."""

import os
import random
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

    def __init__(self, argv: Sequence[str], *, cwd: str | Path = "/", environ: Mapping[str, str] | None = None) -> None:
        """Without `environ` it has ours."""
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # nameless: nothing to leave; close() closes it
        self._process = subprocess.Popen(  # noqa: S603  # our own launcher and a path that we found ourselves
            [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), *argv],
            cwd=cwd,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
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

    def wait(self, within_s: float) -> int | None:
        """Blocks until it has ended: its exit code, or minus the signal that ended it. None: it still runs."""
        try:
            return self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            return None

    def output(self, last_bytes: int = 2_000) -> str:
        """The end of what it printed."""
        self._output.seek(max(0, self._output.seek(0, os.SEEK_END) - last_bytes))
        return self._output.read().decode(errors="replace")

    def kill(self) -> None:
        """SIGKILL, and wait. Idempotent."""
        self._process.kill()
        self._process.wait()

    def terminate(self, within_s: float = 10) -> None:
        """SIGTERM, and wait; SIGKILL if it takes longer than `within_s`. Idempotent."""
        self._process.terminate()
        if self.wait(within_s) is None:
            self.kill()

    def close(self) -> None:
        """Kill it if it still runs, and forget its output."""
        self.kill()
        self._output.close()
