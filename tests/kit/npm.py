"""Node packages for tests, as their lock file says, and programs that use them.

Installed into a folder of this run: nothing of it is ever in the tree. Node or npm absent skips at home, fails in CI.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

_INSTALL_S = 300
_PROGRAM_S = 110


@dataclass(frozen=True, slots=True)
class Packages:
    """A folder with node_modules in it, and the programs that are made for it."""

    folder: Path
    programs: Path

    def lines_of(self, program: str, *arguments: str | int) -> Iterator[dict[str, Any]]:
        """What `<program>.mjs <folder> <arguments>` prints: a JSON object a line. Fails with its errors if it fails."""
        command = ["node", f"{self.programs / program}.mjs", str(self.folder), *map(str, arguments)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_PROGRAM_S, check=False)
        assert ended.returncode == 0, f"{program} failed: {ended.stderr[-3000:]}"
        return map(json.loads, filter(None, ended.stdout.split("\n")))  # not splitlines: text in it may have others


def installed(programs: Path, folder: Path) -> Packages:
    """The packages of `programs`/package-lock.json in `folder`; scripts of packages are not run."""
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{tool} is not installed")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(programs / name, folder)
    options = ["--ignore-scripts", "--omit=optional", "--no-audit", "--no-fund", "--loglevel=error"]
    ended = subprocess.run(
        ["npm", "ci", *options], cwd=folder, capture_output=True, text=True, timeout=_INSTALL_S, check=False
    )
    assert ended.returncode == 0, f"npm ci failed: {ended.stderr[-3000:]}"
    return Packages(folder, programs)
