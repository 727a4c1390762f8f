"""The breaker's table, then a model beside it, then whole outages in virtual time. Pure: no server, no clock."""

import heapq
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from service.breaker import ALL, Breaker, Permit, Policy

CLOSED = Breaker()


def opened(at_s: float = 0.0) -> Breaker:
    return CLOSED.tripped(at_s)


def half_open(at_s: float = 30.0) -> Breaker:
    return opened(at_s - 30).checked(at_s)


def after_failures(*jobs: str, at_s: float = 0.0, **how: bool) -> Breaker:
    breaker = CLOSED
    for job in jobs:
        breaker, _ = breaker.failed(job, at_s, **how)
    return breaker


class TestClosed:
    def test_everything_may_be_asked(self):
        assert CLOSED.permit(0) == ALL
        assert CLOSED.begin("a", 0) is CLOSED

    def test_a_failure_with_a_good_check_is_the_jobs(self):
        breaker, charged = CLOSED.failed("a", 0)
        assert (breaker.state, charged) == ("closed", True)

    def test_a_failing_check_opens_at_once_and_charges_nobody(self):
        breaker, charged = CLOSED.failed("a", 0, check_ok=False)
        assert (breaker.state, charged) == ("open", False)

    def test_the_fifth_different_job_opens_it_and_is_not_charged(self):
        breaker = after_failures("a", "b", "c", "d")
        assert breaker.state == "closed"
        breaker, charged = breaker.failed("e", 30)
        assert (breaker.state, charged) == ("open", False)

    def test_one_job_never_opens_it_however_often_it_fails(self):
        assert after_failures(*["a"] * 100).state == "closed"

    def test_failures_older_than_the_window_do_not_count(self):
        breaker, charged = after_failures("a", "b", "c", "d").failed("e", 30.001)
        assert (breaker.state, charged) == ("closed", True)

    def test_a_job_counts_from_its_last_failure(self):
        breaker = after_failures("a", "b", "c", "d")
        for job in "abcd":
            breaker, _ = breaker.failed(job, 20)
        assert breaker.failed("e", 50)[0].state == "open"

    def test_a_success_between_forgets_all_failures(self):
        breaker = after_failures("a", "b", "c", "d").succeeded()
        assert breaker == CLOSED
        assert breaker.failed("e", 0)[1]

    def test_throttling_never_charges_and_opens_it_even_for_a_single_job(self):
        breaker = CLOSED
        for _ in range(4):
            breaker, charged = breaker.failed("a", 0, throttled=True)
            assert (breaker.state, charged) == ("closed", False)
        breaker, charged = breaker.failed("a", 0, throttled=True)
        assert (breaker.state, charged) == ("open", False)

    def test_throttling_with_successes_between_does_not_open_it(self):
        """A busy store says `slow down` now and then among thousands of answers: no reason to stop asking."""
        breaker = CLOSED
        for _ in range(50):
            breaker = breaker.failed("a", 0, throttled=True)[0].succeeded()
        assert breaker.state == "closed"

    def test_throttled_answers_and_failing_jobs_count_together(self):
        breaker = after_failures("a", "b", throttled=True)
        for job in "aab":
            breaker, charged = breaker.failed(job, 1)
            assert charged
        assert breaker.failed("c", 1)[0].state == "open"

    def test_a_good_check_changes_nothing(self):
        assert CLOSED.checked(1_000) is CLOSED


