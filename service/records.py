"""What goes into the ledger and what comes out: one frozen value for each thing that a transition takes or tells."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from storage_backends.reference import Reference


@dataclass(frozen=True, slots=True)
class Idempotency:
    """An idempotency key as the delayed set's queue keeps it."""

    key: str  #: the Redis key, from keys.QueueKeys.idempotency
    fingerprint: str  #: of the request: the same key with another one is refused


@dataclass(frozen=True, slots=True)
class Entry:
    """One job to schedule. Exactly one of `body` (inline) and `put_at_ms` (offloaded) is set."""

    reference: Reference
    reason: str  #: the router's; kept with the idempotency key, for the replay
    body: bytes | None = field(default=None, repr=False)
    put_at_ms: int | None = None  #: Redis's time before the put began
    idempotency: Idempotency | None = None


class Outcome(StrEnum):
    """What schedule did with an entry."""

    SCHEDULED = "scheduled"
    REPLAYED = "replayed"  #: the key names an earlier job, made by the same request
    REUSED = "reused"  #: the key names an earlier job, made by another request
    STALE = "stale"  #: its payload was put so long ago that the sweeper may have found it
    CANCELLED = "cancelled"  #: a DELETE of this reference came first
    DISCARDED = "discarded"  #: its payload is in the trash already


@dataclass(frozen=True, slots=True)
class Scheduled:
    """The answer for one entry. For REPLAYED and REUSED, `reference` and `reason` are those of the earlier job."""

    outcome: Outcome
    reference: Reference
    reason: str


@dataclass(frozen=True, slots=True)
class Share:
    """What a claim may do with one backend's jobs."""

    slots: int  #: free fetch slots
    probe_in_ms: int | None = None  #: its breaker is open until then: put its jobs back
    avoid: Reference | None = None  #: take this one only if there is no other


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """What one claim may take."""

    batch: int
    max_ready: int
    max_ready_bytes: int | None  #: None: do not weigh the ready queue this time
    lease_ms: int
    shares: dict[str, Share]  #: by backend; `*` for any other name


@dataclass(frozen=True, slots=True)
class Leased:
    """A due job in this dispatcher's hands until `token`, the deadline by Redis's clock, ms.

    The token's fraction tells apart two leases of one job that were taken in the same millisecond.
    """

    reference: Reference
    token: float
    due_ms: int  #: when its owner wanted it


@dataclass(frozen=True, slots=True)
class PutBack:
    """Due jobs of a backend that cannot be asked now, as one figure for the overdue gauges."""

    backend: str
    count: int
    oldest_due_ms: int
    until_ms: int  #: none of them is due again before


@dataclass(frozen=True, slots=True)
class Buried:
    """A member that claim itself gave up on."""

    member: str
    reason: str


class ClaimStatus(StrEnum):
    OK = "ok"
    PAUSED = "paused"
    FULL = "full"  #: the ready queue has no room
    UNUSABLE = "unusable"  #: the ready key is of another type


@dataclass(frozen=True, slots=True)
class Claimed:
    """What one claim did."""

    status: ClaimStatus
    now_ms: int
    moved: int  #: inline jobs that are on the ready queue now
    lateness_sum_ms: int
    lateness_counts: Sequence[int]  #: by bucket, the last one beyond all bounds
    leased: Sequence[Leased]
    put_back: Sequence[PutBack]
    buried: Sequence[Buried]
    skipped: int  #: due, and left for want of a fetch slot
    next_look_ms: int | None
    leases_expired: bool  #: some lease ran out: reclaim
    trash_due: bool  #: some payload is to be deleted now

    @property
    def took(self) -> int:
        """Jobs that left the delayed set for good."""
        return self.moved + len(self.leased) + len(self.buried)

    @property
    def looks_again(self) -> bool:
        """Whether the queue needs another look at once."""
        return self.next_look_ms is not None and self.next_look_ms <= self.now_ms

    @property
    def progressed(self) -> bool:
        """Whether anything changed, by this claim or by what it tells its caller to do."""
        return bool(self.took or self.put_back or self.leases_expired or self.trash_due)


class Delivery(StrEnum):
    """What deliver did with one payload."""

    DELIVERED = "1"
    GONE = "0"  #: no lease stands: the job ended, or is no longer leased to anyone
    NO_ROOM = "2"  #: Redis is full, and the overdraft is used up
    UNUSABLE = "unusable"  #: the ready key is of another type; the lease is given back


@dataclass(frozen=True, slots=True)
class Delivered:
    """The answers to one deliver, in the order of the payloads."""

    now_ms: int
    outcomes: Sequence[Delivery]


@dataclass(frozen=True, slots=True)
class Failure:
    """One leased job that could not be delivered."""

    job: Leased
    kind: str  #: short constant, for the job's record
    charged: bool  #: whether it costs an attempt
    wait_ms: int = 0  #: before the next attempt, if it is not charged; a charged one backs off
    reason: str = "attempts_exhausted"  #: why it is dead, should this have been its last attempt


@dataclass(frozen=True, slots=True)
class Retried:
    """What became of one failure."""

    state: str  #: delayed, dead, or gone: no longer this dispatcher's
    attempts: int
    next_attempt_ms: int


@dataclass(frozen=True, slots=True)
class Job:
    """Where one job is."""

    reference: Reference
    state: str  #: delayed, leased, dead
    due_ms: int  #: when its owner wants it; never a retry's time
    next_attempt_ms: int | None  #: of a delayed job
    attempts: int
    expiries: int
    error: str | None  #: kind of the last error
    reason: str | None  #: why it is dead
    died_at_ms: int | None


@dataclass(frozen=True, slots=True)
class Stranger:
    """A member of a queue's set that is no reference of that queue: nobody's job, and shown as it is."""

    member: str
    state: str
    score_ms: int
    error: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Place:
    """Between two members of a sorted set: right behind this one, whether it is still there or not."""

    score: str  #: as Redis spells it
    member: str


@dataclass(frozen=True, slots=True)
class Page:
    """Some members of one set, in its order."""

    members: Sequence[tuple[Place, Job | Stranger]]
    left: int  #: how many follow them


@dataclass(frozen=True, slots=True)
class Counts:
    """How many jobs a queue holds, by state, at one moment of Redis's clock."""

    now_ms: int
    future: int
    overdue: int
    leased: int
    ready: int
    dead: int
    trash: int
    paused: bool
    next_due_ms: int | None  #: the head of the delayed set, due or not


@dataclass(frozen=True, slots=True)
class DueQueues:
    """Which queues need a look."""

    now_ms: int
    queues: Sequence[tuple[str, int]]  #: name and its next look, ms; the most urgent first
    next_look_ms: int | None  #: when the first of the others will
    next_queue: str | None = None  #: which that is
