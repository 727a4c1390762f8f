"""Both ends of a structure, whatever its members are."""

import pytest

from service.inspector.findings import Findings
from service.inspector.structures import Structure, ends
from service.inspector.weighing import REPLY_BYTES

MEMBER_BYTES = 100_000


@pytest.mark.parametrize("per_ms", [None, 1.0], ids=["list", "zset"])
async def test_of_large_members_as_many_are_read_as_one_reply_may_hold(inspected, per_ms):
    """A thousand ids are a small reply; a thousand payloads, which a hand put where ids belong, are a gigabyte."""
    members = [b"%04d" % n + b"x" * MEMBER_BYTES for n in range(60)]
    if per_ms is None:
        await inspected.redis.lpush("k", *members)
    else:
        await inspected.redis.zadd("k", {member: n + 1 for n, member in enumerate(members)})
    found, reader = Findings(), inspected.reader
    before = reader.budget.reply_bytes
    both = await ends(reader, Structure("s", "k", per_ms), found, each=30)
    assert both.count == 60
    assert [member for member, _ in both.head] == members[: len(both.head)]
    assert [member for member, _ in both.tail] == members[-len(both.tail) :]
    assert 2 * 5 <= len(both.members) < 30
    assert before - reader.budget.reply_bytes <= 2.1 * REPLY_BYTES
    assert not found.problems


async def test_members_larger_than_a_reply_are_told_and_not_read(inspected):
    await inspected.redis.lpush("k", b"x" * (REPLY_BYTES + 1), b"y" * (REPLY_BYTES + 1))
    found, reader = Findings(), inspected.reader
    both = await ends(reader, Structure("s", "k"), found)
    assert (both.count, both.members) == (2, [])
    assert [problem.kind for problem in found.problems] == ["value-too-large"]
