"""What does not fit in a BullMQ queue."""

from collections.abc import Sequence

from service.inspector.answers import Problem
from service.inspector.bullmq.job import LATE_MS
from service.inspector.bullmq.keys import QueueKeys, due_of, markers, score_at
from service.inspector.bullmq.orphans import orphans
from service.inspector.bullmq.sample import Sample
from service.inspector.findings import Findings
from service.inspector.layout import EXAMPLES, Look
from service.inspector.reading import Command, OverBudget
from service.inspector.structures import ends, no_times
from service.inspector.times import FIRST_MS, lasting
from service.members import text_of


async def problems_of(look: Look, keys: QueueKeys) -> Sequence[Problem]:
    """By counts, by both ends of each structure, and by the records that a SCAN meets."""
    found = Findings()
    try:
        paused = await _paused(look, keys, found)
        await _overdue(look, keys, found, paused=paused)
        await _lists(look, keys, found)
        for each in keys.structures:
            if each.at_is is not None:
                await no_times(look.reader, each, found)
        await Sample(look, keys, found).compare()
        await orphans(look, keys, found)
    except OverBudget:
        found.add("not-all-looked-at", "this look had read as much as it may")
    return found.problems


async def _paused(look: Look, keys: QueueKeys, found: Findings) -> bool | None:
    [reply] = await look.reader.send([("HEXISTS", keys.of("meta"), "paused")])
    told = found.told(reply, keys.of("meta"), None)
    return None if told is None else bool(told)


async def _overdue(look: Look, keys: QueueKeys, found: Findings, *, paused: bool | None) -> None:
    """Whoever takes a job also moves those that are due, so that where workers run, none is late."""
    key = keys.structure("delayed").key
    first, late = score_at(FIRST_MS), f"({score_at(look.now_ms - LATE_MS)}"
    replies = await look.reader.send(
        [
            ("ZCOUNT", key, first, late),
            ("ZRANGE", key, first, late, "BYSCORE", "LIMIT", 0, EXAMPLES),
            ("ZRANGE", key, first, late, "BYSCORE", "LIMIT", 0, 1, "WITHSCORES"),
        ]
    )
    count, oldest, scored = (found.told(reply, key, None) for reply in replies)
    if not count or not scored or (since := due_of(scored[1])) is None:
        return
    why = ", and the queue is paused" if paused else ""
    detail = f"delayed, the first for {lasting(look.now_ms - since.ms)}{why}"
    found.add("due-not-moving", detail, [text_of(each) for each in oldest], count=count, since=since)


async def _lists(look: Look, keys: QueueKeys, found: Findings) -> None:
    """What older releases left in the lists of those who wait."""
    for each in (keys.structure("waiting"), keys.structure("paused")):
        both = await ends(look.reader, each, found)
        if left := markers(both):
            found.add("legacy-marker", f"in {each.state}", left)
        jobs = [entry for member, _ in both.members if (entry := text_of(member)) not in left]
        if each.state != "paused" or not jobs:
            continue
        asked: list[Command] = [("HEXISTS", keys.of("meta"), "paused"), ("LLEN", each.key)]  # both of one moment
        paused, count = await look.reader.send(asked)
        if paused == 0 and isinstance(count, int) and count > len(left):
            found.add("left-in-paused", "in paused", jobs, count=count - len(left))
