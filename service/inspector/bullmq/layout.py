"""BullMQ's queues (Node, and its ports): `<prefix>:<queue>:…`.

Up to 5.x a paused queue's waiting ids are in `paused`; 6.x leaves them in `wait` and says so in `meta` alone. Both say
`waiting` of such a job. What each key holds is in keys.py.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final

from service.inspector.answers import Entry, Fact, JobDetail, Problem, QueueDetail, QueueSummary, StateDetail
from service.inspector.bullmq.job import job_detail
from service.inspector.bullmq.keys import PREFIX, QueueKeys, is_marker, markers, priority_of, queue_of, sequence_of
from service.inspector.bullmq.problems import problems_of
from service.inspector.findings import Findings
from service.inspector.layout import Look
from service.inspector.payloads import text_cut
from service.inspector.reading import PAGE, Command, OverBudget
from service.inspector.structures import Structure, counts, dues, ends
from service.inspector.times import Moment, moment
from service.members import text_of

_NAME_BYTES: Final = 200  #: of a job's name; a longer one is not read for a list
_META: Final = ("version", "paused", "concurrency", "max", "duration", "opts.maxLenEvents")


class BullMQ:
    """One look at one Redis. See Layout."""

    name: ClassVar[str] = "bullmq"
    checked_against: ClassVar[str] = "bullmq 5.81.5 and 6.7.0"

    def __init__(self, look: Look) -> None:
        self._look, self._reader = look, look.reader
        self._prefix = look.prefix or PREFIX

    def hint(self, key: str) -> str | None:
        return queue_of(key, self._prefix)

    async def queues(self, hints: Collection[str]) -> Sequence[str]:
        """There is no registry: a queue is what has a `meta`, so that those of BullMQ's predecessor Bull are none."""
        found, asked = list[str](), sorted(hints)
        with suppress(OverBudget):  # what was found so far is true
            for at in range(0, len(asked), PAGE):
                page = asked[at : at + PAGE]
                there = await self._reader.send([("EXISTS", self._keys(queue).of("meta")) for queue in page])
                found += [queue for queue, it in zip(page, there, strict=True) if it == 1]
        return found

    async def has(self, queue: str) -> bool:
        keys = self._keys(queue)
        return bool(await self._reader.ask("EXISTS", keys.of("meta"), *(each.key for each in keys.structures)))

    async def summary(self, queue: str) -> QueueSummary:
        return await self._summary(self._keys(queue), Findings())

    async def detail(self, queue: str) -> QueueDetail:
        keys, found = self._keys(queue), Findings()
        summary = await self._summary(keys, found)
        states = list[StateDetail]()
        facts: Mapping[str, Fact] = {}
        try:
            for each in keys.structures:
                both = await ends(self._reader, each, found)
                head, tail = [await self._entries(keys, each, members) for members in (both.head, both.tail)]
                states.append(StateDetail(each.state, each.key, summary.states[each.state], each.at_is, head, tail))
            facts = await self._facts(keys, found)
        except OverBudget:
            found.add("not-all-looked-at", f"{len(states)} of {len(keys.structures)} states were")
        return QueueDetail(summary, states, facts, found.problems)

    async def job(self, queue: str, id: str) -> JobDetail | None:  # noqa: A002  the word that every library uses
        return await job_detail(self._look, self._keys(queue), id)

    async def problems(self, queue: str) -> Sequence[Problem]:
        return await problems_of(self._look, self._keys(queue))

    def _keys(self, queue: str) -> QueueKeys:
        return QueueKeys(queue, self._prefix)

    async def _summary(self, keys: QueueKeys, found: Findings) -> QueueSummary:
        states = await counts(self._reader, keys.structures, found)
        oldest, following = await dues(self._reader, keys.structures, self._look.now_ms)
        for each in (keys.structure("waiting"), keys.structure("paused")):
            if count := states[each.state]:
                states[each.state] = count - len(markers(await ends(self._reader, each, found)))
        meta = await self._meta(keys, found)
        paused = None if meta is None else "paused" in meta
        return QueueSummary(self.name, keys.queue, states, paused, oldest, following, found.problems)

    async def _meta(self, keys: QueueKeys, found: Findings) -> Mapping[str, str] | None:
        """What a queue says of itself; None if it cannot be read. Its values are numbers and a version."""
        key = keys.of("meta")
        sizes = await self._reader.send([("HSTRLEN", key, name) for name in _META])
        if found.told(sizes[0], key, None) is None:
            return None
        short = [name for name, size in zip(_META, sizes, strict=True) if isinstance(size, int) and size <= _NAME_BYTES]
        values = await self._reader.send([("HGET", key, name) for name in short])
        return {name: text_cut(it) for name, it in zip(short, values, strict=True) if isinstance(it, bytes)}

    async def _entries(
        self, keys: QueueKeys, structure: Structure, members: Iterable[tuple[bytes, Moment | None]]
    ) -> list[Entry]:
        """With the name of each job, and what its state is known by."""
        jobs = [(text_of(member), at) for member, at in members if not is_marker(text_of(member))]
        if not jobs:
            return []
        extras = await self._extras(keys, structure, [job for job, _ in jobs])
        return [Entry(job, at, extra) for (job, at), extra in zip(jobs, extras, strict=True)]

    async def _extras(self, keys: QueueKeys, structure: Structure, jobs: Sequence[str]) -> list[dict[str, Fact]]:
        sizes = await self._reader.send(
            [("HSTRLEN", keys.of(job), field) for job in jobs for field in ("name", "data")]
        )
        short = [size if isinstance(size, int) and size <= _NAME_BYTES else 0 for size in sizes[::2]]
        asked = [job for job, size in zip(jobs, short, strict=True) if size]
        names = dict(
            zip(asked, await self._reader.send([("HGET", keys.of(job), "name") for job in asked]), strict=True)
        )
        known = await self._known_by(keys, structure, jobs)
        return [
            {
                **({"name": text_cut(names[job])} if isinstance(names.get(job), bytes) else {}),
                **({"data_bytes": size} if isinstance(size, int) else {}),
                **fact,
            }
            for job, size, fact in zip(jobs, sizes[1::2], known, strict=True)
        ]

    async def _known_by(self, keys: QueueKeys, structure: Structure, jobs: Sequence[str]) -> list[dict[str, Fact]]:
        """A delayed job's place within its millisecond, a prioritized one's priority, an active one's lock."""
        if structure.state == "active":
            locks = await self._reader.send([("PTTL", keys.part(job, "lock")) for job in jobs])
            return [{"lock_ends": self._lock_ends(lock)} for lock in locks]
        read = {"delayed": sequence_of, "prioritized": priority_of}.get(structure.state)
        if read is None:
            return [{}] * len(jobs)
        name = "sequence" if structure.state == "delayed" else "priority"
        scores = (await self._reader.send([("ZMSCORE", structure.key, *jobs)]))[0]
        if isinstance(scores, Exception):
            return [{}] * len(jobs)
        return [{name: read(float(score))} if score is not None else {} for score in scores]

    def _lock_ends(self, ttl_ms: Any) -> Fact:
        if not isinstance(ttl_ms, int) or ttl_ms == -2:
            return "no lock"
        return Moment(self._look.now_ms + ttl_ms) if ttl_ms >= 0 else "never"

    async def _facts(self, keys: QueueKeys, found: Findings) -> dict[str, Fact]:
        """Whatever else there is of a queue."""
        facts: dict[str, Fact] = {f"meta {name}": it for name, it in (await self._meta(keys, found) or {}).items()}
        commands: Sequence[Command] = [
            ("GETRANGE", keys.of("id"), 0, 31),
            ("GETRANGE", keys.of("pc"), 0, 31),
            ("GETRANGE", keys.of("limiter"), 0, 31),
            ("PTTL", keys.of("limiter")),
            ("PTTL", keys.of("stalled-check")),
            ("XLEN", keys.of("events")),
            ("SCARD", keys.of("stalled")),
            ("ZCARD", keys.of("repeat")),
            ("ZRANGE", keys.of("repeat"), 0, 0, "WITHSCORES"),
            ("ZRANGE", keys.of("marker"), 0, 0, "WITHSCORES"),
        ]
        replies = await self._reader.send(commands)
        told = [found.told(it, str(command[1]), None) for it, command in zip(replies, commands, strict=True)]
        last_id, priorities, limited, limiter_ms, check_ms, events, stalled, schedulers, scheduled, marker = told
        texts = {"last_id": last_id, "priorities_given": priorities, "rate_limit_used": limited}
        facts |= {name: text_cut(it) for name, it in texts.items() if it}
        facts |= {"events": events, "marked_stalled": stalled, "schedulers": schedulers}
        for name, ttl_ms in (("rate_limit_ends", limiter_ms), ("next_stalled_check", check_ms)):
            if ttl_ms is not None and ttl_ms >= 0:
                facts[name] = Moment(self._look.now_ms + ttl_ms)
        if scheduled:
            facts["next_scheduled"] = moment(scheduled[1])
        return facts if marker is None else facts | {"marker": _marker(marker)}


def _marker(reply: Sequence[bytes]) -> Fact:
    """What the marker set tells the workers that wait: `0` is now, `1` has the next due time in ms as its score."""
    if not reply:
        return "no"
    return "now" if reply[0] == b"0" else moment(reply[1]) or "now"
