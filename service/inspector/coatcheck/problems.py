"""What does not fit in a queue of Coatcheck's: by samples of both ends of each set, and by counting.

Things move while they are looked at. What seems to be in two places, or in none, is asked about a second time, and is
only told if it is so then, too.
"""

import math
from collections.abc import Sequence
from typing import Any, Final

from service.inspector.answers import Problem
from service.inspector.coatcheck.members import INLINE, Member, Members, member_of, record_of
from service.inspector.coatcheck.orphans import orphans
from service.inspector.coatcheck.ready import counting, length
from service.inspector.coatcheck.workers import crew_of, judge
from service.inspector.findings import Findings
from service.inspector.layout import SAMPLE, Look
from service.inspector.payloads import text_cut
from service.inspector.reading import Command, OverBudget
from service.inspector.times import lasting, moment
from service.inspector.weighing import affordable, weighed
from service.keys import QueueKeys

_BODIES_ASKED: Final = 250  #: of each set: a command for each
#: The loop looks at least every second and reclaims as often. What is late by less may just be on its way.
_LATE_MS: Final = 10_000
_TRASH_LATE_MS: Final = 60_000  #: deletions gather, and are put off while a backend is busy
_INDEX_LATE_MS: Final = 1_000


async def problems_of(look: Look, of: QueueKeys, queue: str) -> Sequence[Problem]:
    """Every kind; what was found before the budget ran out is told."""
    looking = _Examination(look, of, queue)
    try:
        await looking.types()
        await looking.standstill()
        await looking.workers()
        await looking.index()
        await looking.members()
        await orphans(look.reader, of, queue, looking.found)
    except OverBudget as error:
        looking.found.add("not-all-looked-at", str(error))
    return looking.found.problems


