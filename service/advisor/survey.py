"""One look at a Redis: its memory, its delayed sets, a sample of their jobs."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from service.advisor.delayed import DelayedSet
from service.advisor.finding import Found, delayed_sets
from service.advisor.layouts import LAYOUTS
from service.advisor.sampling import Sample, Sampler
from service.inspector.reading import Budget, ReadOnly
from service.keys import Keys
from service.transport import Transport

SAMPLE: Final = 10_000
MOST_BYTES: Final = 64 * 2**20
#: For finding, and for each job of the sample; what is sampled is bounded by its own figures long before.
_COMMANDS_TO_FIND: Final = 100_000
_COMMANDS_A_JOB: Final = 6
_BYTES_TO_FIND: Final = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Extent:
    """How much may be read."""

    jobs: int = SAMPLE
    reply_bytes: int = MOST_BYTES
    seed: int | None = None  #: of the drawing, to repeat it


@dataclass(frozen=True, slots=True)
class Memory:
    """What Redis says of its own."""

    version: str
    used_bytes: int
    at_start_bytes: int  #: that an empty one uses
    max_bytes: int  #: 0: no limit

    @property
    def data_bytes(self) -> int:
        """What all data together cannot be more than."""
        return max(0, self.used_bytes - self.at_start_bytes)


@dataclass(frozen=True, slots=True)
class Survey:
    memory: Memory
    now_ms: int
    found: Found
    sample: Sample

    @property
    def sets(self) -> Sequence[tuple[DelayedSet, int]]:
        """Each with how many of its jobs were read, the longest first."""
        return [(it, self.sample.read.get(it, 0)) for it in self.found.sets]


async def survey(transport: Transport, keys: Keys, extent: Extent | None = None) -> Survey:
    """Reads alone. Raises RedisUnavailable if Redis cannot be asked, ResponseError if it may not be."""
    extent = extent or Extent()
    layouts = {layout.name: layout(keys) for layout in LAYOUTS}
    finding = ReadOnly(transport, Budget(_COMMANDS_TO_FIND, _BYTES_TO_FIND))
    seconds, micros = await finding.ask("TIME")
    now_ms = int(seconds) * 1000 + int(micros) // 1000
    found = await delayed_sets(finding, layouts)
    jobs = max(extent.jobs, 0)
    reading = ReadOnly(transport, Budget(_COMMANDS_TO_FIND + _COMMANDS_A_JOB * jobs, 2 * extent.reply_bytes))
    chance = random.Random(extent.seed)  # noqa: S311  a sample, not a secret
    sample = await Sampler(reading, layouts, now_ms, chance).sample(found.sets, jobs, extent.reply_bytes)
    return Survey(await _memory(finding), now_ms, found, sample)


async def _memory(reader: ReadOnly) -> Memory:
    text = b"".join([await reader.ask("INFO", section) for section in ("server", "memory")]).decode()
    info = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    return Memory(
        version=info.get("valkey_version") or info.get("redis_version", "?"),
        used_bytes=int(info.get("used_memory", 0)),
        at_start_bytes=int(info.get("used_memory_startup", 0)),
        max_bytes=int(info.get("maxmemory", 0)),
    )
