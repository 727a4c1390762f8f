"""Commands of `coatcheck`, run within this process: what the shell sees of them."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

from typer.testing import CliRunner

from service.cli import app
from service.cli.exits import Exit
from tests.kit.inspecting import Inspected

Run = Callable[..., Coroutine[Any, Any, Any]]


async def run(*arguments: str, code: Exit = Exit.DONE, **environ: str | None) -> Any:
    """The result of a command that ends with this code."""
    given = {"COATCHECK_TEST_REDIS": None, **environ}
    result = await asyncio.to_thread(CliRunner().invoke, app, arguments, env=given)
    assert result.exit_code == code, result.output
    return result


def looking(inspected: Inspected, command: str) -> Run:
    """Runs one that asks Redis itself, as the shipped user, and sees that it changes no key."""

    async def look(*arguments: str, **options: Any) -> Any:
        async with inspected.unchanged():
            return await run(command, *arguments, **{"COATCHECK_REDIS__URL": inspected.url, **options})

    return look


async def told(run: Run, *arguments: str, **options: Any) -> Any:
    """What a machine reads: one line."""
    [line] = (await run(*arguments, "--json", **options)).stdout.splitlines()
    return json.loads(line)
