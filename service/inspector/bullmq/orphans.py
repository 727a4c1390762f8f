"""Records of BullMQ jobs whose id no structure holds, among those keys of a queue that a SCAN meets.

What is in a list that is longer than one look may read is given up on: its absence cannot be shown.
"""

import re
from collections.abc import Sequence
from typing import Final

from service.inspector.bullmq.job import whereabouts
from service.inspector.bullmq.keys import QueueKeys
from service.inspector.findings import Findings
from service.inspector.layout import Look
from service.inspector.reading import PAGE, SCANNED, ReadOnly
from service.inspector.structures import Structure
from service.inspector.weighing import afford
from service.members import text_of

_SCANS: Final = 40
_LIST_PAGES: Final = 10  #: of one list, from each end
_SUSPECTS: Final = 100  #: whose records are looked at
_CONFIRMED: Final = 20  #: of these, looked at once more
_ID_CHARS: Final = 1_000  #: what is longer is not sent back to Redis again and again
#: A job is written with the first; the others come back when something touches a job that was just removed.
_FIELDS: Final = ("timestamp", "delay", "stc")


async def orphans(look: Look, keys: QueueKeys, found: Findings) -> None:
    """Tells of them in `found`."""
    reader = look.reader
    names, looked, whole = await _names(reader, keys)
    ids = [job for name in names if (job := keys.job_of(name)) is not None and len(job) <= _ID_CHARS]
    suspects = await _records(reader, keys, (await _unheld(reader, keys, ids, found))[:_SUSPECTS])
    left = await _records(reader, keys, await _nowhere(look, keys, suspects[:_CONFIRMED], found))
    if left:
        count = len(suspects) if len(left) == _CONFIRMED else len(left)
        found.add("record-without-id", f"among {looked:,} keys of this Redis", left, count=count)
    if not whole:
        found.add("not-all-looked-at", f"records without an id were sought among {looked:,} keys of this Redis")


async def _nowhere(look: Look, keys: QueueKeys, jobs: Sequence[str], found: Findings) -> list[str]:
    """Those that no structure holds when all are asked at once: a job that moves may have been missed in each."""
    return [job for job in jobs if (await whereabouts(look, keys, job, found)).state == "unknown"]


async def _names(reader: ReadOnly, keys: QueueKeys) -> tuple[list[str], int, bool]:
    """Hashes of this queue, about how many keys were passed on the way, and whether these were all."""
    pattern = re.sub(r"([\\*?\[\]^-])", r"\\\1", keys.of("")) + "*"
    names, cursor = list[str](), b"0"
    for _ in range(_SCANS):
        cursor, page = await reader.ask("SCAN", cursor, "MATCH", pattern, "COUNT", SCANNED, "TYPE", "hash")
        names += map(text_of, page)
        if int(cursor) == 0:
            return names, int(await reader.ask("DBSIZE")), True
    return names, _SCANS * SCANNED, False


async def _unheld(reader: ReadOnly, keys: QueueKeys, ids: Sequence[str], found: Findings) -> list[str]:
    """Those that no structure holds, as far as that can be known; none if one cannot be read."""
    left = list(dict.fromkeys(ids))
    for structure in keys.structures:
        if not left:
            break
        if structure.per_ms is None:
            listed, whole = await _listed(reader, structure, found)
            left = [each for each in left if each not in listed] if whole else []
        else:
            left = await _unscored(reader, structure, left, found)
    return left


async def _unscored(reader: ReadOnly, structure: Structure, ids: Sequence[str], found: Findings) -> list[str]:
    left = list[str]()
    for at in range(0, len(ids), PAGE):
        page = ids[at : at + PAGE]
        [reply] = await reader.send([("ZMSCORE", structure.key, *page)])
        scores = found.told(reply, structure.key, None)
        if scores is None:
            return []
        left += [each for each, score in zip(page, scores, strict=True) if score is None]
    return left


async def _listed(reader: ReadOnly, structure: Structure, found: Findings) -> tuple[set[str], bool]:
    """What is in a list, and whether all of it was read."""
    [reply] = await reader.send([("LLEN", structure.key)])
    count = found.told(reply, structure.key, None)
    page = await afford(reader, structure.key, "LLEN", PAGE)
    if count is None or count > 2 * _LIST_PAGES * page:
        return set(), False
    listed = set[str]()
    for at in range(0, count, max(page, 1)):
        entries = await reader.send([("LRANGE", structure.key, at, at + page - 1)])
        listed.update(map(text_of, found.told(entries[0], structure.key, [])))
    return listed, True


async def _records(reader: ReadOnly, keys: QueueKeys, ids: Sequence[str]) -> list[str]:
    """Those with a record that is a job's."""
    commands = [("HEXISTS", keys.of(each), name) for each in ids for name in _FIELDS]
    there = await reader.send(commands)
    parts = [there[at : at + len(_FIELDS)] for at in range(0, len(there), len(_FIELDS))]
    return [each for each, fields in zip(ids, parts, strict=True) if 1 in fields]
