"""Coatcheck's own layout, as service/keys.py spells it.

States are those that the service itself tells of: future and overdue (both in the delayed set), leased, ready, dead,
trash. A ready list holds payloads without names: what is delivered has left Coatcheck, and its reference with it. What
workers have in hand of a list is not part of it any more, of a stream it still is.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Final

from service.inspector.answers import Entry, Fact, JobDetail, Problem, QueueDetail, QueueSummary, StateDetail
from service.inspector.coatcheck.job import job_detail
from service.inspector.coatcheck.members import INLINE, Members, member_of
from service.inspector.coatcheck.problems import problems_of
from service.inspector.coatcheck.ready import counting, length, ready_state
from service.inspector.coatcheck.workers import crew_of, facts_of, states_of
from service.inspector.findings import Findings
from service.inspector.layout import ENDS, Look
from service.inspector.payloads import text_cut
from service.inspector.reading import PAGE, Command
from service.inspector.times import FIRST_MS, Moment, moment
from service.inspector.weighing import afford
from service.keys import LAYOUT, QueueKeys
from service.members import text_of

STATES: Final = ("future", "overdue", "leased", "ready", "dead", "trash")
_SAMPLES: Final = 5  #: of MEMORY USAGE: constant time
_QUEUE_PAGES: Final = 10  #: of the index
_RECORD_BYTES: Final = 1024  #: of trouble; a larger one is no record of ours
_AT_IS: Final = {"delayed": "due", "leased": "lease ends", "dead": "died", "trash": "deletion is due"}


class Coatcheck:
    """Queues of the prefix that the settings say."""

    name: ClassVar[str] = "coatcheck"
    checked_against: ClassVar[str] = f"this release, layout {LAYOUT}"

    def __init__(self, look: Look) -> None:
        self._look = look
        self._reader = look.reader

    def hint(self, key: str) -> str | None:
        return self._look.keys.queue_of(key)

    async def queues(self, hints: Collection[str]) -> Sequence[str]:
        found, index = set(hints), self._look.keys.queues
        most = await afford(self._reader, index, "ZCARD", PAGE)
        for page in range(_QUEUE_PAGES if most else 0):
            [reply] = await self._reader.send([("ZRANGE", index, page * most, page * most + most - 1)])
            if isinstance(reply, Exception):  # what the index is instead is told with each queue
                break
            found |= set(map(text_of, reply))
            if len(reply) < most:
                break
        return sorted(found)

    async def has(self, queue: str) -> bool:
        of = self._of(queue)
        jobs = (of.delayed, of.leases, of.dead, of.trash, of.ready, of.bodies, of.trouble, of.moved, of.paused)
        keys = (*jobs, of.workers, of.departed, of.suspects)
        there, listed = await self._reader.send([("EXISTS", *keys), ("ZSCORE", self._look.keys.queues, queue)])
        return bool(there) or isinstance(listed, bytes)

    async def summary(self, queue: str) -> QueueSummary:
        return await self._summary(queue, Findings())

    async def detail(self, queue: str) -> QueueDetail:
        found, of = Findings(), self._of(queue)
        summary = await self._summary(queue, found)
        sets = Members(self._reader, queue)
        states = []
        for state, key in (("delayed", of.delayed), ("leased", of.leases), ("dead", of.dead), ("trash", of.trash)):
            head, tail, count = await sets.ends(key, ENDS, found)
            shown = [await self._entries(of, state, each, found) for each in (head, tail)]
            states.append(StateDetail(state, key, count, _AT_IS[state], *shown))
        crew = await crew_of(self._look, of, found)
        states[2:2] = [await ready_state(self._look, of, found), *await states_of(self._look, of, crew, found)]
        facts = {**await self._facts(of, queue, found), **facts_of(crew)}
        return QueueDetail(summary, states, facts, found.problems)

    async def job(self, queue: str, id: str) -> JobDetail | None:  # noqa: A002  the word that every library uses
        return await job_detail(self._look, self._of(queue), queue, id)

    async def problems(self, queue: str) -> Sequence[Problem]:
        return await problems_of(self._look, self._of(queue), queue)

    def _of(self, queue: str) -> QueueKeys:
        return self._look.keys.queue(queue)

    async def _summary(self, queue: str, found: Findings) -> QueueSummary:
        of, now = self._of(queue), self._look.now_ms
        keys = (of.delayed, of.delayed, of.delayed, of.delayed, of.leases, of.dead, of.trash, of.paused)
        replies = await self._reader.send(
            [
                ("ZCARD", of.delayed),
                ("ZCOUNT", of.delayed, "-inf", now),
                ("ZRANGE", of.delayed, FIRST_MS, now, "BYSCORE", "LIMIT", 0, 1, "WITHSCORES"),
                ("ZRANGE", of.delayed, f"({now}", "+inf", "BYSCORE", "LIMIT", 0, 1, "WITHSCORES"),
                ("ZCARD", of.leases),
                ("ZCARD", of.dead),
                ("ZCARD", of.trash),
                ("EXISTS", of.paused),
                *counting(of),
            ]
        )
        told = [found.told(reply, key, None) for reply, key in zip(replies, keys, strict=False)]
        delayed, overdue, first, following, leased, dead, trash, paused = told
        ready = length(of, replies[-2:], found)
        future = None if delayed is None or overdue is None else max(0, delayed - overdue)
        counts = (future, overdue, leased, ready, dead, trash)
        return QueueSummary(
            self.name,
            queue,
            dict(zip(STATES, counts, strict=True)),
            paused=None if paused is None else bool(paused),
            oldest_due=_score_of(first),
            next_due=_score_of(following),
            problems=found.problems,
        )

    async def _entries(
        self, of: QueueKeys, state: str, members: Sequence[tuple[bytes, float]], found: Findings
    ) -> Sequence[Entry]:
        """With what else is kept of them."""
        shown = [member_of(member, score) for member, score in members]
        sizes = await self._reader.send([("HSTRLEN", of.bodies, each.id) for each in shown])
        troubles = await self._troubles(of, [each.id for each in shown], found)
        entries = []
        for each, size, trouble in zip(shown, sizes, troubles, strict=True):
            facts: dict[str, Fact] = {"backend": each.backend or "not a reference"}
            if each.backend == INLINE:
                facts["payload_bytes"] = found.told(size, of.bodies, 0)
            if state == "leased":
                facts["deadline_passed"] = each.score < self._look.now_ms
            if trouble is not None:
                facts["trouble"] = text_cut(trouble)
            entries.append(Entry(text_cut(each.text), moment(each.score), facts))
        return entries

    async def _troubles(self, of: QueueKeys, ids: Sequence[str], found: Findings) -> list[bytes | None]:
        """The record of each, None where there is none, or one that is too large to be one."""
        lengths = await self._reader.send([("HSTRLEN", of.trouble, each) for each in ids])
        sizes = [found.told(length, of.trouble, 0) for length in lengths]
        there = [each for each, size in zip(ids, sizes, strict=True) if 0 < size <= _RECORD_BYTES]
        replies = await self._reader.send([("HGET", of.trouble, each) for each in there])
        records = {each: found.told(reply, of.trouble, None) for each, reply in zip(there, replies, strict=True)}
        return [records.get(each) for each in ids]

    async def _facts(self, of: QueueKeys, queue: str, found: Findings) -> Mapping[str, Fact]:
        keys = (of.delayed, of.bodies, of.leases, of.ready, of.dead, of.trash, of.trouble, of.moved)
        weights: list[Command] = [("MEMORY", "USAGE", key, "SAMPLES", _SAMPLES) for key in keys]
        replies = await self._reader.send(
            [
                ("HLEN", of.bodies),
                ("HEXISTS", of.bodies, "largest"),
                ("HLEN", of.trouble),
                ("HLEN", of.moved),
                ("ZCOUNT", of.leases, "-inf", f"({self._look.now_ms}"),
                ("ZSCORE", self._look.keys.queues, queue),
                *weights,
            ]
        )
        named = (of.bodies, of.bodies, of.trouble, of.moved, of.leases, self._look.keys.queues)
        bodies, largest, trouble, moved, late, look = (
            found.told(reply, key, None) for reply, key in zip(replies, named, strict=False)
        )
        facts: dict[str, Fact] = {
            "inline_payloads": None if bodies is None or largest is None else bodies - largest,
            "jobs_with_trouble": trouble,
            "jobs_moved": moved,
            "leases_past_their_deadline": late,
            "next_look": moment(look) or (text_cut(look) if look is not None else "not in the index"),
            "redis_bytes_about": sum(reply for reply in replies[len(named) :] if isinstance(reply, int)),
        }
        return facts | await self._samples(of, queue, found)

    async def _samples(self, of: QueueKeys, queue: str, found: Findings) -> dict[str, Fact]:
        """Shares among as many as one page."""
        sets, facts = Members(self._reader, queue), dict[str, Fact]()
        delayed = await sets.sample(of.delayed, found)
        backends = Counter(member_of(member, 0).backend or "not a reference" for member in delayed)
        facts["backends"] = {"of_delayed_looked_at": len(delayed), **dict(backends.most_common(20))}
        dead = [member_of(member, 0).id for member in await sets.sample(of.dead, found)]
        records = await self._reader.send([("HMGET", of.trouble, *dead)]) if dead else [[]]
        reasons = Counter(sets.reason(record) for record in found.told(records[0], of.trouble, []))
        facts["dead_reasons"] = {"of_dead_looked_at": len(dead), **dict(reasons.most_common(20))}
        return facts


def _score_of(first: Any) -> Moment | None:
    return moment(first[1]) if first else None