class TestOpen:
    def test_nothing_may_be_asked_until_a_check_was_good(self):
        assert opened().permit(10) == Permit("nothing", 20)
        assert opened().permit(31) == Permit("nothing", 0)
        assert opened().begin("a", 31) is None

    def test_a_check_is_due_when_its_time_is_over_and_not_before(self):
        assert not opened().check_due(29.999)
        assert opened().check_due(30)
        assert opened().checked(29.999) == opened()
        assert opened().checked(30).state == "half_open"

    def test_another_failing_check_does_not_put_the_next_one_off(self):
        """Else calls under way when it opened would each prolong the outage."""
        assert opened().tripped(10) == opened()
        assert opened().failed("a", 10, check_ok=False)[0].permit(10).wait_s == 20

    def test_a_failing_check_that_was_due_begins_a_new_term(self):
        assert opened().tripped(30).permit(30) == Permit("nothing", 30)

    def test_a_late_failure_charges_nobody(self):
        assert opened().failed("a", 1) == (Breaker(state="open", suspect="a"), False)

    def test_a_late_success_does_not_close_it(self):
        """Its answer was on the way before the outage was noticed."""
        assert opened().succeeded() == opened()


class TestHalfOpen:
    def test_it_lets_one_job_through(self):
        breaker = half_open()
        assert breaker.permit(30) == Permit("probe")
        probing = breaker.begin("a", 30)
        assert probing.permit(31) == Permit("nothing", 29)
        assert probing.begin("b", 31) is None

    def test_it_avoids_the_job_that_failed_last(self):
        breaker, _ = half_open().begin("a", 30).failed("a", 31)
        assert breaker.checked(61).permit(61) == Permit("probe", avoid="a")

    def test_the_fifth_job_that_opened_it_is_avoided_too(self):
        assert after_failures(*"abcde").checked(30).permit(30).avoid == "e"

    def test_the_probes_success_closes_it(self):
        assert half_open().begin("a", 30).succeeded() == CLOSED

    def test_a_probe_that_fails_after_a_good_check_is_charged_and_opens_it(self):
        """Were it free, a bad object could be the probe for ever."""
        breaker, charged = half_open().begin("a", 30).failed("a", 31)
        assert (breaker.state, breaker.since_s, charged) == ("open", 31, True)

    @pytest.mark.parametrize("how", [{"check_ok": False}, {"throttled": True}])
    def test_a_probe_that_fails_by_the_backends_fault_is_not_charged(self, how):
        breaker, charged = half_open().begin("a", 30).failed("a", 31, **how)
        assert (breaker.state, breaker.since_s, charged) == ("open", 31, False)

    def test_a_late_failure_of_another_job_is_neither_charged_nor_taken_for_the_probes(self):
        breaker, charged = half_open().begin("a", 30).failed("b", 31)
        assert (breaker.state, breaker.probe, charged) == ("half_open", "a", False)

    def test_a_probe_that_told_nothing_makes_room_for_the_next(self):
        """A missing payload says nothing about the backend's health."""
        breaker = half_open().begin("a", 30).unproven("a")
        assert breaker.permit(31).kind == "probe"
        assert breaker.unproven("zzz") is breaker

    def test_a_probe_that_never_answers_is_given_up_after_a_term(self):
        """Its task may have been killed: the outage must end all the same."""
        lost = half_open().begin("a", 30)
        assert lost.permit(59.999).kind == "nothing"
        assert lost.permit(60).kind == "probe"
        assert lost.begin("b", 60).probe == "b"

    def test_a_failing_check_opens_it(self):
        assert half_open().tripped(40).permit(40) == Permit("nothing", 30)

    def test_it_closes_by_itself_if_nobody_wants_to_be_the_probe_and_a_second_check_is_good(self):
        """An idle process would show an outage until its next job, days later."""
        assert not half_open().check_due(59.999)
        assert half_open().checked(59.999) == half_open()
        assert half_open().checked(60) == CLOSED

    def test_it_does_not_close_by_itself_while_a_probe_is_under_way_or_just_lost(self):
        lost = half_open().begin("a", 50)
        assert not lost.check_due(79)
        assert not lost.check_due(109)
        assert lost.checked(110) == CLOSED


def test_it_remembers_few_jobs():
    breaker = CLOSED
    for n in range(1_000):
        breaker, _ = breaker.failed(f"job-{n}", n * 10.0)
        assert len(breaker.recent) < breaker.policy.failures


