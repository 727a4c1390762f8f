"""Every Redis key, and nothing else knows how one is spelt.

`{queue}` in braces is the cluster hash tag: all keys of a queue share a slot.

    <prefix>:meta                           HASH    layout, installation
    <prefix>:queues                         ZSET    queue -> when it next needs a look, ms
    <prefix>:wake                           channel a queue got a new head
    <prefix>:{q}:delayed                    ZSET    reference -> due or next attempt, ms
    <prefix>:{q}:bodies                     HASH    uuid -> payload of inline jobs; `largest` -> bytes of the largest
    <prefix>:{q}:leases                     ZSET    reference -> lease deadline, ms; the deadline is the token
    <prefix>:{q}:ready                      LIST    payloads: LPUSH in, oldest at the right (settable per queue)
                                            STREAM  or that, where configured: payload, reference, due
    <prefix>:{q}:dead                       ZSET    reference -> time of death, ms
    <prefix>:{q}:trash                      ZSET    reference -> when its deletion is tried next, ms
    <prefix>:{q}:trouble                    HASH    uuid, or sha1 of what is no reference -> attempts, expiries, error
    <prefix>:{q}:moved                      HASH    uuid -> due, for jobs rescheduled or revived
    <prefix>:{q}:idempotency:<sha256>       STRING  reference, reason, fingerprint; expires
    <prefix>:{q}:cancelled:<uuid>           STRING  `cancelled` or `void`; expires after 1 h
    <prefix>:{q}:paused                     STRING  present: dispatching is paused

What workers keep, who consume ready queues. Of a stream, what is in their hands is pending in its consumer group under
their names, what came back under `~returned`, and suspects under `~suspects`:

    <prefix>:{q}:workers                    ZSET    worker -> when its heartbeat is overdue, ms; others own nothing
    <prefix>:{q}:departed                   ZSET    worker taken for dead -> until when somebody looks for its jobs, ms
    <prefix>:{q}:inflight:<worker>          LIST    payloads of a list in its hands, oldest at the left
    <prefix>:{q}:turns                      HASH    worker -> number of its last turn, so that no turn counts twice
    <prefix>:{q}:strikes                    HASH    sha1 of a payload -> workers that died with it in hand;
                                                    attempt:<sha1> -> failed attempts of a payload that is no envelope;
                                                    unstruck:<worker> -> entries in dead hands without theirs
    <prefix>:{q}:suspects                   LIST    payloads of a list with which more than one died:
                                                    taken one at a time
    <prefix>:{q}:once:<sha256>              STRING  of a job's id: it is finished, and must not run again; expires
"""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Final

LAYOUT: Final = 1  #: of everything above; a Redis with a higher one was written by a newer release, and is refused


@dataclass(frozen=True)
class QueueKeys:
    """The keys of one queue."""

    tag: str  #: `<prefix>:{queue}`
    ready: str
    group: str | None = None  #: the consumer group of a ready queue that is a stream; None: it is a list

    @property
    def ready_kind(self) -> str:
        """The ready key's type, as Redis calls it."""
        return "list" if self.group is None else "stream"

    @cached_property
    def delayed(self) -> str:
        return f"{self.tag}:delayed"

    @cached_property
    def bodies(self) -> str:
        return f"{self.tag}:bodies"

    @cached_property
    def leases(self) -> str:
        return f"{self.tag}:leases"

    @cached_property
    def dead(self) -> str:
        return f"{self.tag}:dead"

    @cached_property
    def trash(self) -> str:
        return f"{self.tag}:trash"

    @cached_property
    def trouble(self) -> str:
        return f"{self.tag}:trouble"

    @cached_property
    def moved(self) -> str:
        return f"{self.tag}:moved"

    @cached_property
    def paused(self) -> str:
        return f"{self.tag}:paused"

    @cached_property
    def workers(self) -> str:
        return f"{self.tag}:workers"

    @cached_property
    def departed(self) -> str:
        return f"{self.tag}:departed"

    @cached_property
    def turns(self) -> str:
        return f"{self.tag}:turns"

    @cached_property
    def strikes(self) -> str:
        return f"{self.tag}:strikes"

    @cached_property
    def suspects(self) -> str:
        return f"{self.tag}:suspects"

    def inflight(self, worker: str) -> str:
        return f"{self.tag}:inflight:{worker}"

    def once(self, job_id: str) -> str:
        """The hash keeps what producers choose out of our key space."""
        return f"{self.tag}:once:{hashlib.sha256(job_id.encode('utf-8', 'surrogatepass')).hexdigest()}"

    def cancelled(self, uuid: str) -> str:
        return f"{self.tag}:cancelled:{uuid}"

    def idempotency(self, tenant: str | None, key: str) -> str:
        """Per queue and tenant; the hash keeps what callers choose out of our key space."""
        digest = hashlib.sha256(f"{tenant or ''}\0{key}".encode()).hexdigest()
        return f"{self.tag}:idempotency:{digest}"


class Keys:
    """The keys under one prefix. `ready_keys` gives ready keys that are configured under another name, `streams` the
    consumer groups of those that are streams.
    """

    def __init__(
        self,
        prefix: str = "coatcheck",
        ready_keys: dict[str, str] | None = None,
        streams: dict[str, str] | None = None,
    ) -> None:
        self.prefix = prefix
        self.meta = f"{prefix}:meta"
        self.queues = f"{prefix}:queues"
        self.wake = f"{prefix}:wake"
        self._ready_keys = dict(ready_keys or {})
        self._streams = dict(streams or {})

    def queue(self, queue: str) -> QueueKeys:
        tag = f"{self.prefix}:{{{queue}}}"
        return QueueKeys(tag, self._ready_keys.get(queue) or f"{tag}:ready", self._streams.get(queue))

    @property
    def pattern(self) -> str:
        """Matches every key that belongs to a queue, for SCAN."""
        return f"{self.prefix}:{{*}}:*"

    def queue_of(self, key: str) -> str | None:
        """The queue that owns `key`, None if none does. Queue names hold no braces."""
        head, _, rest = key.partition("{")
        queue, closed, _ = rest.partition("}:")
        return queue if head == f"{self.prefix}:" and closed else None
