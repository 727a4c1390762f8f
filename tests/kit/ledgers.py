"""A ledger on a real server whose time tests set, and which is held to the layout's invariants after every script.

rig = Rig(url); rig.now_ms = T0
job = await rig.schedule(rig.entry(due_ms=T0))
assert await rig.where(job) == {"delayed"}
"""

import hashlib
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from service.clock import ServerClock, SystemClock
from service.keys import Keys
from service.ledger import Ledger
from service.records import Claimed, ClaimRequest, Delivered, Entry, Idempotency, Leased, Scheduled, Share
from service.scripts import Script, Scripts
from service.transport import Encodable, Transport, connect
from storage_backends.reference import InvalidName, Reference, new_uuid
from tests.kit.servers import client_of

T0 = 1_764_547_200_000
QUEUE = "emails"
LEASE_MS = 60_000
FREE = {"*": Share(1000)}

#: Everything of one queue in one step: claimers may be at work meanwhile.
_DUMP = """
local function zset(key) return redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') end
return { zset(KEYS[1]), zset(KEYS[2]), zset(KEYS[3]), zset(KEYS[4]), redis.call('HGETALL', KEYS[5]),
  redis.call('HGETALL', KEYS[6]), redis.call('HGETALL', KEYS[7]), redis.call('EXISTS', KEYS[8]),
  redis.call('ZSCORE', KEYS[9], ARGV[1]) or '' }
"""


class TimedTransport(Transport):
    """Fills the argument that only tests fill, and calls `after` when a script has run."""

    now_ms: int | None = None
    after: Any = None

    async def run(self, script: Script, keys: Sequence[str], arguments: Sequence[Encodable]) -> Any:
        if self.now_ms is not None and b"-- ARGV[1]  now, ms" in script.source:
            arguments = [self.now_ms, *arguments[1:]]
        try:
            return await super().run(script, keys, arguments)
        finally:
            if self.after is not None:
                await self.after()


@dataclass(frozen=True)
class Dump:
    """What one queue holds, at one moment. Scores in ms."""

    delayed: dict[bytes, float]
    leases: dict[bytes, float]
    dead: dict[bytes, float]
    trash: dict[bytes, float]
    bodies: dict[bytes, bytes]
    trouble: dict[bytes, bytes]
    moved: dict[bytes, bytes]
    paused: bool
    look: float | None  #: in the index

    @property
    def expected_look(self) -> float | None:
        """When the queue next needs a look, by the design's section 4."""
        heads = [*self.leases.values(), *self.trash.values(), *(() if self.paused else self.delayed.values())]
        if heads:
            return max(0.0, min(heads))
        return float("inf") if self.delayed or self.dead else None


