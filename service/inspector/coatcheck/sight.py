"""All that is written of one job, seen at one moment."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from service.inspector.answers import Place
from service.inspector.coatcheck.members import Member
from service.inspector.findings import Findings
from service.inspector.layout import Look
from service.inspector.payloads import READ_BYTES
from service.inspector.reading import Command
from service.inspector.times import Moment, moment
from service.keys import QueueKeys

#: In the order of asking: a leased job is in somebody's hands whatever else is written; trash is of jobs that ended.
AT_IS: Final = {"leased": "lease ends", "delayed": "due", "dead": "died", "trash": "deletion is due"}
_LIVING: Final = {"leased", "delayed", "dead"}
_NUMBER: Final = 64  #: bytes; what is longer is no time
_MARKER: Final = 32  #: bytes of a marker that are shown


@dataclass(frozen=True, slots=True)
class Sight:
    """What the queue's keys hold of a job; None for what they do not."""

    places: Sequence[Place]
    body_bytes: int | None
    trouble: bytes | None
    trouble_bytes: int
    moved: bytes | None
    marker: bytes | None  #: `cancelled` or `void`
    marker_expires: Moment | None

    @property
    def is_living(self) -> bool:
        """Whether it is still to be delivered, or dead: until then its payload must be there."""
        return any(place.state in _LIVING for place in self.places)

    @property
    def is_nothing(self) -> bool:
        return not (self.places or self.trouble or self.moved or self.marker) and self.body_bytes is None


def sets_of(of: QueueKeys) -> dict[str, str]:
    """The sets that a job may be in, by state."""
    return {"leased": of.leases, "delayed": of.delayed, "dead": of.dead, "trash": of.trash}


async def sight_of(look: Look, of: QueueKeys, member: Member, found: Findings) -> Sight:
    """In one write, which Redis works off without a break: nothing moves between its parts. Records are read after."""
    sets, marker = sets_of(of), of.cancelled(member.id)
    asked: list[tuple[str, Command]] = [
        *((key, ("ZSCORE", key, member.text)) for key in sets.values()),
        (of.bodies, ("HSTRLEN", of.bodies, member.id)),
        (of.bodies, ("HEXISTS", of.bodies, member.id)),
        (of.trouble, ("HSTRLEN", of.trouble, member.id)),
        (of.moved, ("HSTRLEN", of.moved, member.id)),
        (marker, ("GETRANGE", marker, 0, _MARKER - 1)),
        (marker, ("PTTL", marker)),
    ]
    replies = await look.reader.send([command for _, command in asked])
    told = [found.told(reply, key, None) for (key, _), reply in zip(asked, replies, strict=True)]
    scores, (size, has_body, trouble, moved, mark, expires_in) = told[: len(sets)], told[len(sets) :]
    return Sight(
        places=[
            Place(state, key, moment(score), AT_IS[state])
            for (state, key), score in zip(sets.items(), scores, strict=True)
            if score is not None
        ],
        body_bytes=size if has_body else None,
        trouble=await _field(look, (of.trouble, member.id), trouble, READ_BYTES, found) if trouble else None,
        trouble_bytes=trouble or 0,
        moved=await _field(look, (of.moved, member.id), moved, _NUMBER, found) if moved else None,
        marker=mark or None,
        marker_expires=moment(look.now_ms + expires_in) if mark and expires_in and expires_in > 0 else None,
    )


async def _field(look: Look, place: tuple[str, str], size: int, most: int, found: Findings) -> bytes:
    """Of a hash. Empty, if it is too large to be what it should."""
    if size > most:
        return b""
    [value] = await look.reader.send([("HGET", *place)])
    return found.told(value, place[0], None) or b""
