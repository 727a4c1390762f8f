"""How Asynq spells its keys.

asynq:queues                    SET     names of queues
asynq:servers                   ZSET    key of a server's own STRING -> when it expires, s
asynq:workers                   ZSET    key of a server's HASH (task id -> what works on it) -> when it expires, s
asynq:{q}:pending               LIST    ids; LPUSH in, the right end leaves next
asynq:{q}:active                LIST    ids in workers' hands
asynq:{q}:lease                 ZSET    id -> when the worker's lease ends, s
asynq:{q}:scheduled, retry      ZSET    id -> due, s
asynq:{q}:archived              ZSET    id -> when it was given up, s
asynq:{q}:completed             ZSET    id -> when it is to be deleted, s
asynq:{q}:groups                SET     names of groups that have tasks
asynq:{q}:g:<group>             ZSET    id -> when it joined, s
asynq:{q}:g:<group>:<uuid>      ZSET    the same: a set that is being aggregated
asynq:{q}:aggregation_sets      ZSET    key of such a set -> when it goes back to its group, s
asynq:{q}:t:<id>                HASH    msg, state; pending_since (ns), unique_key, group, result
asynq:{q}:paused                STRING  present: paused; since when, s
asynq:{q}:processed, failed     STRING  counters, and the same with `:YYYY-MM-DD` for a day
asynq:{q}:unique:<type>:<md5>   STRING  id of the task that holds the lock
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from service.inspector.structures import Structure

QUEUES: Final = "asynq:queues"
SERVERS: Final = "asynq:servers"
WORKERS: Final = "asynq:workers"
SECONDS: Final = 0.001  #: of Asynq's scores make a millisecond
NANOSECONDS: Final = 1_000_000
AGGREGATING: Final = "aggregating"

#: Names of queues may hold anything, braces too.
_of_a_queue = re.compile(
    r"asynq:\{(?P<queue>.+?)\}:"
    r"(?:pending|active|lease|scheduled|retry|archived|completed|groups|aggregation_sets|paused"
    r"|(?:processed|failed)(?::\d{4}-\d\d-\d\d)?|(?:t|g|unique):.*)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class QueueKeys:
    """The keys of one queue."""

    queue: str

    def __getitem__(self, name: str) -> str:
        return f"asynq:{{{self.queue}}}:{name}"

    def task(self, id: str) -> str:  # noqa: A002  Asynq's own word
        return self[f"t:{id}"]

    def group(self, name: str) -> str:
        return self[f"g:{name}"]

    def day(self, counter: str, date: str) -> str:
        return self[f"{counter}:{date}"]

    @property
    def structures(self) -> Sequence[Structure]:
        """What holds ids, but for groups, in Asynq's own order of states."""
        return (
            Structure("pending", self["pending"]),
            Structure("active", self["active"]),
            Structure("scheduled", self["scheduled"], SECONDS, "due", waiting=True),
            Structure("retry", self["retry"], SECONDS, "due", waiting=True),
            Structure("archived", self["archived"], SECONDS, "archived"),
            Structure("completed", self["completed"], SECONDS, "expires"),
        )

    @property
    def lease(self) -> Structure:
        return Structure("active", self["lease"], SECONDS, "lease ends")

    def grouped(self, key: str) -> Structure:
        """A group or an aggregation set."""
        return Structure(AGGREGATING, key, SECONDS, "joined")


def queue_of(key: str) -> str | None:
    """The queue that `key` belongs to; None for a key that Asynq does not write."""
    found = _of_a_queue.fullmatch(key)
    return found["queue"] if found else None