class Rig:
    """One ledger, and eyes to look behind its back. Use `rigged`."""

    def __init__(self, url: str, direct_url: str, **options: Any) -> None:
        """`direct_url` is for looking: it leads past the proxy that `url` may lead through."""
        keys = options.pop("keys", None) or Keys()
        timeout_s = options.pop("timeout_s", 5)
        self.keys = keys
        self.pool = connect(url, timeout_s=timeout_s, max_connections=8)
        self.transport = TimedTransport(self.pool)
        self.ledger = Ledger(self.transport, keys, Scripts(), ServerClock(SystemClock()), **options)
        self.redis = client_of(direct_url)
        self.queues = {QUEUE}

    async def aclose(self) -> None:
        await self.pool.disconnect()
        await self.redis.aclose()

    @property
    def now_ms(self) -> int:
        """Where no test set it, this machine's, which is the server's, too."""
        return SystemClock().now_ms() if self.transport.now_ms is None else self.transport.now_ms

    @now_ms.setter
    def now_ms(self, ms: int | None) -> None:
        self.transport.now_ms = ms

    # -- doing ---------------------------------------------------------------------------------------------------------

    def entry(
        self,
        body: bytes | None = b"payload",
        *,
        due_ms: int | None = None,
        backend: str = "s3",
        queue: str = QUEUE,
        key: str | None = None,
        fingerprint: str = "print",
        put_at_ms: int | None = None,
    ) -> Entry:
        """Inline with a `body`; without one, a job of `backend` that was put at `put_at_ms`, or now."""
        due_ms = self.now_ms if due_ms is None else due_ms
        idempotency = key and Idempotency(self.keys.queue(queue).idempotency(None, key), fingerprint)
        if body is None:
            put_at_ms = self.now_ms if put_at_ms is None else put_at_ms
        name = backend if body is None else "redis"
        return Entry(Reference(name, queue, due_ms, new_uuid()), "why", body, put_at_ms, idempotency or None)

    async def schedule(self, entry: Entry) -> Reference:
        """Accepts one job that nothing speaks against."""
        [answer] = await self.ledger.schedule(entry.reference.queue, [entry])
        assert isinstance(answer, Scheduled), answer
        assert answer.outcome == "scheduled"
        return entry.reference

    async def inline(self, body: bytes = b"payload", **options: Any) -> Reference:
        return await self.schedule(self.entry(body, **options))

    async def offloaded(self, **options: Any) -> Reference:
        return await self.schedule(self.entry(None, **options))

    def request(self, **options: Any) -> ClaimRequest:
        usual = {"batch": 500, "max_ready": 10_000, "max_ready_bytes": None, "lease_ms": LEASE_MS, "shares": FREE}
        return ClaimRequest(**{**usual, **options})

    async def claim(self, queue: str = QUEUE, **options: Any) -> Claimed:
        return await self.ledger.claim(queue, self.request(**options))

    async def leased(self, **options: Any) -> Leased:
        """An offloaded job that is in this caller's hands."""
        reference = await self.offloaded(**options)
        [job] = (await self.claim(reference.queue)).leased
        assert job.reference == reference
        return job

    async def dead(self, reason: str = "payload_missing", **options: Any) -> Reference:
        """An offloaded job that was given up on."""
        job = await self.leased(**options)
        assert await self.ledger.bury(job.reference.queue, [(job, reason)]) == [True]
        return job.reference

    async def deliver(self, *jobs: Leased, payload: bytes = b"payload", queue: str = QUEUE) -> Delivered:
        return await self.ledger.deliver(queue, [(job, payload) for job in jobs])

    # -- looking -------------------------------------------------------------------------------------------------------

    async def dump(self, queue: str = QUEUE) -> Dump:
        of = self.keys.queue(queue)
        names = (of.delayed, of.leases, of.dead, of.trash, of.bodies, of.trouble, of.moved, of.paused, self.keys.queues)
        *parts, paused, look = await self.redis.eval(_DUMP, len(names), *names, queue)
        zsets = [{member: float(score) for member, score in _pairs(part)} for part in parts[:4]]
        hashes = [dict(_pairs(part)) for part in parts[4:]]
        return Dump(*zsets, *hashes, bool(paused), float(look) if look else None)

    async def where(self, reference: Reference) -> set[str]:
        """The sets that hold this reference; the ready list is not among them."""
        dump, member = await self.dump(reference.queue), str(reference).encode()
        sets = {"delayed": dump.delayed, "leases": dump.leases, "dead": dump.dead, "trash": dump.trash}
        return {name for name, members in sets.items() if member in members}

    async def score(self, name: str, reference: Reference) -> float | None:
        """A reference's score in one of its queue's sets."""
        scores: dict[bytes, float] = getattr(await self.dump(reference.queue), name)
        return scores.get(str(reference).encode())

    async def members(self, state: str) -> list[str]:
        """The first 1,000 that are `delayed`, `leased` or `dead`, in the order of their set."""
        page = await self.ledger.page(QUEUE, state, 1_000)
        return [place.member for place, _ in page.members]

    async def ready(self, queue: str = QUEUE) -> list[bytes]:
        """The ready list, oldest first."""
        return list(reversed(await self.redis.lrange(self.keys.queue(queue).ready, 0, -1)))

    async def record(self, reference: Reference) -> dict[str, Any]:
        """What the job's trouble says; empty if there is none."""
        text = (await self.dump(reference.queue)).trouble.get(reference.uuid.encode())
        return dict(json.loads(text)) if text else {}

    async def check(self) -> None:
        """Every invariant of the layout, in every queue of this rig."""
        for queue in self.queues:
            check(queue, await self.dump(queue))

    async def nothing_left(self, queue: str = QUEUE) -> None:
        """Fails if the queue owns a key, but for the ready list and what expires, or if the index names it."""
        of = self.keys.queue(queue)
        left = [key.decode() for key in await self.redis.keys(f"{of.tag.replace('{', '[{]').replace('}', '[}]')}:*")]
        left = [key for key in left if key != of.ready and ":cancelled:" not in key and ":idempotency:" not in key]
        assert not left, f"keys left behind: {sorted(left)}"
        assert await self.redis.zscore(self.keys.queues, queue) is None, "the index still names the queue"


def check(queue: str, dump: Dump) -> None:
    """A job is in exactly one set; bodies, records and moves are of jobs that live; the index says when to look."""
    sets = (dump.delayed, dump.leases, dump.dead, dump.trash)
    members = [member for held in sets for member in held]
    assert len(members) == len(set(members)), f"in two sets at once: {members}"
    living = {member for held in sets[:3] for member in held}
    uuids = {reference.uuid.encode() for member in living if (reference := parsed(member)) is not None}
    identities = uuids | {hashlib.sha1(member).hexdigest().encode() for member in living}
    bodies = set(dump.bodies) - {b"largest"}
    assert bodies <= uuids, f"bodies without a job: {bodies - uuids}"
    assert bool(bodies) == bool(dump.bodies), "a hash with nothing but `largest`"
    if b"largest" in dump.bodies:
        assert int(dump.bodies[b"largest"]) >= max(len(dump.bodies[body]) for body in bodies)
    assert set(dump.trouble) <= identities, f"records without a job: {set(dump.trouble) - identities}"
    assert set(dump.moved) <= uuids, f"moves without a job: {set(dump.moved) - uuids}"
    assert dump.look == dump.expected_look, f"the index says {dump.look} of {queue}, not {dump.expected_look}"


def parsed(member: bytes) -> Reference | None:
    """The reference that a member spells, if it spells one."""
    try:
        return Reference.parse(member.decode())
    except (InvalidName, UnicodeDecodeError):
        return None


@asynccontextmanager
async def rigged(url: str, *, through: str | None = None, **options: Any) -> AsyncIterator[Rig]:
    """A rig at T0 whose invariants are checked after every script; by way of `through`, if that is given."""
    rig = Rig(through or url, url, **options)
    rig.now_ms = T0
    rig.transport.after = rig.check
    try:
        yield rig
    finally:
        await rig.aclose()


def _pairs(flat: Sequence[Any]) -> list[tuple[Any, Any]]:
    return list(zip(flat[::2], flat[1::2], strict=True))
