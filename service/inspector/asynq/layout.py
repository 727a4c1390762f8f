"""Asynq, the Go library: ids in lists and sorted sets, one hash a task. keys.py draws the layout.

Asynq itself believes the hash's `state`, and then fails where the structure of that name does not hold the id. Here the
structure counts: from there, and from nowhere else, a task is taken.
"""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import ClassVar, Final

from service.inspector.answers import Entry, Fact, JobDetail, Problem, QueueDetail, QueueSummary, StateDetail
from service.inspector.asynq.groups import Groups, groups_of
from service.inspector.asynq.job import job_of
from service.inspector.asynq.keys import AGGREGATING, QUEUES, SECONDS, QueueKeys, queue_of
from service.inspector.asynq.problems import problems_of
from service.inspector.asynq.servers import serving
from service.inspector.asynq.tasks import briefly, number, since_of
from service.inspector.findings import Findings
from service.inspector.layout import Look
from service.inspector.payloads import text_cut
from service.inspector.reading import PAGE, OverBudget
from service.inspector.structures import Structure, counts, dues, earliest, ends
from service.inspector.times import Moment, moment
from service.members import text_of

_GROUPS_SHOWN: Final = 10  #: with both their ends
_SERVERS_SHOWN: Final = 10
_COUNTERS: Final = ("processed", "failed")


class Asynq:
    """The layout of hibiken/asynq. Leases, by which active tasks are judged here, came with 0.22."""

    name: ClassVar[str] = "asynq"
    checked_against: ClassVar[str] = "asynq 0.26.0 and 785bb72 of May 2026; by its sources from 0.22"

    def __init__(self, look: Look) -> None:
        self._look = look
        self._reader = look.reader

    def hint(self, key: str) -> str | None:
        return queue_of(key)

    async def queues(self, hints: Collection[str]) -> Sequence[str]:
        found = set[str]()
        try:
            found |= await self._registered()
            for queue in set(hints) - found:
                if await self.has(queue):
                    found.add(queue)
        except OverBudget:
            pass  # what was found so far is true
        return sorted(found)

    async def has(self, queue: str) -> bool:
        keys = QueueKeys(queue)
        others = ("groups", "aggregation_sets", "lease", "paused", *_COUNTERS)
        names = [*(it.key for it in keys.structures), *(keys[name] for name in others)]
        known, there = await self._reader.send([("SISMEMBER", QUEUES, queue), ("EXISTS", *names)])
        return known == 1 or (isinstance(there, int) and there > 0)

    async def summary(self, queue: str) -> QueueSummary:
        found = Findings()
        return (await self._summed(queue, found))[0]

    async def detail(self, queue: str) -> QueueDetail:
        keys, found = QueueKeys(queue), Findings()
        summary, groups = await self._summed(queue, found)
        states, facts = list[StateDetail](), dict[str, Fact]()
        try:
            for structure in (*keys.structures, *_of_groups(keys, groups)):
                states.append(await self._state(keys, structure, found))
            facts = await self._facts(keys, groups, found)
        except OverBudget as error:
            found.add("not-all-looked-at", str(error))
        return QueueDetail(summary, states, facts, found.problems)

    async def job(self, queue: str, id: str) -> JobDetail | None:  # noqa: A002  as in Layout
        return await job_of(self._look, queue, id)

    async def problems(self, queue: str) -> Sequence[Problem]:
        return await problems_of(self._look, queue)

    async def _registered(self) -> set[str]:
        found, cursor = set[str](), b"0"
        while True:
            (reply,) = await self._reader.send([("SSCAN", QUEUES, cursor, "COUNT", PAGE)])
            if isinstance(reply, Exception):
                return found
            cursor, names = reply
            found |= {text_of(name) for name in names}
            if cursor == b"0":
                return found

    async def _summed(self, queue: str, found: Findings) -> tuple[QueueSummary, Groups]:
        keys, reader = QueueKeys(queue), self._reader
        states = await counts(reader, keys.structures, found)
        groups = await groups_of(reader, keys, found)
        oldest, upcoming = await dues(reader, keys.structures, self._look.now_ms)
        (reply,) = await reader.send([("EXISTS", keys["paused"])])
        paused = found.told(reply, keys["paused"], None)
        summary = QueueSummary(
            self.name,
            queue,
            states | {AGGREGATING: groups.tasks},
            paused=None if paused is None else bool(paused),
            oldest_due=earliest([oldest, await self._pending_since(keys)]),
            next_due=upcoming,
            problems=found.problems,
        )
        return summary, groups

    async def _pending_since(self, keys: QueueKeys) -> Moment | None:
        """Of the task that leaves next. One that was run by hand, or given back, has none."""
        (id_,) = await self._reader.send([("LINDEX", keys["pending"], -1)])
        return await since_of(self._reader, keys, text_of(id_)) if isinstance(id_, bytes) else None

    async def _state(self, keys: QueueKeys, structure: Structure, found: Findings) -> StateDetail:
        both = await ends(self._reader, structure, found)
        told = await briefly(self._reader, keys, [text_of(id_) for id_, _ in both.members])

        def entries(members: Sequence[tuple[bytes, Moment | None]]) -> list[Entry]:
            return [Entry(text_cut(text_of(id_)), at, told.get(text_of(id_), {})) for id_, at in members]

        return StateDetail(
            structure.state, structure.key, both.count, structure.at_is, entries(both.head), entries(both.tail)
        )

    async def _facts(self, keys: QueueKeys, groups: Groups, found: Findings) -> dict[str, Fact]:
        today = f"{datetime.fromtimestamp(self._look.now_ms / 1000, UTC):%Y-%m-%d}"
        facts: dict[str, Fact] = {"groups": groups.listed}
        for counter in _COUNTERS:
            facts[counter] = await number(self._reader, keys[counter], found)
            facts[f"{counter}_today"] = await number(self._reader, keys.day(counter, today), found)
        paused_since = moment(await number(self._reader, keys["paused"], found), SECONDS)
        if paused_since is not None:
            facts["paused_since"] = paused_since
        servers = await serving(self._look, keys.queue, found)
        facts["servers"] = None if servers is None else len(servers)
        for server in (servers or [])[:_SERVERS_SHOWN]:
            facts[f"server {server.host}:{server.pid}"] = (
                f"{server.status}, {server.active} of {server.concurrency} tasks in hand"
            )
        return facts


def _of_groups(keys: QueueKeys, groups: Groups) -> list[Structure]:
    return [keys.grouped(key) for key in [*map(keys.group, groups.sizes), *groups.sets][:_GROUPS_SHOWN]]
