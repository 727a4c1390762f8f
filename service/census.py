"""What Redis holds, by bounded reads: for gauges, for people, for the loops that keep house. Looking changes nothing.

Constant-time commands and pages only, many in one round trip. Not repeated: whoever looks can look again.
"""

import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from service import pages
from service.clock import ServerClock
from service.keys import Keys, QueueKeys
from service.members import text_of
from service.records import Counts
from service.transport import Encodable, Transport

PAGE: Final = 1000  #: members a command: about 0.2 ms of Redis
_COMMANDS: Final = 9  #: of one queue's counts
#: Queues in one write, _COMMANDS each. With more, one look would be Redis's only work for milliseconds.
_COUNTED_AT_ONCE: Final = 110


@dataclass(frozen=True, slots=True)
class Server:
    """What Redis says of itself."""

    version: tuple[int, ...]
    eviction: str  #: maxmemory-policy
    used_bytes: int
    max_bytes: int  #: 0: no limit

    @property
    def memory_ratio(self) -> float:
        """used_memory / maxmemory; 0 without a limit."""
        return self.used_bytes / self.max_bytes if self.max_bytes else 0.0


class Census:
    """Every method raises RedisUnavailable if Redis cannot be asked."""

    def __init__(self, transport: Transport, keys: Keys, clock: ServerClock) -> None:
        self._transport = transport
        self._keys = keys
        self._clock = clock

    async def server(self) -> Server:
        info = _info(await self._transport.send([("INFO", "server"), ("INFO", "memory")]))
        return Server(
            version=tuple(int(part) for part in re.findall(r"\d+", info["redis_version"])[:3]),
            eviction=info.get("maxmemory_policy", "noeviction"),
            used_bytes=int(info["used_memory"]),
            max_bytes=int(info.get("maxmemory", 0)),
        )

    async def now_ms(self) -> int:
        """Redis's own time, not what this process takes it for."""
        seconds, micros = (await self._transport.send([("TIME",)]))[0]
        return int(seconds) * 1000 + int(micros) // 1000

    async def memory_ratio(self) -> float:
        """used_memory / maxmemory, of the very Redis that the delayed sets are in."""
        info = _info(await self._transport.send([("INFO", "memory")]))
        most = int(info.get("maxmemory", 0))
        return int(info["used_memory"]) / most if most else 0.0

    async def queues(self) -> AsyncIterator[list[str]]:
        """Every queue in the index, in pages, the most urgent first. Changes under way may repeat or skip some."""
        offset = 0
        while True:
            page = await self.first_queues(PAGE, offset)
            if page:
                yield page
            if len(page) < PAGE:
                return
            offset += PAGE

    async def first_queues(self, limit: int, offset: int = 0) -> list[str]:
        command = ("ZRANGE", self._keys.queues, offset, offset + limit - 1)
        return [text_of(queue) for queue in (await self._transport.send([command]))[0]]

    async def some_queues(self, cursor: int, about: int) -> tuple[int, list[str]]:
        """About so many queues of the index, from `cursor` on, and where to go on (0: that was the end).

        In no order, for the index's own changes all the time. A queue that is in it throughout is not passed over, and
        may come twice while the index grows or shrinks. A short index comes as a whole.
        """
        reply, flat = (await self._transport.send([("ZSCAN", self._keys.queues, cursor, "COUNT", about)]))[0]
        return int(reply), list(dict.fromkeys(map(text_of, flat[::2])))

    async def number_of_queues(self) -> int:
        return int((await self._transport.send([("ZCARD", self._keys.queues)]))[0])

    async def not_in_index(self, queues: Sequence[str]) -> int:
        """How many of these have nothing in Redis."""
        if not queues:
            return 0
        return int((await self._transport.send([("ZMSCORE", self._keys.queues, *queues)]))[0].count(None))

    async def stray_queues(self, cursor: int, steps: int) -> tuple[int, set[str]]:
        """Queues that own a sorted set and are not in the index, by `steps` calls of SCAN from `cursor`.

        Returns where to go on (0: the end), and the queues.
        """
        found: set[str] = set()
        for _ in range(steps):
            command = ("SCAN", cursor, "MATCH", self._keys.pattern, "COUNT", PAGE, "TYPE", "zset")
            reply, members = (await self._transport.send([command]))[0]
            cursor = int(reply)
            found |= {queue for member in members if (queue := self._keys.queue_of(text_of(member))) is not None}
            if cursor == 0:
                break
        return cursor, await self._not_in_the_index(sorted(found))

    async def counts(self, queues: Sequence[str]) -> list[Counts | Exception]:
        """How many jobs each queue holds, by state. One with a key of a wrong type gives its error, and hides none."""
        chunks = [queues[at : at + _COUNTED_AT_ONCE] for at in range(0, len(queues), _COUNTED_AT_ONCE)]
        return [counts for chunk in chunks for counts in await self._counted(chunk)]

    async def _counted(self, queues: Sequence[str]) -> list[Counts | Exception]:
        now_ms = self._clock.now_ms()
        keys = [self._keys.queue(queue) for queue in queues]
        kinds = await self._transport.send([("TYPE", of.ready) for of in keys], raising=False)
        commands = [command for of, kind in zip(keys, kinds, strict=True) for command in _counting(of, kind, now_ms)]
        replies = iter(await self._transport.send(commands, raising=False))
        return [_counts(of, now_ms, [next(replies) for _ in range(_COMMANDS)]) for of in keys]

    async def _not_in_the_index(self, queues: Sequence[str]) -> set[str]:
        missing: set[str] = set()
        for start in range(0, len(queues), PAGE):
            page = queues[start : start + PAGE]
            scores = (await self._transport.send([("ZMSCORE", self._keys.queues, *page)]))[0]
            missing |= {queue for queue, score in zip(page, scores, strict=True) if score is None}
        return missing

    async def dead(self, queues: Sequence[str]) -> list[tuple[int, int | None]]:
        """Of each queue: how many jobs are dead, and when the first of them died, ms."""
        keys = [self._keys.queue(queue).dead for queue in queues]
        counts = await self._transport.send([("ZCARD", key) for key in keys], raising=False) if keys else []
        some = [key for key, n in zip(keys, counts, strict=True) if not isinstance(n, Exception) and n]
        heads: list[tuple[Encodable, ...]] = [("ZRANGE", key, 0, 0, "WITHSCORES") for key in some]
        firsts = dict(zip(some, await self._transport.send(heads, raising=False) if heads else [], strict=True))

        def told(key: str, n: Any) -> tuple[int, int | None]:
            first = firsts.get(key)
            return (0, None) if first is None or isinstance(first, Exception) else (n, _score(first))

        return [told(key, n) for key, n in zip(keys, counts, strict=True)]

    async def dead_among(self, queue: str, members: Sequence[str]) -> int:
        """How many of these are dead now; at most 1,000 are asked about."""
        if not members:
            return 0
        scores = (await self._transport.send([("ZMSCORE", self._keys.queue(queue).dead, *members[:PAGE])]))[0]
        return sum(score is not None for score in scores)

    async def oldest_dead(self, queue: str, limit: int, before_ms: int | None = None) -> list[str]:
        """Members of the dead set, the longest dead first; only those that died at `before_ms` or earlier, if given."""
        most = "+inf" if before_ms is None else before_ms
        command = ("ZRANGE", self._keys.queue(queue).dead, "-inf", most, "BYSCORE", "LIMIT", 0, limit)
        return [text_of(member) for member in (await self._transport.send([command]))[0]]


