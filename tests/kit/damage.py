"""What may be where a library keeps its queues, when something or somebody has damaged it: anything at all."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, settings, strategies as st
from redis.asyncio import Redis

from service.inspector.answers import Problem, plain
from service.inspector.causes import CAUSES
from service.inspector.layout import Layout, Look
from service.inspector.reading import ReadOnly
from tests.kit.inspecting import Inspected

#: Times in seconds, ms and ns of 2026, and what is none.
SCORES = st.sampled_from(
    [0.0, -1.0, 1.0, 1e300, float("inf"), float("-inf"), 1_796_046_292.0, 1_796_046_292_000.0, 17.5]
)

#: Examples of which each fills a Redis and looks at all of it.
the_same_each_time = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


class Huge(bytes):
    """Bytes that nobody reads in a failed test: hypothesis warns of a test case that is too long."""

    def __repr__(self) -> str:
        return f"Huge({len(self):,} bytes)"


@dataclass(frozen=True)
class Value:
    """A key's type and content."""

    kind: str
    content: Any

    async def write(self, redis: Redis, key: bytes) -> None:
        match self.kind:
            case "string":
                await redis.set(key, self.content)
            case "list":
                await redis.rpush(key, *self.content)
            case "set":
                await redis.sadd(key, *self.content)
            case "zset":
                await redis.zadd(key, self.content)
            case "hash":
                await redis.hset(key, mapping=self.content)
            case "stream":
                await redis.xadd(key, {"field": "value"})


def values(
    members: st.SearchStrategy[bytes], fields: Mapping[bytes, st.SearchStrategy[bytes]]
) -> st.SearchStrategy[Value]:
    """Of any type. Collections hold `members`; hashes hold some of `fields`, and others."""
    some = st.lists(members, min_size=1, max_size=8)
    named = st.fixed_dictionaries({}, optional=dict(fields))
    other = st.dictionaries(st.binary(max_size=12), st.binary(max_size=40), max_size=2)
    hashes = st.builds(lambda one, two: one | two, named, other).filter(bool)
    return st.one_of(
        st.builds(Value, st.just("hash"), hashes),
        st.builds(Value, st.just("zset"), st.dictionaries(members, SCORES, min_size=1, max_size=8)),
        st.builds(Value, st.just("list"), some),
        st.builds(Value, st.just("set"), some),
        st.builds(Value, st.just("string"), members),
        st.builds(Value, st.just("stream"), st.none()),
    )


def keyspace(
    draw: st.DrawFn, keys: Sequence[str], value: st.SearchStrategy[Value], right: Mapping[str, st.SearchStrategy[Value]]
) -> dict[str, Value]:
    """Some of `keys` with any value, or, as often, with one that is right for them at first sight.

    Drawn, and no strategy: hypothesis would spell that out with all its parts, and warn of its length.
    """
    chosen = draw(st.sets(st.sampled_from(list(keys)), min_size=1))
    return {key: draw(right[key] if key in right and draw(st.booleans()) else value) for key in sorted(chosen)}


async def all_problems(
    inspected: Inspected, layout: type[Layout], held: Mapping[str, Value], queue: str, ids: Sequence[str]
) -> list[Problem]:
    """Fills Redis with `held`, asks of every queue all that can be asked, and gives the problems told of `queue`.

    Fails if an answer cannot be written down, if a problem is of no known kind, or if looking changed anything.
    """
    await inspected.redis.flushall()
    for name, value in held.items():
        await value.write(inspected.redis, name.encode("utf-8", "surrogateescape"))
    now_ms = await inspected.now_ms()

    def look() -> Layout:
        return layout(Look(ReadOnly(inspected.unwatched), now_ms))

    hints = {found for name in held if (found := look().hint(name)) is not None}
    told = list[Problem]()
    async with inspected.unchanged():
        for each in sorted({queue, *await look().queues(hints)}):
            answers = [
                await look().summary(each),
                await look().detail(each),
                *[await look().job(each, id_) for id_ in ids],
            ]
            problems = [it for answer in answers if answer is not None for it in answer.problems]
            problems += await look().problems(each)
            assert isinstance(await look().has(each), bool)
            json.dumps(plain([answers, problems]), allow_nan=False)
            assert {it.kind for it in problems} <= set(CAUSES)
            told += problems if each == queue else []
    return told
