"""How many entries one command may read of a structure whose entries may be of any size.

A look must hold up neither Redis nor the network, also where somebody keeps payloads of 16 MiB each.
"""

from collections.abc import Sequence
from typing import Any, Final

from service.inspector.reading import Command, ReadOnly

REPLY_BYTES: Final = 2**20  #: of one command, as far as can be told before
_SAMPLES: Final = 5  #: entries weighed: constant time


def weighed(key: str, count_command: str) -> list[Command]:
    """What `affordable` needs to know of a key: send these, hand it the replies."""
    return [("MEMORY", "USAGE", key, "SAMPLES", _SAMPLES), (count_command, key)]


def affordable(replies: Sequence[Any], wanted: int) -> int:
    """Of `wanted` entries as many as make a reply of REPLY_BYTES, by the average of a few; 0 if one is larger."""
    weight, count = replies
    if not isinstance(weight, int) or not isinstance(count, int) or not count:
        return wanted
    return min(wanted, REPLY_BYTES // max(1, weight // count))


async def afford(reader: ReadOnly, key: str, count_command: str, wanted: int) -> int:
    """The same, asked at once."""
    return affordable(await reader.send(weighed(key, count_command)), wanted)
