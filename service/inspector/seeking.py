"""Where an id stands in a list, without reading the list: from both ends, as far as one look may.

LPOS over 2,000,000 entries holds Redis for 29 ms; over EACH_END of them, below one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from service.inspector.answers import Unsought
from service.inspector.reading import PAGE, Command, OverBudget, ReadOnly

EACH_END: Final = 50_000  #: entries compared from each end
_PAGES: Final = 10  #: of PAGE entries read from each end, where entries have to be looked into
_BYTES: Final = 2**22  #: of entries read from one list at most


@dataclass(frozen=True, slots=True)
class Sought:
    """What came of it. With `found_at` None and `each_end` 2 x which is below `total`, nothing is certain."""

    found_at: int | None  #: index from the left, 0 the first
    total: int
    each_end: int  #: entries looked at from each end; all of them, if twice as many are at least `total`

    def unsought(self, state: str, key: str) -> Unsought | None:
        """None if the list was sought through, or the id was found."""
        if self.found_at is not None or 2 * self.each_end >= self.total:
            return None
        return Unsought(state, key, self.each_end, self.total)


async def seek(reader: ReadOnly, key: str, entry: str | bytes, each_end: int = EACH_END) -> Sought:
    """Seeks an entry by its whole value. Raises ResponseError for a key that is no list."""
    return sought(await reader.send(seeking(key, entry, each_end), raising=True), each_end)


def seeking(key: str, entry: str | bytes, each_end: int = EACH_END) -> list[Command]:
    """What `seek` sends, for those who ask for other things in the same write: less moves in between."""
    return [
        ("LLEN", key),
        ("LPOS", key, entry, "RANK", 1, "MAXLEN", each_end),
        ("LPOS", key, entry, "RANK", -1, "MAXLEN", each_end),
    ]


def sought(replies: Sequence[Any], each_end: int = EACH_END) -> Sought:
    """What came of `seeking`, if none of the replies is an error."""
    total, left, right = replies
    return Sought(left if left is not None else right, total, each_end)


async def seek_by(reader: ReadOnly, key: str, matches: Callable[[bytes], bool], pages: int = _PAGES) -> Sought:
    """Seeks an entry that has to be looked into, page by page from both ends. Raises ResponseError likewise."""
    total = int(await reader.ask("LLEN", key))
    looked = 0
    left_bytes = reader.budget.reply_bytes - _BYTES
    while looked < min(pages * PAGE, (total + 1) // 2) and reader.budget.reply_bytes > left_bytes:
        try:
            left = await reader.ask("LRANGE", key, looked, looked + PAGE - 1)
            right = await reader.ask("LRANGE", key, -looked - PAGE, -looked - 1)
        except OverBudget:
            break
        for at, entry in enumerate(left):
            if matches(entry):
                return Sought(looked + at, total, looked + PAGE)
        for at, entry in enumerate(reversed(right)):
            if matches(entry):
                return Sought(total - 1 - looked - at, total, looked + PAGE)
        looked += PAGE
    return Sought(None, total, looked)
