"""What does not fit in an Asynq queue: by counts where a command can count, by samples where records must be read.

Tasks move while they are looked at. Whatever looks wrong in a sample is looked at once more, and told if it still is.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Final

from service.inspector.answers import Problem
from service.inspector.asynq.groups import groups_of
from service.inspector.asynq.keys import SECONDS, SERVERS, QueueKeys
from service.inspector.asynq.sample import Sample
from service.inspector.asynq.servers import serving
from service.inspector.asynq.strays import strays
from service.inspector.asynq.tasks import number, since_of
from service.inspector.asynq.verdicts import LATE_MS
from service.inspector.findings import Findings
from service.inspector.layout import EXAMPLES, Look
from service.inspector.payloads import text_cut
from service.inspector.reading import Command, OverBudget
from service.inspector.structures import Structure, no_times
from service.inspector.times import FIRST_MS, Moment, moment
from service.members import text_of

_PENDING_MS: Final = 60_000  #: a task that waits for so long, while no server works for its queue, waits for one
_STALE_SET_MS: Final = 120_000  #: the recoverer looks for sets whose time is over every minute


async def problems_of(look: Look, queue: str) -> Sequence[Problem]:
    """Cheap counts first, so that they are told even where samples take all that may be read."""
    return await _Queue(look, queue).problems()


class _Queue:
    def __init__(self, look: Look, queue: str) -> None:
        self._look, self._reader, self._now_ms = look, look.reader, look.now_ms
        self._keys = QueueKeys(queue)
        self._found = Findings()

    async def problems(self) -> Sequence[Problem]:
        steps: list[Callable[[], Awaitable[None]]] = [
            self._scores,
            self._overdue,
            self._pending,
            self._groups,
            self._leases,
            self._counters,
            Sample(self._look, self._keys, self._found).compare,
            lambda: strays(self._look, self._keys, self._found),
        ]
        for step in steps:
            try:
                await step()
            except OverBudget as error:
                self._found.add("not-all-looked-at", str(error))
                break
        return self._found.problems

    async def _scores(self) -> None:
        for structure in (*self._keys.structures, self._keys.lease):
            await no_times(self._reader, structure, self._found)

    async def _overdue(self) -> None:
        """A paused queue's tasks become pending all the same."""
        for structure in self._keys.structures:
            if structure.waiting:
                count, first, ids = await self._before(structure, self._now_ms - LATE_MS)
                if count:
                    detail = f"{count:,} due in {structure.state}, which a server of the queue would move within 5 s"
                    self._found.add("due-not-moving", detail, ids, count=count, since=first)

    async def _pending(self) -> None:
        pending, paused, active = (self._keys[name] for name in ("pending", "paused", "active"))
        commands: list[Command] = [
            ("LLEN", pending),
            ("LINDEX", pending, -1),
            ("EXISTS", paused),
            ("LLEN", active),
        ]
        replies = zip(commands, await self._reader.send(commands), strict=True)
        count, oldest, is_paused, in_hand = (self._found.told(reply, str(it[1]), None) for it, reply in replies)
        if not count or oldest is None:
            return
        since = await since_of(self._reader, self._keys, text_of(oldest))
        why = "the queue is paused" if is_paused else None if in_hand else await self._unserved()
        if why and (since is None or since.ms < self._now_ms - _PENDING_MS):
            self._found.add("due-not-moving", f"{count:,} pending: {why}", [text_of(oldest)], count=count, since=since)

    async def _unserved(self) -> str | None:
        servers = await serving(self._look, self._keys.queue, self._found)
        return f"no live server in {SERVERS} takes tasks of this queue" if servers == [] else None

    async def _groups(self) -> None:
        groups = await groups_of(self._reader, self._keys, self._found)
        for key, back_at in groups.back_at.items():
            await no_times(self._reader, self._keys.grouped(key), self._found)
            if back_at and back_at.ms < self._now_ms - _STALE_SET_MS:
                detail = f"{groups.sets[key] or 0:,} tasks in a set that should have gone back to its group"
                self._found.add("due-not-moving", f"{detail}: {text_cut(key)}", count=groups.sets[key], since=back_at)
        for name in groups.sizes:
            await no_times(self._reader, self._keys.grouped(self._keys.group(name)), self._found)

    async def _leases(self) -> None:
        count, first, ids = await self._before(self._keys.lease, self._now_ms - LATE_MS)
        if count:
            detail = f"{count:,} leases are over, and no server has taken their tasks back"
            self._found.add("lease-expired", detail, ids, count=count, since=first)

    async def _counters(self) -> None:
        today = f"{datetime.fromtimestamp(self._now_ms / 1000, UTC):%Y-%m-%d}"
        for counter in ("processed", "failed"):
            await number(self._reader, self._keys[counter], self._found)
            await number(self._reader, self._keys.day(counter, today), self._found)

    async def _before(self, structure: Structure, ms: int) -> tuple[int, Moment | None, list[str]]:
        """How many scores that are times lie before `ms`, the first of them, and some of their members."""
        key, span = structure.key, (FIRST_MS * SECONDS, f"({ms * SECONDS:.3f}")
        count, rows = await self._reader.send(
            [
                ("ZCOUNT", key, *span),
                ("ZRANGE", key, *span, "BYSCORE", "LIMIT", 0, EXAMPLES, "WITHSCORES"),
            ]
        )
        rows = self._found.told(rows, key, [])
        return (
            self._found.told(count, key, 0),
            moment(rows[1], SECONDS) if rows else None,
            list(map(text_of, rows[::2])),
        )
