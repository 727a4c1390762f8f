"""What a queue keeps for jobs that it does not have: payloads, records of trouble, new due times.

Of a small queue this is certain, and told one by one. Of a large one there is a suspicion: more payloads than there can
be inline jobs, judged by a sample.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final

from service.inspector.coatcheck.members import INLINE, Members, member_of
from service.inspector.findings import Findings
from service.inspector.payloads import text_cut
from service.inspector.reading import PAGE, Command, ReadOnly
from service.inspector.weighing import afford
from service.keys import QueueKeys
from service.members import text_of

_SMALL: Final = 5 * PAGE  #: jobs of a queue that are all read
_SIGMAS: Final = 4  #: one false suspicion in some 30,000 looks
_LARGEST: Final = b"largest"  #: of the bodies hash: no job's


async def orphans(reader: ReadOnly, of: QueueKeys, queue: str, found: Findings) -> None:
    """Tells of them in `found`."""
    sets, hashes = (of.delayed, of.leases, of.dead), (of.bodies, of.trouble, of.moved)
    counting: list[Command] = [*(("ZCARD", key) for key in sets), *(("HLEN", key) for key in hashes)]
    replies = await reader.send(counting)
    counts = {key: found.told(reply, key, None) for key, reply in zip((*sets, *hashes), replies, strict=True)}
    if None in counts.values():
        return  # of what cannot be counted nothing can be told
    small = sum(counts[key] for key in sets) <= _SMALL
    for key in hashes:
        if small and 0 < counts[key] <= PAGE:
            names = await _unneeded(reader, key, sets, found)
            if names and (names := names & await _unneeded(reader, key, sets, found)):
                detail = f"{text_cut(key)}: {len(names):,} of {counts[key]:,} belong to no job of this queue"
                found.add("kept-for-nobody", detail, sorted(map(text_of, names)))
        elif key == of.bodies:
            jobs = {members: counts[members] for members in sets}
            await _suspicion(Members(reader, queue), jobs, counts[key], found)


async def _unneeded(reader: ReadOnly, key: str, sets: Sequence[str], found: Findings) -> set[bytes]:
    """Fields of a small hash that no job has. The fields are read first: what is accepted later is not among them."""
    [names] = await reader.send([("HRANDFIELD", key, PAGE)])
    left = set(found.told(names, key, [])) - {_LARGEST}
    for members in sets:
        page = await afford(reader, members, "ZCARD", PAGE)
        for first in range(0, _SMALL, max(page, 1)):
            [reply] = await reader.send([("ZRANGE", members, first, first + max(page, 1) - 1)])
            told: list[bytes] = found.told(reply, members, [])
            left -= {member_of(member, 0).id.encode() for member in told}
            if not left or len(told) < page:
                break
    return left


async def _suspicion(sets: Members, jobs: Mapping[str, int], bodies: int, found: Findings) -> None:
    """By the share of inline jobs in a sample of each set."""
    expected = variance = 0.0
    for key, count in jobs.items():
        sample = await sets.sample(key, found)
        if not sample:
            continue
        share = sum(member_of(member, 0).backend == INLINE for member in sample) / len(sample)
        expected += share * count
        if count > len(sample):
            # At least one in the sample may be what it does not show: a share of 0 is not certain.
            doubtful = min(max(share, 1 / len(sample)), 1 - 1 / len(sample))
            variance += count**2 * doubtful * (1 - doubtful) / len(sample)
    most = expected + _SIGMAS * math.sqrt(variance) + 1  # `largest` is one
    if bodies > most:
        detail = f"{bodies:,} payloads are kept for about {expected:,.0f} inline jobs, {most:,.0f} at most"
        found.add("kept-for-nobody", detail, count=round(bodies - expected))
