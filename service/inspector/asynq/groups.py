"""Asynq's groups: tasks that wait to become one, and those of them that a server is making one of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from service.inspector.asynq.keys import SECONDS, QueueKeys
from service.inspector.findings import Findings
from service.inspector.payloads import text_cut
from service.inspector.reading import ReadOnly
from service.inspector.times import Moment, moment
from service.members import text_of

MOST: Final = 100  #: groups, and aggregation sets, that one look counts; of more, some


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of one queue, by name, and the sets that are being aggregated, by key. A size is None where it cannot
    be counted.
    """

    sizes: Mapping[str, int | None]
    sets: Mapping[str, int | None]
    back_at: Mapping[str, Moment | None]  #: when a set that is not done goes back to its group, by key
    listed: int | None  #: groups that there are; more than `sizes` if there are very many
    whole: bool  #: whether all are here

    @property
    def tasks(self) -> int | None:
        """None if not all could be counted."""
        known = [count for count in (*self.sizes.values(), *self.sets.values()) if count is not None]
        return sum(known) if self.whole and len(known) == len(self.sizes) + len(self.sets) else None


async def groups_of(reader: ReadOnly, keys: QueueKeys, found: Findings) -> Groups:
    """Of more than MOST groups, MOST at random; of sets, those that go back first."""
    names_key, sets_key = keys["groups"], keys["aggregation_sets"]
    replies = await reader.send(
        [
            ("SCARD", names_key),
            ("SRANDMEMBER", names_key, MOST),
            ("ZCARD", sets_key),
            ("ZRANGE", sets_key, 0, MOST - 1, "WITHSCORES"),
        ]
    )
    listed, names = (found.told(reply, names_key, None) for reply in replies[:2])
    total, rows = (found.told(reply, sets_key, None) for reply in replies[2:])
    groups = sorted(map(text_of, names or []))
    back_at = _back_at(keys, rows or [], found)
    spelt = [*map(keys.group, groups), *back_at]
    sizes = [
        found.told(reply, key, None)
        for key, reply in zip(spelt, await reader.send([("ZCARD", key) for key in spelt]), strict=True)
    ]
    if (listed or 0) > MOST or (total or 0) > MOST:
        found.add(
            "not-all-looked-at", f"{listed or 0:,} groups and {total or 0:,} aggregation sets are too many to count"
        )
    return Groups(
        sizes=dict(zip(groups, sizes, strict=False)),
        sets=dict(zip(back_at, sizes[len(groups) :], strict=True)),
        back_at=back_at,
        listed=listed,
        whole=listed is not None and listed <= MOST and total is not None and total <= MOST,
    )


def _back_at(keys: QueueKeys, rows: Sequence[bytes], found: Findings) -> dict[str, Moment | None]:
    """Only of keys that can be sets of this queue's groups."""
    told = {text_of(key): moment(at, SECONDS) for key, at in zip(rows[::2], rows[1::2], strict=True)}
    own = {key: at for key, at in told.items() if key.startswith(keys.group(""))}
    if len(own) < len(told):
        found.add("does-not-parse", f"{text_cut(keys['aggregation_sets'])} lists what is no set of this queue's groups")
    return own
