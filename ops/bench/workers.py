"""Workers, ours and those of other libraries, each in a process of its own until it has told what it measured."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.stage import Stage
from service.child import Child, free_port

Measured = dict[str, float]

FOLDER = Path(__file__).parent / "peers"
_REQUIREMENTS = FOLDER / "requirements.txt"
#: Of the libraries that we are measured beside; they are no part of the project and not in its lock.
_VENV = Path(__file__).parents[2] / ".venv-peers"


@dataclass(frozen=True, slots=True)
class Peer:
    """A library: `peers/peer_<name>.py REDIS_URL JOBS <setting>`."""

    name: str
    jobs: int  #: a few seconds of its work
    settings: Sequence[str]  #: of which the best counts

    @property
    def version(self) -> str:
        return next(pin for pin in _pins() if pin.startswith(f"{self.name}==")).replace("==", " ")


class WorkerProcess:
    """One worker. Prints `{"measured": {…}}` at its end."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        self._child = Child(argv, cwd=FOLDER, environ={**os.environ, **environment})

    def measured(self, within_s: float) -> Measured:
        """Blocks until it has told."""
        self._child.wait_until(lambda: self._told() is not None, within_s)
        if (told := self._told()) is None:
            raise RuntimeError(f"a worker has measured nothing: {self._child.output()}")
        return told

    def _told(self) -> Measured | None:
        for line in self._child.output().splitlines():
            if line.startswith('{"measured"'):
                figures: Measured = json.loads(line)["measured"]
                return figures
        return None

    def stop(self) -> None:
        self._child.terminate(30)
        self._child.close()

    def kill(self) -> None:
        self._child.close()


@contextmanager
def ours(stage: Stage, queues: Sequence[str], jobs: int, kind: str = "list") -> Iterator[WorkerProcess]:
    """`coatcheck worker` as it is without any setting, on ready lists or streams; at the end it is stopped in order."""
    program = Path(sys.executable).parent / "coatcheck"
    chosen = [word for queue in queues for word in ("--queue", queue)]
    environment = {
        **stage.environment(QUEUES=json.dumps({queue: {"ready_kind": kind} for queue in queues})),
        "COATCHECK_HTTP__PORT": str(free_port()),
        "COATCHECK_LOG__LEVEL": "warning",
        "BENCH_JOBS": str(jobs),
    }
    process = WorkerProcess([sys.executable, str(program), "worker", "ours:worker", *chosen], environment)
    try:
        yield process
    finally:
        process.stop()


@contextmanager
def program(python: Path | str, name: str, *arguments: object) -> Iterator[WorkerProcess]:
    """`peers/<name>.py`, killed at the end: what it leaves is nobody's."""
    process = WorkerProcess([str(python), str(FOLDER / f"{name}.py"), *map(str, arguments)], {})
    try:
        yield process
    finally:
        process.kill()


def peers_python(stage: Stage) -> Path:
    """A Python that has the libraries as `peers/requirements.txt` pins them; made anew when that has changed."""
    python, stamp = _VENV / "bin" / "python", _VENV / "coatcheck-stamp"
    wanted = f"{sys.version} {_REQUIREMENTS.read_text()}"
    if not stamp.is_file() or stamp.read_text() != wanted:
        stage.told("installing what the worker is measured beside")
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(_VENV)], check=True)
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "-qq", "install", "--only-binary", ":all:"]
        subprocess.run([*pip, "--requirement", str(_REQUIREMENTS)], check=True)
        stamp.write_text(wanted)
    return python


def _pins() -> list[str]:
    return [line.partition("#")[0].strip() for line in _REQUIREMENTS.read_text().splitlines()]
