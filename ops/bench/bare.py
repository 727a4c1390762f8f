"""The bounds: programs that do the bare minimum, run as they are in `bounds/`, each in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "bounds"


def run(name: str, *arguments: object) -> dict[str, Any]:
    """What `bounds/<name>.py` measured: the JSON line that it prints."""
    return _last_line([sys.executable, str(FOLDER / f"{name}.py"), *map(str, arguments)])


def _last_line(command: list[str]) -> dict[str, Any]:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        raise RuntimeError(f"{command[1]} failed: {done.stderr[-2000:]}")
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured
