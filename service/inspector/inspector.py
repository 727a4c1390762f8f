"""All layouts at once: which queues there are, and what each is asked.

One bad queue never hides another: whatever its data make a layout do becomes a problem of that queue.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from service.errors import RetryLater
from service.inspector.answers import JobDetail, Problem, QueueDetail, QueueSummary
from service.inspector.keyspace import KEYS, Survey, budget, survey
from service.inspector.layout import Layout, Look
from service.inspector.layouts import LAYOUTS
from service.inspector.payloads import MAX_BYTES
from service.inspector.reading import OverBudget, ReadOnly
from service.inspector.times import Moment
from service.keys import Keys
from service.transport import Transport

T = TypeVar("T")

QUEUES: Final = 2_000  #: of one answer at most
_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class Found:
    """Which queues there are."""

    queues: Sequence[tuple[str, str]]  #: layout, queue
    unlisted: int  #: found, and left out because there are so many
    keys: int  #: whose names were looked at
    total_keys: int


@dataclass(frozen=True, slots=True)
class Overview:
    """Every queue in one line."""

    now: Moment
    found: Found
    summaries: Sequence[QueueSummary]


@dataclass(frozen=True, slots=True)
class QueueProblems:
    layout: str
    queue: str
    problems: Sequence[Problem]


class Inspector:
    """Every method raises RedisUnavailable if Redis cannot be asked."""

    def __init__(
        self,
        transport: Transport,
        keys: Keys,
        *,
        layouts: Mapping[str, type[Layout]] | None = None,
        max_bytes: int = MAX_BYTES,
        keys_at_most: int | None = KEYS,
        prefix: str | None = None,
    ) -> None:
        """`keys_at_most` bounds the SCAN for queues; None: look at all names. `prefix` is as in `Look`."""
        self._reader = ReadOnly(transport)
        self._keys = keys
        self._layouts = dict(LAYOUTS if layouts is None else layouts)
        self._max_bytes = max_bytes
        self._keys_at_most = keys_at_most
        self._prefix = prefix

    async def overview(self) -> Overview:
        """Every queue of every layout, summed up."""
        found = await self.found()

        async def summary(name: str, queue: str) -> QueueSummary:
            layout = await self._layout(name)
            done = await guarded(layout.summary(queue))
            if isinstance(done, Problem):
                return QueueSummary(name, queue, {}, paused=None, problems=[done])
            return done

        summaries = await _each(found.queues, summary)
        return Overview(Moment(await self.now_ms()), found, summaries)

    async def queue(self, queue: str) -> Sequence[QueueDetail]:
        """The queues of this name, of whichever layouts; none: there is no such queue."""

        async def detail(name: str, queue: str) -> QueueDetail:
            layout = await self._layout(name)
            done = await guarded(layout.detail(queue))
            if isinstance(done, Problem):
                return QueueDetail(QueueSummary(name, queue, {}, paused=None), (), problems=[done])
            return done

        return await _each(await self._named(queue), detail)

    async def job(self, queue: str, id: str) -> Sequence[JobDetail]:  # noqa: A002  the word that every library uses
        """The jobs of this id in the queues of this name; none: nothing knows it."""

        async def job(name: str, queue: str) -> JobDetail | None:
            layout = await self._layout(name)
            done = await guarded(layout.job(queue, id))
            return JobDetail(name, queue, id, None, (), problems=[done]) if isinstance(done, Problem) else done

        return [detail for detail in await _each(await self._named(queue), job) if detail is not None]

    async def problems(self, queue: str | None = None, found: Found | None = None) -> Sequence[QueueProblems]:
        """Of every queue, or of those of this name; those without any are not among them. `found`: if that was asked
        already.
        """

        async def problems(name: str, queue: str) -> QueueProblems:
            layout = await self._layout(name)
            done = await guarded(layout.problems(queue))
            return QueueProblems(name, queue, [done] if isinstance(done, Problem) else done)

        queues = (found or await self.found()).queues if queue is None else await self._named(queue)
        return [each for each in await _each(queues, problems) if each.problems]

    async def found(self) -> Found:
        """Which queues there are, by the libraries' registries and by the names of keys."""
        reader = self._reader.fresh(budget(self._keys_at_most))
        names = {name: await self._layout(name) for name in self._layouts}
        seen: Survey = await survey(reader, names, self._keys_at_most)
        queues = dict[str, Sequence[str]]()
        for name, layout in names.items():
            done = await guarded(layout.queues(seen.hints[name]))
            queues[name] = sorted(seen.hints[name]) if isinstance(done, Problem) else done
        shares = _shares([len(each) for each in queues.values()], QUEUES)
        listed = [
            (name, queue) for (name, every), most in zip(queues.items(), shares, strict=True) for queue in every[:most]
        ]
        return Found(listed, sum(map(len, queues.values())) - len(listed), seen.keys, seen.total)

    async def now_ms(self) -> int:
        """By Redis's clock."""
        seconds, micros = await self._reader.fresh().ask("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    async def _named(self, queue: str) -> list[tuple[str, str]]:
        named = []
        for name in self._layouts:
            layout = await self._layout(name)
            if await guarded(layout.has(queue)) is not False:  # a problem is one to be told of
                named.append((name, queue))
        return named

    async def _layout(self, name: str) -> Layout:
        """For one look."""
        look = Look(self._reader.fresh(), await self.now_ms(), self._keys, self._max_bytes, self._prefix)
        return self._layouts[name](look)


def _shares(counts: Sequence[int], most: int) -> list[int]:
    """How many of each may be among `most`: as many of each as of any other, so that no library hides another."""
    shares, left = [0] * len(counts), most
    for done, at in enumerate(sorted(range(len(counts)), key=counts.__getitem__)):
        shares[at] = min(counts[at], left // (len(counts) - done))
        left -= shares[at]
    return shares


async def guarded(look: Awaitable[T]) -> T | Problem:
    """What a layout answers, or the problem that it had. Raises RetryLater alone: Redis is away."""
    try:
        return await look
    except RetryLater:
        raise
    except OverBudget as error:
        return Problem("not-all-looked-at", f"{error}; nothing can be told")
    except Exception as error:  # noqa: BLE001  one queue's damage hides no other; tests see that there is no such problem
        return Problem("inspector-failed", f"{type(error).__name__} in this layout")


async def _each(queues: Sequence[tuple[str, str]], look: Callable[[str, str], Awaitable[T]]) -> list[T]:
    """A few at once."""
    done: list[T] = []
    for at in range(0, len(queues), _AT_ONCE):
        looks = (look(name, queue) for name, queue in queues[at : at + _AT_ONCE])
        for each in await asyncio.gather(*looks, return_exceptions=True):  # all have ended before one fails
            if isinstance(each, BaseException):
                raise each
            done.append(each)
    return done