class _Examination:
    def __init__(self, look: Look, of: QueueKeys, queue: str) -> None:
        self.found = Findings()
        self._look, self._of, self._queue = look, of, queue
        self._reader = look.reader
        self._sets = Members(look.reader, queue)
        self._places = {"delayed": of.delayed, "leased": of.leases, "dead": of.dead, "trash": of.trash}

    async def types(self) -> None:
        """Of every key, whether anything else would notice or not."""
        of = self._of
        zsets = dict.fromkeys((*self._places.values(), self._look.keys.queues, of.workers, of.departed), b"zset")
        hashes = dict.fromkeys((of.bodies, of.trouble, of.moved, of.turns, of.strikes), b"hash")
        wanted = {**zsets, **hashes, of.ready: of.ready_kind.encode(), of.paused: b"string", of.suspects: b"list"}
        replies = await self._reader.send([("TYPE", key) for key in wanted])
        for (key, kind), reply in zip(wanted.items(), replies, strict=True):
            if self.found.told(reply, key, b"none") not in (b"none", kind):
                self.found.add("wrong-type", f"{text_cut(key)} holds another type than it should")

    async def standstill(self) -> None:
        """Due and not moving, in each of the three sets that somebody should work on."""
        of, now = self._of, self._look.now_ms
        late, trash_late = now - _LATE_MS, now - _TRASH_LATE_MS
        replies = await self._reader.send(
            [
                *self._overdue(of.delayed, late),
                *self._overdue(of.leases, late),
                *self._overdue(of.trash, trash_late),
                ("EXISTS", of.paused),
                *counting(of),
            ]
        )
        paused, ready = replies[6], length(of, replies[7:], self.found)
        why = "dispatching is paused" if paused == 1 else f"the ready queue holds {'?' if ready is None else ready}"
        for at, (key, kind, what) in enumerate(
            (
                (of.delayed, "due-not-moving", f"jobs due ({why})"),
                (of.leases, "lease-expired", "leases past their deadline"),
                (of.trash, "trash-not-emptied", "deletions due"),
            )
        ):
            count, first = (self.found.told(reply, key, None) for reply in replies[2 * at : 2 * at + 2])
            if count and first:
                since = moment(first[1])
                lasts = f", the first for {lasting(now - since.ms)}" if since else ""
                self.found.add(
                    kind, f"{what}: {count:,}{lasts}", [member_of(first[0], 0).text], count=count, since=since
                )

    def _overdue(self, key: str, before_ms: int) -> list[Command]:
        return [("ZCOUNT", key, "-inf", before_ms), ("ZRANGE", key, 0, 0, "WITHSCORES")]

    async def workers(self) -> None:
        """Who died, and whose jobs nobody returns."""
        judge(await crew_of(self._look, self._of, self.found), self.found)

    async def index(self) -> None:
        """Whether dispatchers will look at this queue in time."""
        first, second = await self._indexed(), await self._indexed()
        if first and second:
            self.found.add("index-wrong", second)

    async def _indexed(self) -> str | None:
        of, queues = self._of, self._look.keys.queues
        asked = (of.delayed, of.leases, of.trash)
        commands: list[Command] = [("ZRANGE", key, 0, 0, "WITHSCORES") for key in asked]
        replies = await self._reader.send(
            [*commands, ("ZSCORE", queues, self._queue), ("EXISTS", of.paused), ("EXISTS", of.delayed, of.dead)]
        )
        delayed, leases, trash = (
            float(reply[1]) if isinstance(reply, list) and reply else math.inf for reply in replies[:3]
        )
        look, paused, holds = (self.found.told(reply, queues, None) for reply in replies[3:])
        expected = min(math.inf if paused else delayed, leases, trash)
        if look is None:
            return "it is not in the index, and holds jobs" if holds or expected < math.inf else None
        if float(look) > max(0.0, expected) + _INDEX_LATE_MS:
            return "the index tells dispatchers to look at it later than its first job needs"
        return None

    async def members(self) -> None:
        """What the members of each set are, each by itself and beside the other sets."""
        seen: list[Member] = []
        for state, key in self._places.items():
            head, tail, count = await self._sets.ends(key, SAMPLE, self.found)
            shown = [member_of(member, score) for member, score in (*head, *tail)]
            self._judged(state, key, shown, count or 0)
            if state in ("delayed", "leased", "dead"):
                await self._bodies(state, key, shown)
            seen += shown
        await self._twice(seen)
        await self._records(seen)

    def _judged(self, state: str, key: str, shown: Sequence[Member], count: int) -> None:
        of_these = f"of {len(shown):,} looked at (of {count:,})"
        strangers = [each.text for each in shown if each.reference is None]
        foreign = [each.text for each in shown if each.reference and each.reference.queue != self._queue]
        timeless = [each.text for each in shown if moment(each.score) is None]
        if strangers:
            self.found.add("does-not-parse", f"{state}: {len(strangers):,} {of_these} are no references", strangers)
        if foreign:
            self.found.add("does-not-parse", f"{state}: {len(foreign):,} {of_these} are of another queue", foreign)
        if timeless:
            self.found.add("score-no-time", f"{text_cut(key)}: {len(timeless):,} scores {of_these}", timeless)

    async def _bodies(self, state: str, key: str, shown: Sequence[Member]) -> None:
        inline = [each for each in shown if each.backend == INLINE]
        half = _BODIES_ASKED // 2
        asked = inline if len(inline) <= _BODIES_ASKED else [*inline[:half], *inline[-half:]]
        missing = await self._without_body(key, asked)
        missing = await self._without_body(key, missing)
        if missing:
            detail = f"{state}: {len(missing):,} of {len(asked):,} inline jobs looked at have no payload"
            self.found.add("id-without-record", detail, [each.text for each in missing])

    async def _without_body(self, key: str, asked: Sequence[Member]) -> list[Member]:
        if not asked:
            return []
        there: list[Command] = [("HEXISTS", self._of.bodies, each.id) for each in asked]
        replies = await self._reader.send(there)
        bodies = [self.found.told(reply, self._of.bodies, 1) for reply in replies]
        lacking = [each for each, body in zip(asked, bodies, strict=True) if not body]
        [scores] = await self._sets.scores([key], [each.text for each in lacking], self.found)
        return [each for each, score in zip(lacking, scores, strict=True) if score is not None]

    async def _twice(self, seen: Sequence[Member]) -> None:
        suspects = await self._in_two([each.text for each in seen])
        again = await self._in_two(list(suspects))
        for states in sorted(set(again.values())):
            ids = [member for member, where in again.items() if where == states]
            self.found.add("in-two-places", f"{len(ids):,} of {len(seen):,} looked at are {states}", ids)

    async def _in_two(self, members: Sequence[str]) -> dict[str, str]:
        asked = await self._sets.scores(list(self._places.values()), members, self.found)
        held = {
            member: [state for state, score in zip(self._places, scores, strict=True) if score is not None]
            for member, *scores in zip(members, *asked, strict=True)
        }
        return {member: " and ".join(states) for member, states in held.items() if len(states) > 1}

    async def _records(self, seen: Sequence[Member]) -> None:
        trouble = self._of.trouble
        most = affordable(await self._reader.send(weighed(trouble, "HLEN")), SAMPLE)
        ids = list({each.id: each.text for each in seen}.items())[:most]
        [reply] = await self._reader.send([("HMGET", trouble, *[each for each, _ in ids])]) if ids else [[]]
        records: Sequence[Any] = self.found.told(reply, trouble, [])
        broken = [text for (_, text), record in zip(ids, records, strict=False) if record and record_of(record) is None]
        if broken:
            self.found.add(
                "does-not-parse", f"{text_cut(trouble)}: {len(broken):,} records are no JSON objects", broken
            )