def _counting(of: QueueKeys, kind: Any, now_ms: int) -> list[tuple[Encodable, ...]]:
    nothing: tuple[Encodable, ...] = ("EXISTS", of.tag)  # no key has that name: 0
    usable = kind == of.ready_kind.encode()
    return [
        ("ZCARD", of.delayed),
        ("ZCOUNT", of.delayed, "-inf", now_ms),
        ("ZCARD", of.leases),
        nothing if not usable else ("LLEN" if of.group is None else "XLEN", of.ready),
        nothing if not usable or of.group is None else ("XINFO", "GROUPS", of.ready),
        ("ZCARD", of.dead),
        ("ZCARD", of.trash),
        ("EXISTS", of.paused),
        ("ZRANGE", of.delayed, 0, 0, "WITHSCORES"),
    ]


def _counts(of: QueueKeys, now_ms: int, replies: list[Any]) -> Counts | Exception:
    for reply in replies:
        if isinstance(reply, Exception):
            return reply
    delayed, overdue, leased, entries, groups, dead, trash, paused, first = replies
    ready = unfinished(entries, groups, of.group) if groups else entries
    return Counts(now_ms, delayed - overdue, overdue, leased, ready, dead, trash, bool(paused), _score(first))


def unfinished(entries: int, groups: list[list[Any]], group: str | None) -> int:
    """As scripts/lib/ready.lua counts a stream: what the group has not read or not acknowledged; else all entries."""
    for fields in groups:
        of = dict(zip(fields[::2], fields[1::2], strict=True))
        if text_of(of[b"name"]) == group and of.get(b"lag") is not None:
            return int(of[b"lag"]) + int(of[b"pending"])
    return entries


def _score(first: list[bytes]) -> int | None:
    return pages.ms_of(first[1]) if first else None


def _info(replies: list[Any]) -> dict[str, str]:
    lines = [line for reply in replies for line in reply.decode().splitlines() if ":" in line]
    return dict(line.split(":", 1) for line in lines)
