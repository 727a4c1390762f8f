"""The leak check that runs after every test finds what it is there for."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.tasks import no_task_left

LEAKY = """
import asyncio

async def test_leaky():
    asyncio.create_task(asyncio.Event().wait())
"""


async def forgotten() -> None:
    await asyncio.Event().wait()


async def test_a_task_that_outlives_its_test_is_named():
    task = asyncio.create_task(forgotten())
    with pytest.raises(AssertionError, match="forgotten"):
        await no_task_left()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_task_that_is_about_to_end_is_no_leak():
    """Cancelling is asking: the task ends a turn of the loop later."""
    asyncio.create_task(forgotten()).cancel()
    await no_task_left()


def test_it_runs_by_itself_after_each_asyncio_test(tmp_path):
    """No test has to ask for it. Proved with a test that leaks, in a pytest of its own under our conftest."""
    conftest = Path(__file__).parents[1] / "conftest.py"
    (tmp_path / "conftest.py").write_text(conftest.read_text())
    (tmp_path / "test_leaky.py").write_text(LEAKY)
    configuration = str(conftest.parents[1] / "pyproject.toml")
    command = [sys.executable, "-m", "pytest", "-c", configuration, "--rootdir", str(tmp_path), str(tmp_path)]
    heard = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    assert "1 passed, 1 error" in heard
    assert "tasks still alive: ['<coroutine object Event.wait" in heard
