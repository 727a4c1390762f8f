"""A third-party backend, installed as anybody would install one: by pip, found by its entry point."""

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "plugins"


@contextmanager
def installed(package: str, directory: Path) -> Iterator[None]:
    """`package`, a folder in tests/plugins, is installed into `directory`, which is on the path meanwhile. Offline."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    command = [*pip, "--disable-pip-version-check", "--target", str(directory), str(SOURCES / package)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "PIP_NO_INPUT": "1"})
    assert done.returncode == 0, f"pip did not install {package}: {done.stderr}"
    sys.path.insert(0, str(directory))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(directory))
        sys.modules.pop(package, None)
        importlib.invalidate_caches()
