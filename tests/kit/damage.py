"""What may be where a library keeps its queues, when something or somebody has damaged it: anything at all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from redis.asyncio import Redis

#: Times in seconds, ms and ns of 2026, and what is none.
SCORES = st.sampled_from(
    [0.0, -1.0, 1.0, 1e300, float("inf"), float("-inf"), 1_796_046_292.0, 1_796_046_292_000.0, 17.5]
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

    async def write(self, redis: Redis, key: str) -> None:
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
