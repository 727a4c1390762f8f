"""Who works on a queue of Coatcheck's, what they have in hand, and whether they were heard of.

Of a list, a worker has what is in its in-flight list; of a stream, what is pending under its name in the group.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from service.inspector.answers import Fact, StateDetail
from service.inspector.coatcheck.members import pairs
from service.inspector.coatcheck.ready import list_state
from service.inspector.findings import Findings
from service.inspector.layout import EXAMPLES, Look
from service.inspector.payloads import text_cut
from service.inspector.reading import PAGE, Command
from service.inspector.times import lasting, moment
from service.keys import QueueKeys
from service.members import text_of

_MOST: Final = 100  #: workers looked at, of those alive and of those that are gone
_SHOWN: Final = 20  #: by name
_HANDS_SHOWN: Final = 5  #: whose jobs are shown
#: Another looks for the dead every few seconds, at the latest after half the patience, and not before it was heard of.
_UNREAPED_MS: Final = 30_000
RETURNED: Final = "~returned"  #: names in a stream's group that are no worker's: scripts/lib/hands.lua
SUSPECTS: Final = "~suspects"


@dataclass(frozen=True, slots=True)
class Hands:
    """One worker, or another consumer of a stream's group."""

    name: str
    held: int | None  #: None: cannot be counted
    overdue_ms: int | None  #: since when it should have been heard of; below 0: until then it need not; None: not known
    departed: bool = False  #: taken for dead: others look at its hands until nothing can come any more


@dataclass(frozen=True, slots=True)
class Crew:
    """All who work on a queue, as far as one look goes."""

    hands: Sequence[Hands]
    workers: int | None  #: how many say that they live
    suspects: int | None
    returned: int = 0  #: of a stream: what came back, and is taken before what is new

    @property
    def overdue(self) -> Sequence[Hands]:
        return [
            each for each in self.hands if not each.departed and each.overdue_ms is not None and each.overdue_ms > 0
        ]

    @property
    def in_hand(self) -> int:
        return sum(each.held or 0 for each in self.hands)


async def crew_of(look: Look, of: QueueKeys, found: Findings) -> Crew:
    last = _MOST - 1
    replies = await look.reader.send(
        [
            ("ZCARD", of.workers),
            ("ZRANGE", of.workers, 0, last, "WITHSCORES"),
            ("ZRANGE", of.departed, 0, last, "WITHSCORES"),
            ("LLEN", of.suspects),
        ]
    )
    keys = (of.workers, of.workers, of.departed, of.suspects)
    count, workers, departed, suspects = [
        found.told(reply, key, None) for reply, key in zip(replies, keys, strict=True)
    ]
    living = {text_of(name): look.now_ms - int(at) for name, at in pairs(workers or []) if moment(at)}
    gone = {text_of(name) for name, _ in pairs(departed or [])} - set(living)
    names = [*living, *sorted(gone)]
    if of.group is None:
        held = await _in_lists(look, of, names, found)
        return Crew([Hands(name, held[name], living.get(name), name in gone) for name in names], count, suspects)
    pending = await _pending(look, of, found)
    others = sorted(set(pending) - set(names) - {RETURNED, SUSPECTS})[:_MOST]
    hands = [Hands(name, pending.get(name, 0), living.get(name), name in gone) for name in [*names, *others]]
    return Crew(hands, count, pending.get(SUSPECTS, 0), pending.get(RETURNED, 0))


def facts_of(crew: Crew) -> dict[str, Fact]:
    departed = sum(each.departed for each in crew.hands)
    facts: dict[str, Fact] = {
        "workers": {"said_to_live": crew.workers, "overdue": len(crew.overdue), "taken_for_dead": departed},
        "in_hand": crew.in_hand,
        "suspects": crew.suspects,
    }
    if crew.returned:
        facts["came_back"] = crew.returned
    for each in crew.hands[:_SHOWN]:
        facts[f"worker {text_cut(each.name, 100)}"] = (
            f"{each.held if each.held is not None else '?'} in hand, {_heard(each)}"
        )
    return facts


async def states_of(look: Look, of: QueueKeys, crew: Crew, found: Findings) -> Sequence[StateDetail]:
    """What is in hand, by worker, and what is suspected. A stream shows that with its entries."""
    if of.group is not None:
        return []
    busy = [each.name for each in crew.hands if each.held][:_HANDS_SHOWN]
    states = [await list_state(look, "in hand", of.inflight(name), found, oldest_left=True) for name in busy]
    if crew.suspects:
        states.append(await list_state(look, "suspects", of.suspects, found))
    return states


def judge(crew: Crew, found: Findings) -> None:
    """Adds what is wrong."""
    late = [each for each in crew.overdue if (each.overdue_ms or 0) > _UNREAPED_MS]
    if late:
        jobs, longest = sum(each.held or 0 for each in late), max(each.overdue_ms or 0 for each in late)
        names = ", ".join(text_cut(each.name, 100) for each in late[:EXAMPLES])
        detail = f"{len(late):,} workers, overdue for up to {lasting(longest)}, have {jobs:,} jobs in hand: {names}"
        found.add("worker-overdue", detail, count=jobs)
    if crew.suspects:
        detail = f"{crew.suspects:,} jobs with which more than one worker died wait to be run one at a time"
        found.add("worker-died-twice", detail, count=crew.suspects)


def _heard(each: Hands) -> str:
    if each.departed:
        return "taken for dead"
    if each.overdue_ms is None:
        return "not a worker of Coatcheck's"
    if each.overdue_ms > 0:
        return f"overdue for {lasting(each.overdue_ms)}"
    return f"to be heard of within {lasting(-each.overdue_ms)}"


async def _in_lists(look: Look, of: QueueKeys, names: Sequence[str], found: Findings) -> Mapping[str, int | None]:
    keys = [of.inflight(name) for name in names]
    replies = await look.reader.send([("LLEN", key) for key in keys])
    return {name: found.told(reply, key, None) for name, key, reply in zip(names, keys, replies, strict=True)}


async def _pending(look: Look, of: QueueKeys, found: Findings) -> Mapping[str, int]:
    """By consumer. A group of more consumers than one look may ask about is not asked."""
    group, asking = str(of.group), list[Command]()
    (groups,) = await look.reader.send([("XINFO", "GROUPS", of.ready)])
    for fields in groups if isinstance(groups, list) else []:
        told = dict(zip(fields[::2], fields[1::2], strict=False))
        if text_of(told.get(b"name", b"")) == group and told.get(b"consumers", 0) <= PAGE:
            asking = [("XPENDING", of.ready, group)]
    replies: Sequence[Any] = await look.reader.send(asking)
    consumers = [found.told(reply, of.ready, [0, None, None, []])[3] or [] for reply in replies]
    return {text_of(name): int(count) for name, count in (consumers[0] if consumers else [])}