class BesideAModel(RuleBasedStateMachine):
    """The rules of the module's table, told a second time in the plainest way: a log of everything, searched anew."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = Policy(failures=3, window_s=10, open_s=8)
        self.breaker = Breaker(self.policy)
        self.now_s = 100.0
        self.log: list[tuple[float, str, bool]] = []

    def expected_to_open(self) -> bool:
        recent = [entry for entry in self.log if self.now_s - entry[0] <= self.policy.window_s]
        throttled = sum(entry[2] for entry in recent)
        return throttled + len({job for _, job, was_throttled in recent if not was_throttled}) >= self.policy.failures

    @rule(by_s=st.integers(0, 20))
    def time_passes(self, by_s):
        self.now_s += by_s

    @rule()
    def a_call_succeeds(self):
        was = self.breaker.state
        self.breaker = self.breaker.succeeded()
        assert self.breaker.state == ("open" if was == "open" else "closed")
        self.log.clear()

    @rule(job=st.sampled_from("abcd"), check_ok=st.booleans(), throttled=st.booleans())
    def a_call_fails(self, job, check_ok, throttled):
        was = self.breaker
        self.breaker, charged = was.failed(job, self.now_s, check_ok=check_ok, throttled=throttled)
        assert self.breaker.suspect == job
        self.log.append((self.now_s, job, throttled))
        is_probe = was.state == "half_open" and was.probe == job
        if not check_ok:
            assert (self.breaker.state, charged) == ("open", False)
        elif was.state == "closed":
            opens = self.expected_to_open()
            assert (self.breaker.state, charged) == (("open", False) if opens else ("closed", not throttled))
        else:
            assert charged == (is_probe and not throttled)
            assert self.breaker.state == ("open" if is_probe else was.state)
        if self.breaker.state != "closed":
            self.log.clear()

    @rule(job=st.sampled_from("abcd"))
    def a_call_begins(self, job):
        permit = self.breaker.permit(self.now_s)
        begun = self.breaker.begin(job, self.now_s)
        assert (begun is None) == (permit.kind == "nothing")
        if begun is not None:
            assert begun.permit(self.now_s).kind == ("all" if permit.kind == "all" else "nothing")
            self.breaker = begun

    @rule(job=st.sampled_from("abcd"))
    def a_call_tells_nothing(self, job):
        self.breaker = self.breaker.unproven(job)

    @precondition(lambda self: self.breaker.check_due(self.now_s))
    @rule(good=st.booleans())
    def the_due_check_is_run(self, good):
        was = self.breaker.state
        self.breaker = self.breaker.checked(self.now_s) if good else self.breaker.tripped(self.now_s)
        assert self.breaker.state == ({"open": "half_open", "half_open": "closed"}[was] if good else "open")
        assert not self.breaker.check_due(self.now_s)

    @invariant()
    def it_is_bounded(self):
        assert len(self.breaker.recent) < self.policy.failures

    @invariant()
    def good_checks_alone_lead_back_to_closed(self):
        """However it stands, and if nobody ever calls again: an outage ends by itself."""
        breaker, now_s = self.breaker, self.now_s
        for _ in range(4):
            now_s += self.policy.open_s
            breaker = breaker.checked(now_s)
        assert breaker.state == "closed"


BesideAModel.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestBesideAModel = BesideAModel.TestCase


@dataclass
class World:
    """Dispatchers, each with a breaker of its own, share jobs that come due at once; time is what the heap says.

    Claimed as the claim script does: earliest first; one probe at most, and another than the suspect if there is one.
    """

    jobs: int
    dispatchers: int = 3
    fetch_s: float = 0.5
    bad: frozenset[str] = frozenset()
    outage_s: tuple[float, float] = (0.0, 0.0)
    now_s: float = 0.0
    charges: dict[str, int] = field(default_factory=dict)
    delivered: set[str] = field(default_factory=set)
    dead: set[str] = field(default_factory=set)
    states: set[str] = field(default_factory=set)

    def run(self, until_s: float) -> "World":
        jitter = random.Random(1)
        delayed = [(0.0, f"job-{n:04d}") for n in range(self.jobs)]
        breakers = [Breaker() for _ in range(self.dispatchers)]
        busy: list[tuple[float, int, str]] = []
        while self.now_s < until_s and len(self.delivered | self.dead) < self.jobs:
            for which, breaker in enumerate(breakers):
                if breaker.check_due(self.now_s):
                    breakers[which] = breaker.tripped(self.now_s) if self.is_out() else breaker.checked(self.now_s)
                for job in self.claim(breakers[which], delayed):
                    breakers[which] = breakers[which].begin(job, self.now_s)
                    heapq.heappush(busy, (self.now_s + self.fetch_s * jitter.uniform(0.5, 1.5), which, job))
                self.states.add(breakers[which].state)
            self.now_s = min(busy[0][0] if busy else until_s, self.now_s + 1.0)
            while busy and busy[0][0] <= self.now_s:
                _, which, job = heapq.heappop(busy)
                breakers[which] = self.end(breakers[which], job, delayed, jitter)
        return self

    def is_out(self) -> bool:
        return self.outage_s[0] <= self.now_s < self.outage_s[1]

    def claim(self, breaker: Breaker, delayed: list[tuple[float, str]]) -> list[str]:
        permit = breaker.permit(self.now_s)
        due = sorted(entry for entry in delayed if entry[0] <= self.now_s)
        if permit.kind == "probe":
            due = ([entry for entry in due if entry[1] != permit.avoid] or due)[:1]
        taken = [] if permit.kind == "nothing" else due[:4]
        for entry in taken:
            delayed.remove(entry)
        return [job for _, job in taken]

    def end(self, breaker: Breaker, job: str, delayed: list[tuple[float, str]], jitter: random.Random) -> Breaker:
        if job not in self.bad and not self.is_out():
            self.delivered.add(job)
            return breaker.succeeded()
        breaker, charged = breaker.failed(job, self.now_s, check_ok=not self.is_out())
        self.charges[job] = self.charges.get(job, 0) + charged
        if self.charges[job] >= 8:
            self.dead.add(job)
        else:
            delayed.append((self.now_s + jitter.uniform(1, 2) * 2 ** self.charges[job], job))
        return breaker


def test_an_outage_of_twenty_minutes_charges_nobody_and_buries_nobody():
    """The rule this one replaced, `charge while closed`, buried every job that three dispatchers retried through it."""
    world = World(jobs=60, outage_s=(1.0, 1_201.0)).run(until_s=3_600)
    assert "open" in world.states
    assert len(world.delivered) == 60
    assert sum(world.charges.values()) == 0
    assert world.charges


def test_one_bad_object_among_a_thousand_good_ones_is_charged_until_dead_alone():
    world = World(jobs=1_001, bad=frozenset({"job-0003"})).run(until_s=3_600)
    assert len(world.delivered) == 1_000
    assert world.charges == {"job-0003": 8}
    assert world.dead == {"job-0003"}
    assert world.states == {"closed"}


def test_bad_objects_alone_open_the_breaker_and_still_come_to_an_end():
    """Ten of them, and one good job: they must neither circle for ever nor shut it out."""
    bad = frozenset(f"job-{n:04d}" for n in range(10))
    world = World(jobs=11, bad=bad).run(until_s=4 * 3_600)
    assert world.dead == bad
    assert world.delivered == {"job-0010"}


def test_three_throttling_dispatchers_charge_nobody():
    breakers = [Breaker() for _ in range(3)]
    for n in range(200):
        breaker, charged = breakers[n % 3].failed(f"job-{n}", n / 10, throttled=True)
        breakers[n % 3] = breaker
        assert not charged
    assert {breaker.state for breaker in breakers} == {"open"}
