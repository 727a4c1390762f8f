"""What all layouts keep to, whatever somebody did to their keys: an answer, never a traceback, and nothing changed."""

import ast
import asyncio
import io
import json
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from service.cli.inspected import Shown
from service.embedded import RedisServer
from service.inspector.answers import plain
from service.inspector.causes import CAUSES
from service.inspector.inspector import Inspector
from service.inspector.layouts import LAYOUTS
from service.inspector.reading import Budget, OverBudget
from service.keys import Keys
from tests.kit.inspecting import Inspected, Monitor, inspecting
from tests.kit.ruins import KEYS, QUEUE, REFERENCES, UUID, Ruin, lay, put, ruin

INSPECTOR = Path(__file__).parents[2] / "service/inspector"
IDS = [REFERENCES[0], UUID, "1", "\udcff", REFERENCES[1], "", "x" * 1000, "*"]

#: One key of each type, with contents that fit no library.
DAMAGE = {
    "string": b"\xff",
    "list": [b"\xff", b"{", b"", b"x" * 5000],
    "set": [b"\xff", b"1"],
    "zset": {b"\xff": float("inf"), b"1": -5, b"": 0, b"{}": 1e300},
    "hash": {b"\xff": b"\xff", b"msg": b"\x0a\xff", b"data": b"{", b"opts": b"[]", b"state": b"lost"},
    "stream": {b"f": b"v"},
}


async def everything(inspected: Inspected, ids: Sequence[str] = IDS) -> list[Any]:
    """All that can be asked, of all that is found."""
    inspector = Inspector(inspected.unwatched, Keys())
    async with inspected.unchanged():
        overview = await inspector.overview()
        answers: list[Any] = [overview, await inspector.problems()]
        for queue in sorted({each.queue for each in overview.summaries} | {QUEUE}):
            answers.append(await inspector.queue(queue))
            answers += [await inspector.job(queue, id_) for id_ in ids]
    return answers


def shown(answers: list[Any]) -> str:
    """What machines and people would read of them."""
    overview, problems, *rest = answers
    output = io.StringIO()
    with redirect_stdout(output), redirect_stderr(output):
        for as_json in (True, False):
            show = Shown(overview.now.ms, as_json=as_json)
            show.overview(overview)
            show.problems(problems, None)
            for answer in rest:
                kinds = {type(each).__name__ for each in answer}
                if kinds == {"QueueDetail"}:
                    show.queues(answer, QUEUE)
                elif kinds == {"JobDetail"}:
                    show.jobs(answer, QUEUE, "id")
    text = output.getvalue()
    json.dumps(plain(answers), allow_nan=False)
    assert "inspector-failed" not in text, text
    assert "\x1b" not in text, "a terminal would obey"
    return text


def test_every_layout_is_here():
    """Damage is done to the keys of each."""
    assert set(LAYOUTS) <= set(KEYS)
    assert all(layout.checked_against for layout in LAYOUTS.values())


def test_every_kind_of_problem_is_explained():
    """A kind without a cause would be a traceback when it is shown."""
    told = set()
    for path in INSPECTOR.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                if name in ("add", "Problem") and isinstance(node.args[0].value, str) and "-" in node.args[0].value:
                    told.add(node.args[0].value)
    assert len(told) > 8
    assert told - set(CAUSES) == set()


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_what_is_not_there_is_told_as_that(inspected: Inspected, layout):
    made = LAYOUTS[layout]
    assert list(await (await inspected.look(made)).queues([])) == []
    assert await (await inspected.look(made)).has("nobody") is False
    assert await (await inspected.look(made)).job("nobody", UUID) is None
    assert list(await (await inspected.look(made)).problems("nobody")) == []
    summary = await (await inspected.look(made)).summary("nobody")
    assert not any(summary.states.values())
    for other, keys in KEYS.items():
        hints = [(await inspected.look(made)).hint(key) for key in keys]
        assert other == layout or not any(hints), "of another layout's key"


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("layout", LAYOUTS)
async def test_any_key_may_be_of_any_type(inspected: Inspected, layout, kind):
    """All of them at once, and each alone."""
    for keys in (KEYS[layout], *([key] for key in KEYS[layout])):
        await lay(inspected.redis, dict.fromkeys(keys, (kind, DAMAGE[kind])))
        shown(await everything(inspected, IDS if keys is KEYS[layout] else IDS[:1]))


@pytest.mark.parametrize("commands", [0, 1, 2, 3, 5, 8, 13, 21, 34])
@pytest.mark.parametrize("layout", LAYOUTS)
async def test_a_look_that_may_read_little_tells_what_it_knows(inspected: Inspected, layout, commands):
    """It ends with OverBudget, which whoever asks turns into a problem, or with what it has; never otherwise."""
    for key in KEYS[layout]:
        await put(inspected.redis, key, "zset", DAMAGE["zset"])
    for verb in ("summary", "detail", "problems"):
        look = await inspected.look(LAYOUTS[layout], budget=Budget(commands=commands))
        try:
            answer = await getattr(look, verb)(QUEUE)
        except OverBudget:
            continue
        json.dumps(plain(answer), allow_nan=False)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_damage_is_a_traceback(inspectors_redis: RedisServer, monitor: Monitor, layout):
    """Fuzzed: any types, any contents, in any combination of a layout's keys."""

    @settings(max_examples=50, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 2**64))
    def hold(seed: int) -> None:
        runner.run(look_at(ruin(layout, seed)))

    async def look_at(keys: Ruin) -> None:
        await lay(inspected.redis, keys)
        shown(await everything(inspected, IDS[:4]))
        await monitor.caught_up()
        assert monitor.refused == []

    with asyncio.Runner() as runner:
        place = inspecting(inspectors_redis.url)
        inspected = runner.run(place.__aenter__())
        try:
            hold()
        finally:
            runner.run(place.__aexit__(None, None, None))
