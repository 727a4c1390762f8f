"""The front door is true: its tables are the code's, and what it tells people to run is there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_tables_are_those_of_the_code() -> None:
    """A setting or a metric that the README does not know is found by nobody."""
    checked = subprocess.run(
        [sys.executable, "ops/readme", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, f"run .venv/bin/python ops/readme {checked.stdout}{checked.stderr}"


def test_every_command_of_ours_that_it_names_can_be_run() -> None:
    for path in sorted(set(re.findall(r"\./(ops/\w+)", README))):
        assert os.access(ROOT / path, os.X_OK), path


def test_every_file_that_it_sends_people_to_exists() -> None:
    named = set(re.findall(r"`((?:service|storage_backends|ops|tests)/[\w./*-]*)`", README))
    assert len(named) > 15
    for path in sorted(named):
        assert list(ROOT.glob(path.rstrip("/"))), path


@pytest.mark.parametrize("role", ["all", "api", "dispatcher"])
def test_the_roles_that_it_names_are_those_of_the_command(role: str) -> None:
    from service.cli import Role

    assert role in set(Role)
    assert f"{'|'.join(Role)}" in README
