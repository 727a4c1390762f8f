"""Hashes of Asynq tasks that no structure names: found by a SCAN over a part of the keys."""

from collections.abc import Sequence
from typing import Final

from service.inspector.asynq.keys import QueueKeys
from service.inspector.asynq.places import Places, places_of
from service.inspector.asynq.tasks import Stand, group_of, stands
from service.inspector.findings import Findings
from service.inspector.layout import Look
from service.inspector.payloads import text_cut
from service.inspector.reading import SCANNED
from service.members import text_of

_PAGES: Final = 40  #: of the keyspace: 20 ms of Redis, in as many pieces
_HASHES: Final = 60  #: read and compared
_SOUGHT: Final = 20  #: of them sought everywhere, also through lists
_SPECIAL: Final = str.maketrans({char: f"\\{char}" for char in "*?[]\\^"})


async def strays(look: Look, keys: QueueKeys, found: Findings) -> None:
    """`record-without-id`, `record-incomplete` and `group-unlisted`, as far as a part of the keys shows them."""
    ids, complete = await _some(look, keys)
    seen = await stands(look.reader, keys, ids, found)
    empty = [it.id for it in seen if it.readable and it.exists and (it.state is None or not it.message_bytes)]
    if empty:
        found.add("record-incomplete", "hashes without a message or a state", empty)
    await _unnamed(look, keys, [it for it in seen if it.readable and it.state is not None], found)
    if not complete:
        found.add("not-all-looked-at", f"hashes were sought in a part of the keys: {len(ids):,} were compared")


async def _some(look: Look, keys: QueueKeys) -> tuple[list[str], bool]:
    """Ids of hashes, and whether these are all."""
    prefix = keys.task("")
    pattern = prefix.translate(_SPECIAL) + "*"
    ids, cursor = list[str](), b"0"
    for _ in range(_PAGES):
        cursor, names = await look.reader.ask("SCAN", cursor, "MATCH", pattern, "COUNT", SCANNED)
        ids += [text_of(name).removeprefix(prefix) for name in names]
        if len(ids) > _HASHES or cursor == b"0":
            break
    ids = list(dict.fromkeys(ids))
    return ids[:_HASHES], cursor == b"0" and len(ids) <= _HASHES


async def _unnamed(look: Look, keys: QueueKeys, seen: Sequence[Stand], found: Findings) -> None:
    """Each is asked for where it says it is, and, if it is not there, everywhere."""
    there = await _where_they_say(look, keys, seen, found)
    suspects = [it for it in seen if it.id not in there]
    unlisted = dict[str, list[str]]()
    for stand in suspects[:_SOUGHT]:
        places = await _places(look, keys, stand, found)
        if places.unlisted_group is not None:
            unlisted.setdefault(places.unlisted_group, []).append(stand.id)
        elif not places.held and not places.unsought:
            (again,) = await stands(look.reader, keys, [stand.id], found)
            if again == stand and not (await _places(look, keys, stand, found)).held:
                found.add("record-without-id", f"a hash that says {stand.state}", [stand.id])
    for group, ids in unlisted.items():
        found.add("group-unlisted", f"group {text_cut(group, 80)}", ids)


async def _where_they_say(look: Look, keys: QueueKeys, seen: Sequence[Stand], found: Findings) -> set[str]:
    """Ids that are in the sorted set of the state that their hash claims."""
    there = set[str]()
    for structure in keys.structures:
        ids = [it.id for it in seen if it.state == structure.state]
        if ids and structure.per_ms is not None:
            (reply,) = await look.reader.send([("ZMSCORE", structure.key, *ids)])
            scores = found.told(reply, structure.key, [b""] * len(ids))
            there |= {id_ for id_, score in zip(ids, scores, strict=True) if score is not None}
    return there


async def _places(look: Look, keys: QueueKeys, stand: Stand, found: Findings) -> Places:
    return await places_of(look.reader, keys, stand.id, await group_of(look.reader, keys, stand.id), found)
