"""How redis_task_queue (Dart) spells its keys, under a prefix that its users may choose.

    <prefix>:queue:<queue>           LIST   envelopes; LPUSH in, the right end leaves next
    <prefix>:queue:<queue>:delayed   ZSET   envelope -> due, ms: scheduled, or waiting to be tried again
    <prefix>:inflight:<worker>       LIST   envelopes in a worker's hands, of whatever queue
    <prefix>:dead                    LIST   what was given up on, of whatever queue; the newest at the left

The library itself takes it that no queue's name ends in `:delayed`.
"""

from dataclasses import dataclass
from typing import Final

from service.inspector.structures import Structure

PREFIX: Final = "rtq"
PENDING, DELAYED, IN_FLIGHT, DEAD = STATES = ("pending", "delayed", "in-flight", "dead")
_DELAYED: Final = ":delayed"


@dataclass(frozen=True, slots=True)
class RtqKeys:
    """The keys under one prefix."""

    prefix: str = PREFIX

    def pending(self, queue: str) -> Structure:
        return Structure(PENDING, f"{self.prefix}:queue:{queue}")

    def delayed(self, queue: str) -> Structure:
        return Structure(DELAYED, f"{self.prefix}:queue:{queue}{_DELAYED}", 1, "due", waiting=True)

    def in_flight(self, worker: str) -> Structure:
        return Structure(IN_FLIGHT, f"{self.prefix}:inflight:{worker}")

    @property
    def dead(self) -> Structure:
        return Structure(DEAD, f"{self.prefix}:dead")

    def worker_of(self, key: str) -> str:
        """Of an in-flight list."""
        return key.removeprefix(self.in_flight("").key)

    def queue_of(self, key: str) -> str | None:
        start = f"{self.prefix}:queue:"
        return key.removeprefix(start).removesuffix(_DELAYED) or None if key.startswith(start) else None
