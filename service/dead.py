"""Dead jobs: given another life, or ended for good. In bounded steps, however many there are.

by reference   these, and no others
by reason      all that died of it, the longest dead first; `next` says where the next call goes on
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from service import pages
from service.census import Census
from service.errors import InvalidBody
from service.ledger import Ledger
from service.members import backend_of
from service.metrics import Metrics
from service.records import Job, Place, Stranger

MAX_REFERENCES: Final = 1000  #: one call of a script
MAX_LIMIT: Final = 10_000  #: about 50 ms of Redis, in pieces of 5
_PAGE: Final = 1000
#: Looked at in one call, whether they match or not: a reason that nobody died of must not read the whole set at once.
_LOOKED_AT: Final = 10_000

Verb = Literal["revived", "purged"]


@dataclass(frozen=True, slots=True)
class Ended:
    """What one call did."""

    done: int
    #: By reference: how many of those named are still dead. By reason: how many dead jobs were not looked at yet.
    left: int
    next: str | None = (
        None  #: by reason: hand it in to go on there; None: all that were dead at the first call were seen
    )


class DeadJobs:
    """Each method may raise RedisUnavailable, after some jobs were done or none: repeating does the rest."""

    def __init__(self, ledger: Ledger, census: Census, metrics: Metrics) -> None:
        self._ledger = ledger
        self._census = census
        self._metrics = metrics
        self._scripts: dict[Verb, Callable[[str, Sequence[str]], Awaitable[int]]] = {
            "revived": ledger.revive,
            "purged": ledger.purge,
        }

    async def by_reference(self, verb: Verb, queue: str, members: Sequence[str]) -> Ended:
        """These members of the dead set; what is not dead is passed over. Raises InvalidBody for more than 1,000."""
        if len(members) > MAX_REFERENCES:
            raise InvalidBody(f"{len(members)} references; at most {MAX_REFERENCES} are taken at once")
        done = await self._done(verb, queue, members)
        return Ended(done, await self._census.dead_among(queue, members))

    async def by_reason(
        self, verb: Verb, queue: str, reason: str | None, *, limit: int, cursor: str | None = None
    ) -> Ended:
        """At most `limit` that died of `reason`; None: of any. What died after the first call is left alone, so that a
        job that is revived and dies again is not revived for ever. Raises InvalidQuery for a `cursor` that is none.
        """
        after, until_ms = await self._start(cursor)
        done = chosen = looked_at = 0
        while True:
            page = await self._ledger.page(queue, "dead", _PAGE, after)
            seen, taken = _chosen(page.members, reason, limit - chosen, until_ms)
            done += await self._done(verb, queue, taken)
            chosen, looked_at = chosen + len(taken), looked_at + seen
            left = page.left + len(page.members) - seen
            others_died_later = seen < len(page.members) and chosen < limit
            if left == 0 or others_died_later:
                return Ended(done, 0)
            after = page.members[seen - 1][0]
            if chosen == limit or looked_at >= _LOOKED_AT:
                return Ended(done, left, pages.cursor_of(after, until_ms))

    async def _start(self, cursor: str | None) -> tuple[Place | None, int]:
        if cursor is None:
            return None, await self._census.now_ms()
        place, (until_ms,) = pages.place_of(cursor, more=1)
        return place, until_ms

    async def _done(self, verb: Verb, queue: str, members: Sequence[str]) -> int:
        """Backend by backend, so that each is counted as its own."""
        by_backend: dict[str, list[str]] = {}
        for member in dict.fromkeys(members):
            by_backend.setdefault(backend_of(member), []).append(member)
        total = 0
        for backend, some in by_backend.items():
            done = await self._scripts[verb](queue, some)
            self._metrics.happened(verb, queue, backend, done)
            total += done
        return total


def _chosen(
    members: Iterable[tuple[Place, Job | Stranger]], reason: str | None, limit: int, until_ms: int
) -> tuple[int, list[str]]:
    """How many had to be looked at for the first `limit` that match and died in time, and these."""
    seen, taken = 0, list[str]()
    for place, each in members:
        if len(taken) == limit or _died_ms(each) > until_ms:
            break
        seen += 1
        if reason is None or each.reason == reason:
            taken.append(place.member)
    return seen, taken


def _died_ms(each: Job | Stranger) -> int:
    return each.score_ms if isinstance(each, Stranger) else each.died_at_ms or 0
