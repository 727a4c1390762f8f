"""The image, running: read-only, as its own user, as process 1 of a namespace, with this machine's loopback."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from http.client import HTTPConnection
from pathlib import Path
from typing import Final

from ops.image.buildah import Failed, Image

#: No /tmp: what needs one would fail here. $1 is the image's files, the rest is the command.
_ENTER: Final = """
root=$1; user=$2; shift 2
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
exec setpriv --no-new-privs chroot --userspec="$user" --groups= "$root" "$@"
"""


class Container:
    """Started; the image's entry point with `arguments`, or with the image's own. `stop` must follow."""

    def __init__(
        self, image: Image, root: Path, port: int, env: Mapping[str, str], arguments: Sequence[str] = ()
    ) -> None:
        self.port = port
        self.user = image.config["User"]
        self._root = root
        self._env = {**image.env, "HOME": "/", **env, "COATCHECK_HTTP__PORT": str(port)}
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  # nameless: nothing to leave; close() closes it
        command = [*image.config["Entrypoint"], *(arguments or image.config["Cmd"])]
        isolated = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        self._began = time.monotonic()
        self._process = subprocess.Popen(
            [*isolated, "sh", "-euc", _ENTER, "sh", str(root), self.user, *command],
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
        )

    def ready(self, within_s: float = 60) -> float:
        """Waits for /readyz to say 200; seconds since the start. Raises Failed with what it printed."""
        while time.monotonic() - self._began < within_s and self._process.poll() is None:
            if self._status("/readyz") == 200:
                return time.monotonic() - self._began
            time.sleep(0.01)
        raise Failed(f"not ready after {within_s} s, or ended ({self._process.poll()}):\n{self.output()}")

    def heeds_sigterm(self, within_s: float = 60) -> None:
        """Waits for it to have a handler: to process 1, the kernel passes on no signal that has none."""
        while time.monotonic() - self._began < within_s and self._process.poll() is None:
            if self._entered and int(self.status()["SigCgt"], 16) >> (signal.SIGTERM - 1) & 1:
                return
            time.sleep(0.002)
        raise Failed(f"no handler for SIGTERM after {within_s} s:\n{self.output()}")

    def status(self) -> dict[str, str]:
        """/proc/<pid>/status of its process 1, as this machine sees it."""
        lines = Path(f"/proc/{self._pid}/status").read_text().splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}

    def execute(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """A command beside process 1, as its user, as `docker exec` runs it; `env` on top of the container's."""
        user, _, group = self.user.partition(":")
        inside = ["nsenter", "-t", str(self._pid), "--mount", "--pid", "--root", "--wd", f"-S{user}", f"-G{group}"]
        return subprocess.run(
            [*inside, *argv],
            env={**self._env, **(env or {})},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def stop(self, within_s: float = 30) -> int:
        """SIGTERM for its process 1; the exit code. Raises Failed if it goes on."""
        os.kill(self._pid, signal.SIGTERM)
        try:
            return self._process.wait(within_s)
        except subprocess.TimeoutExpired as error:
            raise Failed(f"still there {within_s} s after SIGTERM:\n{self.output()}") from error

    def close(self) -> None:
        """Ends what still runs. Idempotent."""
        self._process.kill()  # --kill-child: its process 1 goes with it
        self._process.wait()
        self._output.close()

    def output(self) -> str:
        """The last 3,000 bytes that it printed."""
        self._output.seek(max(0, self._output.seek(0, os.SEEK_END) - 3_000))
        return self._output.read().decode(errors="replace")

    @property
    def _pid(self) -> int:
        return self._children()[0]

    @property
    def _entered(self) -> bool:
        """Is process 1 the image's, no longer the shell that prepares it?"""
        return bool(self._children()) and self.status()["Uid"].split()[0] == self.user.partition(":")[0]

    def _children(self) -> list[int]:
        listed = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text()
        return [int(pid) for pid in listed.split()]

    def _status(self, path: str) -> int:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        except OSError:
            return 0
        finally:
            connection.close()
