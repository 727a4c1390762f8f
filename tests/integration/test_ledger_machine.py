"""Any order of transitions, with time passing in between, against a model that keeps one dictionary.

After each step every invariant of the layout holds (tests/kit/ledgers.py: check); here it is what happened to each job
that is held to the guarantees: delivered at most once, never early, never after `cancelled`; its payload lives as long.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule, run_state_machine_as_test

from service.records import Delivery, Entry, Failure, Leased, Scheduled, Share
from storage_backends.reference import Reference
from tests.kit.ledgers import LEASE_MS, QUEUE, T0, Rig, check, parsed

MAX_ATTEMPTS, MAX_EXPIRIES = 3, 2


@dataclass
class Model:
    """What is true of one job that was accepted."""

    entry: Entry
    due_ms: int  #: its owner's
    state: str = "delayed"  #: delayed, leased, dead, delivered, cancelled, purged
    lease: Leased | None = None
    not_before_ms: int = 0  #: after a retry or a release
    settled: bool = False  #: a cancel left its marker, found or not: no late schedule is accepted any more

    @property
    def reference(self) -> Reference:
        return self.entry.reference

    @property
    def inline(self) -> bool:
        return self.entry.body is not None


class Machine(RuleBasedStateMachine):
    url: str

    jobs = Bundle("jobs")
    leases = Bundle("leases")  #: also those that are over: stale dispatchers are what most of this is about

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.rig = self.run(self.started())
        self.model: dict[Reference, Model] = {}

    async def started(self) -> Rig:
        rig = Rig(self.url, self.url, max_expiries=MAX_EXPIRIES)
        await rig.redis.flushall()
        rig.now_ms = T0
        return rig

    def run(self, coroutine: Any) -> Any:
        return self.runner.run(coroutine)

    def teardown(self) -> None:
        try:
            self.run(self.ended())
        finally:
            self.run(self.rig.aclose())
            self.runner.close()

    async def ended(self) -> None:
        """Everything that is left is ended in its way; then nothing of the queue may be left."""
        rig = self.rig
        await rig.ledger.resume(QUEUE)
        rig.now_ms += 10**9
        await rig.ledger.reclaim(QUEUE)
        for _ in range(3):
            claimed = await rig.claim()
            await rig.deliver(*claimed.leased)
            rig.now_ms += 10**6
        await rig.ledger.purge(QUEUE, await rig.members("dead"))
        await rig.ledger.empty_trash(QUEUE, await rig.ledger.collect_trash(QUEUE, 1_000, put_off_ms=1))
        await rig.nothing_left()

    # -- what happens ------------------------------------------------------------------------------------------------

    @rule(
        target=jobs,
        kinds=st.lists(st.tuples(st.booleans(), st.integers(-3, 3), st.sampled_from([None, "k", "l"])), max_size=4),
    )
    def schedule(self, kinds):
        entries = [
            self.rig.entry(b"body" if inline else None, due_ms=self.rig.now_ms + 1_000 * late, key=key)
            for inline, late, key in kinds
        ]
        return multiple(*self.accept(entries))

    def accept(self, entries: list[Entry]) -> list[Reference]:
        answers = self.run(self.rig.ledger.schedule(QUEUE, entries))
        for entry, answer in zip(entries, answers, strict=True):
            assert isinstance(answer, Scheduled)
            if answer.outcome == "scheduled" and entry.reference not in self.model:
                self.model[entry.reference] = Model(entry, entry.reference.ts_ms)
        return [entry.reference for entry in entries]

    @rule(reference=jobs)
    def schedule_again(self, reference):
        """A late or repeated command of the same job: it never comes to life a second time."""
        if (job := self.model.get(reference)) is None:
            return
        [answer] = self.run(self.rig.ledger.schedule(QUEUE, [job.entry]))
        forgotten = job.entry.idempotency is None and job.state in ("delivered", "purged")
        if forgotten and answer.outcome == "scheduled":
            # Without a key nothing remembers it, which is why the ledger never repeats such a one.
            assert self.run(self.rig.ledger.cancel(reference)) == "cancelled"
            job.state, job.settled = "cancelled", True
            return
        expected = {"cancelled"} if job.settled else {"scheduled", "discarded"}
        assert answer.outcome in expected, (answer, job.state)

    @rule(ms=st.sampled_from([1, 500, 1_000, 3_000, LEASE_MS, 700_000]))
    def time_passes(self, ms):
        self.rig.now_ms += ms

    @rule(
        target=leases,
        batch=st.integers(1, 4),
        slots=st.integers(0, 3),
        probe=st.sampled_from([None, None, 5_000]),
        max_ready=st.sampled_from([2, 10_000, 10_000]),
    )
    def claim(self, batch, slots, probe, max_ready):
        before = self.run(self.rig.dump())
        share = Share(slots, probe)
        claimed = self.run(self.rig.claim(batch=batch, max_ready=max_ready, shares={"*": share}))
        after = self.run(self.rig.dump())
        assert not (before.paused and claimed.took)
        assert len(claimed.leased) <= (0 if probe else slots)
        assert claimed.moved + len(claimed.leased) <= batch
        assert not claimed.buried
        for member in set(before.delayed) - set(after.delayed) - set(after.leases):
            job = self.model[parsed(member)]
            assert job.inline
            self.deliver_in_model(job)
        for lease in claimed.leased:
            job = self.model[lease.reference]
            assert job.state == "delayed"
            assert max(job.due_ms, job.not_before_ms) <= self.rig.now_ms, "early"
            assert lease.due_ms == job.due_ms
            job.state, job.lease = "leased", lease
        assert len(set(before.delayed) - set(after.delayed)) == claimed.moved + len(claimed.leased)
        return multiple(*claimed.leased)

    def deliver_in_model(self, job: Model) -> None:
        assert job.state in ("delayed", "leased"), f"delivered although {job.state}"
        assert job.due_ms <= self.rig.now_ms, "early"
        job.state, job.lease = "delivered", None

    def owns(self, lease: Leased) -> bool:
        job = self.model[lease.reference]
        return job.state == "leased" and job.lease == lease

    @rule(held=st.lists(leases, max_size=3))
    def deliver(self, held):
        outcomes = self.run(self.rig.deliver(*held)).outcomes
        for lease, outcome in zip(held, outcomes, strict=True):
            job = self.model[lease.reference]
            assert (outcome is Delivery.DELIVERED) == (job.state == "leased")
            if outcome is Delivery.DELIVERED:
                self.deliver_in_model(job)

    @rule(target=leases, lease=leases)
    def extend(self, lease):
        mine = self.owns(lease)
        [extended] = self.run(self.rig.ledger.extend(QUEUE, [lease], LEASE_MS))
        assert (extended is not None) >= mine
        if mine:
            self.model[lease.reference].lease = extended
        return extended if mine else lease

    @rule(lease=leases, charged=st.booleans())
    def retry(self, lease, charged):
        mine, job = self.owns(lease), self.model[lease.reference]
        failure = Failure(lease, "timeout", charged, wait_ms=2_000)
        [retried] = self.run(self.rig.ledger.retry(QUEUE, [failure], max_attempts=MAX_ATTEMPTS))
        assert (retried.state != "gone") == mine
        if mine:
            assert charged or retried.state == "delayed"
            assert retried.attempts <= MAX_ATTEMPTS
            assert (retried.attempts == MAX_ATTEMPTS) == (retried.state == "dead")
            job.state, job.lease, job.not_before_ms = retried.state, None, retried.next_attempt_ms

    @rule(lease=leases, wait_ms=st.sampled_from([0, 1_000]))
    def release(self, lease, wait_ms):
        mine, job = self.owns(lease), self.model[lease.reference]
        assert self.run(self.rig.ledger.release(QUEUE, [lease], wait_ms=wait_ms)) == mine
        if mine:
            job.state, job.lease = "delayed", None
            job.not_before_ms = self.rig.now_ms + wait_ms if wait_ms else 0

    @rule(lease=leases)
    def bury(self, lease):
        mine, job = self.owns(lease), self.model[lease.reference]
        assert self.run(self.rig.ledger.bury(QUEUE, [(lease, "payload_missing")])) == [mine]
        if mine:
            job.state, job.lease = "dead", None

    @rule()
    def reclaim(self):
        over = {str(job.reference) for job in self.model.values() if job.lease and job.lease.token <= self.rig.now_ms}
        reclaimed = dict(self.run(self.rig.ledger.reclaim(QUEUE)))
        assert set(reclaimed) == over
        for member, state in reclaimed.items():
            job = self.model[Reference.parse(member)]
            job.state, job.lease, job.not_before_ms = state, None, 0

    @rule(reference=jobs)
    def cancel(self, reference):
        job = self.model.get(reference)
        answer = self.run(self.rig.ledger.cancel(reference))
        if job is None:
            assert answer == "gone"
            return
        expected = {"delayed": "cancelled", "leased": "cancelled", "cancelled": "cancelled", "dead": "dead"}
        assert answer == expected.get(job.state, "gone")
        job.settled = job.settled or answer != "dead"
        if answer == "cancelled":
            job.state, job.lease = "cancelled", None

    @rule(reference=jobs, late=st.integers(-3, 3))
    def reschedule(self, reference, late):
        due_ms, job = self.rig.now_ms + 1_000 * late, self.model.get(reference)
        answer = self.run(self.rig.ledger.reschedule(reference, due_ms))
        states = {"delayed": "delayed", "leased": "delayed", "dead": "dead"}
        assert answer == (states.get(job.state, "gone") if job else "gone")
        if job and answer == "delayed":
            job.state, job.lease, job.due_ms, job.not_before_ms = "delayed", None, due_ms, 0

    @rule(reference=jobs)
    def revive(self, reference):
        job = self.model.get(reference)
        assert self.run(self.rig.ledger.revive(QUEUE, [str(reference)])) == bool(job and job.state == "dead")
        if job and job.state == "dead":
            job.state, job.due_ms, job.not_before_ms = "delayed", self.rig.now_ms, 0

    @rule(reference=jobs)
    def purge(self, reference):
        job = self.model.get(reference)
        assert self.run(self.rig.ledger.purge(QUEUE, [str(reference)])) == bool(job and job.state == "dead")
        if job and job.state == "dead":
            job.state = "purged"

    @rule(reference=jobs, wait_ms=st.sampled_from([0, 5_000]))
    def discard(self, reference, wait_ms):
        if reference.backend != "redis":
            self.run(self.rig.ledger.discard(QUEUE, [reference], wait_ms=wait_ms))

    @rule(limit=st.integers(1, 3), confirmed=st.booleans())
    def take_out_the_trash(self, limit, confirmed):
        members = self.run(self.rig.ledger.collect_trash(QUEUE, limit, put_off_ms=5_000))
        for member in members:
            job = self.model.get(Reference.parse(member))
            assert job is None or job.state in ("delivered", "cancelled", "purged"), f"deleted although {job.state}"
        if confirmed:
            self.run(self.rig.ledger.empty_trash(QUEUE, members))

    @rule(paused=st.booleans())
    def pause_or_resume(self, paused):
        self.run(self.rig.ledger.pause(QUEUE) if paused else self.rig.ledger.resume(QUEUE))

    @rule()
    def consume(self):
        """What consumers take away does not matter to us, but for the room it makes."""
        self.run(self.rig.redis.delete(self.rig.keys.queue(QUEUE).ready))

    # -- what is true after each step --------------------------------------------------------------------------------

    @invariant()
    def the_layout_and_the_model_agree(self):
        dump = self.run(self.rig.dump())
        check(QUEUE, dump)
        for state, held in (("delayed", dump.delayed), ("leased", dump.leases), ("dead", dump.dead)):
            expected = {str(job.reference).encode() for job in self.model.values() if job.state == state}
            assert set(held) == expected, f"{state}: {set(held) ^ expected}"
        living = [job for job in self.model.values() if job.state in ("delayed", "leased", "dead")]
        bodies = {job.reference.uuid.encode() for job in living if job.inline}
        assert set(dump.bodies) - {b"largest"} == bodies, "bodies live exactly as long as their jobs"
        for job in living:
            assert job.lease is None or dump.leases[str(job.reference).encode()] == job.lease.token


def test_no_order_of_transitions_breaks_a_guarantee(shared_redis):
    """Delivered at most once, never early, never after `cancelled`; in exactly one set; bodies live with their jobs."""
    Machine.url = shared_redis.url
    # The same orders each time: a run that found a new one would fail somebody who changed something else. To look for
    # more, raise max_examples.
    bounded = settings(
        max_examples=60,
        stateful_step_count=40,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(Machine, settings=bounded)
