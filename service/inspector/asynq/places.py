"""Which structures of Asynq hold an id."""

from dataclasses import dataclass, field

from redis.exceptions import ResponseError

from service.inspector.answers import Place, Unsought
from service.inspector.asynq.groups import groups_of
from service.inspector.asynq.keys import SECONDS, QueueKeys
from service.inspector.findings import Findings
from service.inspector.reading import ReadOnly
from service.inspector.seeking import seek
from service.inspector.structures import Structure
from service.inspector.times import Moment, moment


@dataclass(slots=True)
class Places:
    """Where an id is. `held` is in Asynq's order of states."""

    held: list[Place] = field(default_factory=list)
    unsought: list[Unsought] = field(default_factory=list)
    leased: bool = False
    lease_ends: Moment | None = None  #: None with `leased`: its lease ends at no time that there is
    unlisted_group: str | None = None  #: the id waits in this group, which nobody will look into

    @property
    def states(self) -> list[str]:
        return [place.state for place in self.held]


async def places_of(
    reader: ReadOnly,
    keys: QueueKeys,
    id: str,  # noqa: A002  Asynq's own word
    group: str | None,
    found: Findings,
) -> Places:
    """`group` is the one that its record names; of a task whose record names none, all listed groups are asked."""
    places = Places()
    for structure in keys.structures:
        if structure.per_ms is None:
            await _in_list(reader, structure, id, places, found)
    scored = [it for it in keys.structures if it.per_ms is not None]
    *scores, lease = await _scores(reader, [*scored, keys.lease], id, found)
    for structure, score in zip(scored, scores, strict=True):
        _add(places, structure, score)
    places.leased, places.lease_ends = lease is not None, moment(lease, SECONDS)
    await _in_groups(reader, keys, id, group, places=places, found=found)
    return places


async def _in_list(reader: ReadOnly, structure: Structure, id_: str, places: Places, found: Findings) -> None:
    try:
        sought = await seek(reader, structure.key, id_)
    except ResponseError as error:
        found.told(error, structure.key, None)
        return
    if sought.found_at is not None:
        position = sought.total - 1 - sought.found_at if structure.state == "pending" else None
        places.held.append(Place(structure.state, structure.key, position=position))
    unsought = sought.unsought(structure.state, structure.key)
    if unsought is not None:
        places.unsought.append(unsought)


async def _in_groups(
    reader: ReadOnly, keys: QueueKeys, id_: str, group: str | None, *, places: Places, found: Findings
) -> None:
    groups = await groups_of(reader, keys, found)
    names = list(groups.sizes) if group is None else [group]
    sets = [key for key in groups.sets if group is None or key.startswith(f"{keys.group(group)}:")]
    structures = [keys.grouped(key) for key in (*map(keys.group, names), *sets)]
    scores = await _scores(reader, structures, id_, found)
    for structure, score in zip(structures, scores, strict=True):
        _add(places, structure, score)
    if group is not None and scores[0] is not None:
        (listed,) = await reader.send([("SISMEMBER", keys["groups"], group)])
        if found.told(listed, keys["groups"], 1) == 0:
            places.unlisted_group = group


async def _scores(reader: ReadOnly, structures: list[Structure], id_: str, found: Findings) -> list[bytes | None]:
    replies = await reader.send([("ZSCORE", it.key, id_) for it in structures])
    return [found.told(reply, it.key, None) for it, reply in zip(structures, replies, strict=True)]


def _add(places: Places, structure: Structure, score: bytes | None) -> None:
    if score is not None:
        at = moment(score, structure.per_ms or 1.0)
        places.held.append(Place(structure.state, structure.key, at, structure.at_is))
