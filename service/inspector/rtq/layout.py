"""redis_task_queue, the small list queue for Dart: JSON envelopes in lists. keys.py draws the layout.

An envelope is the job and its only record: where it lies is its state. In-flight lists and the list of the dead are
shared by all queues, so that they are looked into to tell whose an entry is, as far as one look may. Nothing says since
when an entry is pending or in flight, and there is no pause.
"""

from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import ClassVar

from service.inspector.answers import Entry, Fact, JobDetail, Problem, QueueDetail, QueueSummary, StateDetail
from service.inspector.findings import Findings
from service.inspector.layout import ENDS, Look
from service.inspector.payloads import text_cut
from service.inspector.reading import PAGE, OverBudget
from service.inspector.rtq.entries import Seen, Shared, Sweep, shared, sweep
from service.inspector.rtq.job import job_of
from service.inspector.rtq.keys import DEAD, IN_FLIGHT, PENDING, PREFIX, STATES, RtqKeys
from service.inspector.rtq.problems import problems_of
from service.inspector.structures import counts, dues
from service.inspector.times import Moment


class Rtq:
    """The queues under one prefix."""

    name: ClassVar[str] = "rtq"
    checked_against: ClassVar[str] = "redis_task_queue 0.11.0; by its change log from 0.5"

    def __init__(self, look: Look) -> None:
        self._look, self._reader = look, look.reader
        self._keys = RtqKeys(look.prefix or PREFIX)

    def hint(self, key: str) -> str | None:
        return self._keys.queue_of(key)

    async def queues(self, hints: Collection[str]) -> Sequence[str]:
        """With those whose only tasks are in flight or dead, which the library's own `stats` cannot see."""
        found, asked = set[str](), sorted(hints)
        with suppress(OverBudget):  # what was found so far is true
            found |= (await self._shared(Findings())).queues
            for at in range(0, len(asked), PAGE // 2):
                page = asked[at : at + PAGE // 2]
                there = await self._reader.send([self._exists(queue) for queue in page])
                found |= {queue for queue, it in zip(page, there, strict=True) if isinstance(it, int) and it}
        return sorted(found)

    async def has(self, queue: str) -> bool:
        (there,) = await self._reader.send([self._exists(queue)])
        return (isinstance(there, int) and there > 0) or queue in (await self._shared(Findings())).queues

    async def summary(self, queue: str) -> QueueSummary:
        found = Findings()
        return await self._summed(queue, await self._shared(found), found)

    async def detail(self, queue: str) -> QueueDetail:
        found = Findings()
        common = await self._shared(found)
        summary = await self._summed(queue, common, found)
        states = list[StateDetail]()
        with suppress(OverBudget):  # the summary stands
            for structure in (self._keys.pending(queue), self._keys.delayed(queue)):
                states.append(self._state(await sweep(self._reader, structure, found, ENDS)))
        for seen in (*common.in_flight.values(), common.dead):
            own = seen.of(queue)
            if own or seen is common.dead:
                states.append(self._state(seen, own))
        facts: dict[str, Fact] = {"workers": len(common.in_flight)}
        for key, seen in common.in_flight.items():
            facts[f"worker {text_cut(self._keys.worker_of(key), 80)}"] = f"{seen.total or 0} in flight, of all queues"
        return QueueDetail(summary, states, facts, found.problems)

    async def job(self, queue: str, id: str) -> JobDetail | None:  # noqa: A002  the word that every library uses
        return await job_of(self._look, self._keys, queue, id)

    async def problems(self, queue: str) -> Sequence[Problem]:
        return await problems_of(self._look, self._keys, queue)

    def _exists(self, queue: str) -> tuple[str, str, str]:
        return ("EXISTS", self._keys.pending(queue).key, self._keys.delayed(queue).key)

    async def _shared(self, found: Findings) -> Shared:
        return await shared(self._reader, self._keys, found)

    async def _summed(self, queue: str, common: Shared, found: Findings) -> QueueSummary:
        own = (self._keys.pending(queue), self._keys.delayed(queue))
        states = await counts(self._reader, own, found)
        states |= {IN_FLIGHT: common.count_in_flight(queue), DEAD: common.count_dead(queue)}
        oldest, upcoming = await dues(self._reader, own, self._look.now_ms)
        told = {state: states[state] for state in STATES}
        return QueueSummary(self.name, queue, told, None, oldest, upcoming, found.problems)

    def _state(self, seen: Sweep, own: Sequence[Seen] | None = None) -> StateDetail:
        """`own` are the queue's among those of a shared list."""
        structure = seen.structure
        entries = list(seen.entries if own is None else own)
        if structure.state in (PENDING, IN_FLIGHT):  # of the dead the newest, at the left, is shown first
            entries.reverse()
        told = [_entry(it) for it in entries]
        count = seen.total if own is None else len(own) if seen.whole else None
        at_is = "died" if structure.state == DEAD else structure.at_is
        return StateDetail(structure.state, structure.key, count, at_is, told[:ENDS], told[ENDS:][-ENDS:])


def _entry(seen: Seen) -> Entry:
    if seen.envelope is None:
        return Entry("", seen.at, {"fault": f"no envelope, but {seen.fault}"})
    envelope = seen.envelope
    facts: dict[str, Fact] = {"type": text_cut(envelope.type)}
    if envelope.attempt:
        facts["attempt"] = f"{envelope.attempt} of {envelope.max_retries} retries"
    if envelope.error is not None:
        facts["error"] = text_cut(envelope.error)
    at: Moment | None = seen.at or envelope.dead_at
    return Entry(text_cut(envelope.id), at, facts)
