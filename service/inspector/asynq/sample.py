"""Ids of both ends of each structure of an Asynq queue, compared with their hashes and with the other structures."""

from collections.abc import Sequence
from typing import Final

from service.inspector.asynq.groups import groups_of
from service.inspector.asynq.keys import QueueKeys
from service.inspector.asynq.message import NotAMessage
from service.inspector.asynq.sight import shown
from service.inspector.asynq.tasks import STAND_COMMANDS, Stand, messages, stands, too_large
from service.inspector.findings import Findings
from service.inspector.layout import ENDS, SAMPLE, Look
from service.inspector.payloads import text_cut
from service.inspector.reading import Command
from service.inspector.structures import Structure, ends
from service.members import text_of

_RESERVE: Final = 0.2  #: of what a look may ask, for records that nothing names
_MESSAGES: Final = 20  #: of each structure, read and decoded
_AT_ONCE: Final = 200  #: ids that one command asks a sorted set for
_CONFIRMED: Final = 20  #: of what looks wrong, looked at once more
_NEAR: Final = 5_000  #: entries from each end of a list among which one is sought again that stood at an end just now


class Sample:
    """One comparison."""

    def __init__(self, look: Look, keys: QueueKeys, found: Findings) -> None:
        self._reader, self._keys, self._found = look.reader, keys, found
        self._partly = list[str]()

    async def compare(self) -> None:
        """Active tasks first: there a difference matters most."""
        groups = await groups_of(self._reader, self._keys, self._found)
        grouped = [self._keys.grouped(key) for key in (*map(self._keys.group, groups.sizes), *groups.sets)]
        structures = [*sorted(self._keys.structures, key=lambda it: it.state != "active"), *grouped]
        reserve = self._reader.budget.commands * _RESERVE
        for position, structure in enumerate(structures):
            share = (self._reader.budget.commands - reserve) / (len(structures) - position)
            await self._of(structure, max(ENDS, min(SAMPLE, int(share / STAND_COMMANDS / 2))))
        if self._partly:
            self._found.add("not-all-looked-at", f"records were compared of {', '.join(self._partly[:10])}")

    async def _of(self, structure: Structure, each: int) -> None:
        both = await ends(self._reader, structure, self._found, each)
        ids = list(dict.fromkeys(text_of(id_) for id_, _ in both.members))
        if not both.whole and both.count:
            self._partly.append(f"{structure.state} {len(both.members):,} of {both.count:,}")
        if structure.state == "active" and both.count is not None:
            await self._left_leases(structure, both.count)
        if not ids:
            return
        seen = await stands(self._reader, self._keys, ids, self._found)
        await self._records(structure, seen)
        await self._elsewhere(structure, ids)
        await self._messages(structure, ids[:_MESSAGES])
        if structure.state == "active":
            await self._leases(structure, ids)
        large = [stand.id for stand in seen if too_large(stand)]
        if large:
            self._found.add("value-too-large", f"messages in {structure.state}", large)

    async def _records(self, structure: Structure, seen: Sequence[Stand]) -> None:
        unfit: dict[tuple[str, str], list[str]] = {}
        for stand in seen:
            verdict = _verdict(stand, structure.state)
            if verdict:
                unfit.setdefault(verdict, []).append(stand.id)
        for verdict, ids in unfit.items():
            again = await stands(self._reader, self._keys, await self._still(structure, ids), self._found)
            self._tell(*verdict, ids, [it.id for it in again if _verdict(it, structure.state) == verdict])

    async def _elsewhere(self, structure: Structure, ids: Sequence[str]) -> None:
        """Sorted sets are asked for all of these at once; the lists could only be sought through."""
        for other in self._keys.structures:
            if other.per_ms is not None and other.key != structure.key:
                both = await self._members(other, ids)
                still = await self._members(other, await self._still(structure, both))
                self._tell("in-two-places", f"in {structure.state} and in {other.state}", both, still)

    async def _leases(self, active: Structure, ids: Sequence[str]) -> None:
        lease = self._keys.lease
        held = set(await self._members(lease, ids))
        bare = [id_ for id_ in ids if id_ not in held]
        still = await self._still(active, bare)
        held = set(await self._members(lease, still))
        self._tell("active-without-lease", "in active", bare, [id_ for id_ in still if id_ not in held])

    async def _left_leases(self, active: Structure, total: int) -> None:
        """Leases of tasks that are not active; where the list of these is too long, that cannot be told."""
        both = await ends(self._reader, self._keys.lease, self._found, _CONFIRMED // 2)
        ids = [text_of(id_) for id_, _ in both.members]
        if ids and total <= 2 * _NEAR:
            held = set(await self._still(active, ids))
            left = [id_ for id_ in ids if id_ not in held]
            self._tell("lease-without-active", "in lease", left, await self._members(self._keys.lease, left))

    async def _messages(self, structure: Structure, ids: Sequence[str]) -> None:
        told = await messages(self._reader, self._keys, ids)
        broken = [id_ for id_, it in told.items() if isinstance(it, NotAMessage)]
        decoded = {id_: it for id_, it in told.items() if not isinstance(it, NotAMessage)}
        foreign = [id_ for id_, it in decoded.items() if (it.id, it.queue) != (shown(id_), shown(self._keys.queue))]
        not_text = [id_ for id_, it in decoded.items() if it.not_text]
        for kind, some in (
            ("that are no protobuf", broken),
            ("that name another task or queue", foreign),
            ("with text that is no UTF-8, which Asynq refuses", not_text),
        ):
            if some:
                self._found.add("does-not-parse", f"messages in {structure.state} {kind}", some)

    async def _still(self, structure: Structure, ids: Sequence[str]) -> list[str]:
        """Those of the first few that the structure holds now."""
        ids = list(ids)[:_CONFIRMED]
        if structure.per_ms is not None:
            return await self._members(structure, ids)
        commands: list[Command] = [
            ("LPOS", structure.key, id_, "RANK", rank, "MAXLEN", _NEAR) for id_ in ids for rank in (1, -1)
        ]
        replies = [self._found.told(it, structure.key, None) for it in await self._reader.send(commands)]
        pairs = zip(ids, replies[::2], replies[1::2], strict=True)
        return [id_ for id_, left, right in pairs if left is not None or right is not None]

    async def _members(self, structure: Structure, ids: Sequence[str]) -> list[str]:
        """Those of the ids that this sorted set holds."""
        held = list[str]()
        for at in range(0, len(ids), _AT_ONCE):
            some = ids[at : at + _AT_ONCE]
            (reply,) = await self._reader.send([("ZMSCORE", structure.key, *some)])
            scores = self._found.told(reply, structure.key, [None] * len(some))
            held += [id_ for id_, score in zip(some, scores, strict=True) if score is not None]
        return held

    def _tell(self, kind: str, detail: str, suspects: Sequence[str], confirmed: Sequence[str]) -> None:
        """Where all that were looked at again are still so, the others count as well."""
        if confirmed:
            all_still = len(confirmed) == min(len(suspects), _CONFIRMED)
            self._found.add(kind, detail, confirmed, count=len(suspects) if all_still else len(confirmed))


def _verdict(stand: Stand, state: str) -> tuple[str, str] | None:
    """Kind and detail of what is wrong with the record of an id that is in `state`."""
    if not stand.readable:
        return None
    if not stand.exists:
        return "id-without-record", f"in {state}"
    if stand.state is None or not stand.message_bytes:
        lacking = [name for name, has in (("state", stand.state), ("message", stand.message_bytes)) if not has]
        return "record-incomplete", f"in {state}, with a hash that has no {' and no '.join(lacking)}"
    if stand.state != state:
        return "state-differs", f"in {state}, with a hash that says {text_cut(stand.state, 40)}"
    return None
