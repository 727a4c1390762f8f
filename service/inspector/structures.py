"""The lists and sorted sets in which other libraries keep ids: how many, both ends, what of them is due.

Each command is of constant or logarithmic time. A key of another type, or one that may not be read, is a problem in
the answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from service.inspector.findings import Findings
from service.inspector.layout import ENDS, EXAMPLES
from service.inspector.payloads import text_cut
from service.inspector.reading import Command, ReadOnly
from service.inspector.times import FIRST_MS, LAST_MS, Moment, moment
from service.inspector.weighing import afford
from service.members import text_of


@dataclass(frozen=True, slots=True)
class Structure:
    """One key that holds jobs of one state."""

    state: str
    key: str
    per_ms: float | None = None  #: of a sorted set whose scores are times: so many units a millisecond; None: a list
    at_is: str | None = None  #: what its scores say
    waiting: bool = False  #: whether its scores say when a job leaves it


@dataclass(frozen=True, slots=True)
class Ends:
    """A structure's length and both its ends, as members with the moments that their scores say."""

    count: int | None = None
    head: Sequence[tuple[bytes, Moment | None]] = ()  #: what leaves next, of lists at the right; the first of it first
    tail: Sequence[tuple[bytes, Moment | None]] = ()  #: what leaves last, in the same order, without what `head` has

    @property
    def members(self) -> list[tuple[bytes, Moment | None]]:
        return [*self.head, *self.tail]

    @property
    def whole(self) -> bool:
        """Whether both ends together are all there is."""
        return self.count is not None and len(self.head) + len(self.tail) >= self.count


async def counts(reader: ReadOnly, structures: Sequence[Structure], found: Findings) -> dict[str, int | None]:
    """By state; None for what cannot be counted."""
    replies = await reader.send([("LLEN" if it.per_ms is None else "ZCARD", it.key) for it in structures])
    return {it.state: found.told(reply, it.key, None) for it, reply in zip(structures, replies, strict=True)}


async def dues(reader: ReadOnly, structures: Sequence[Structure], now_ms: int) -> tuple[Moment | None, Moment | None]:
    """The oldest moment that is due, and the next that is not, over all that wait. Scores that are no times are left
    out, and so are keys that cannot be read.
    """
    commands = list[Command]()
    waiting = [(it.key, it.per_ms) for it in structures if it.waiting and it.per_ms is not None]
    for key, per_ms in waiting:
        first, now, last = (_score(ms, per_ms) for ms in (FIRST_MS, now_ms, LAST_MS))
        commands.append(("ZRANGE", key, first, now, "BYSCORE", "LIMIT", 0, 1, "WITHSCORES"))
        commands.append(("ZRANGE", key, f"({now}", last, "BYSCORE", "LIMIT", 0, 1, "WITHSCORES"))
    replies = await reader.send(commands)
    units = [per_ms for _, per_ms in waiting for _ in range(2)]
    moments = [_first(reply, per_ms) for reply, per_ms in zip(replies, units, strict=True)]
    return earliest(moments[::2]), earliest(moments[1::2])


async def ends(reader: ReadOnly, structure: Structure, found: Findings, each: int = ENDS) -> Ends:
    """Up to `each` members of both ends; fewer, or none, if they are as large as no id is."""
    key, per_ms = structure.key, structure.per_ms
    count = "LLEN" if per_ms is None else "ZCARD"
    most = await afford(reader, key, count, each)
    if not most:
        found.add("value-too-large", f"{text_cut(key)}: its members are too large to be shown")
        (total,) = await reader.send([(count, key)])
        return Ends(found.told(total, key, None))
    if per_ms is None:
        commands: list[Command] = [(count, key), ("LRANGE", key, -most, -1), ("LRANGE", key, 0, most - 1)]
    else:
        commands = [(count, key), *(("ZRANGE", key, *span, "WITHSCORES") for span in ((0, most - 1), (-most, -1)))]
    total, first, last = (found.told(reply, key, None) for reply in await reader.send(commands))
    if total is None or first is None or last is None:
        return Ends()
    head, tail = _members(first, per_ms), _members(last, per_ms)
    left = max(0, total - len(head))
    return Ends(total, head, tail[-left:] if left else [])


async def no_times(reader: ReadOnly, structure: Structure, found: Findings) -> None:
    """Finds `score-no-time` in a sorted set with scores that no time has."""
    if structure.per_ms is None:
        return
    key, low, high = structure.key, _score(FIRST_MS, structure.per_ms), _score(LAST_MS, structure.per_ms)
    below, above, lowest, highest = await reader.send(
        [
            ("ZCOUNT", key, "-inf", f"({low}"),
            ("ZCOUNT", key, f"({high}", "+inf"),
            ("ZRANGE", key, "-inf", f"({low}", "BYSCORE", "LIMIT", 0, EXAMPLES),
            ("ZRANGE", key, "+inf", f"({high}", "BYSCORE", "REV", "LIMIT", 0, EXAMPLES),
        ]
    )
    if not isinstance(below, Exception) and below + above:
        found.add(
            "score-no-time",
            f"{text_cut(key)}: {below:,} scores before 1973, {above:,} after 2286",
            [text_of(it) for it in [*lowest, *highest]],
            count=below + above,
        )


def earliest(moments: Sequence[Moment | None]) -> Moment | None:
    return min((it for it in moments if it is not None), default=None)


def _score(ms: int, per_ms: float) -> str:
    return f"{ms * per_ms:.17g}"


def _first(reply: Any, per_ms: float) -> Moment | None:
    return moment(reply[1], per_ms) if isinstance(reply, list) and reply else None


def _members(reply: list[bytes], per_ms: float | None) -> list[tuple[bytes, Moment | None]]:
    """In the order of leaving."""
    if per_ms is None:
        return [(member, None) for member in reversed(reply)]
    return [(member, moment(score, per_ms)) for member, score in zip(reply[::2], reply[1::2], strict=True)]
