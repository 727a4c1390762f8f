"""Redis's clock as a process knows it between two replies."""

import math

import pytest

from service.clock import STEP_MS, ServerClock

HOUR_S = 3600.0
REDIS_MS = 1_800_000_000_000  # what Redis says when our monotonic clock says 1,000 s


class Machine:
    """A machine's two clocks, which tests move: together, or as a suspend or a step of the wall clock does."""

    def __init__(self) -> None:
        self.at_s = 1_000.0
        self.wall_ms = REDIS_MS - 5_000  # wrong by 5 s: claims and dues go by Redis's clock all the same

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic_s(self) -> float:
        return self.at_s

    def passes(self, seconds: float) -> None:
        self.at_s += seconds
        self.wall_ms += round(seconds * 1000)

    def sleeps(self, seconds: float) -> None:
        """CLOCK_MONOTONIC stands still while a machine is suspended."""
        self.wall_ms += round(seconds * 1000)


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def clock(machine: Machine) -> ServerClock:
    """One that has heard of Redis once."""
    clock = ServerClock(machine)
    clock.learn(REDIS_MS)
    return clock


def test_before_redis_told_its_time_it_is_unknown_and_this_machines_stands_in(machine: Machine) -> None:
    clock = ServerClock(machine)
    assert clock.known_for_s() == math.inf
    assert clock.now_ms() == machine.wall_ms


def test_it_goes_on_from_what_redis_said_whatever_this_machines_wall_clock_says(
    machine: Machine, clock: ServerClock
) -> None:
    machine.passes(2.5)
    assert clock.now_ms() == REDIS_MS + 2_500
    assert clock.known_for_s() == 2.5


def test_a_reply_that_was_slow_on_its_way_does_not_put_it_back(machine: Machine, clock: ServerClock) -> None:
    """Jobs would be late by the slowest reply, not by the quickest."""
    machine.passes(0.5)
    clock.learn(REDIS_MS + 500 - (STEP_MS - 1))
    assert clock.now_ms() == REDIS_MS + 500


def test_a_reply_that_was_quicker_puts_it_forward(machine: Machine, clock: ServerClock) -> None:
    machine.passes(0.5)
    clock.learn(REDIS_MS + 507)
    assert clock.now_ms() == REDIS_MS + 507


def test_a_step_back_of_redis_clock_is_followed_at_once(machine: Machine, clock: ServerClock) -> None:
    """Ahead of Redis's clock it would take jobs for due that no claim gives out."""
    machine.passes(0.5)
    clock.learn(REDIS_MS - 10_000)
    assert clock.now_ms() == REDIS_MS - 10_000


def test_a_small_step_back_is_forgotten_within_two_seconds(machine: Machine, clock: ServerClock) -> None:
    for _ in range(3):
        machine.passes(1)
        clock.learn(int(REDIS_MS + (machine.at_s - 1_000) * 1000) - 20)
    assert clock.now_ms() == REDIS_MS + 3_000 - 20


def test_after_the_machine_slept_the_time_is_unknown_until_redis_tells_it(machine: Machine, clock: ServerClock) -> None:
    """Otherwise a job with a delay of 30 s would be due at once: this clock is an hour behind."""
    machine.passes(1)
    machine.sleeps(HOUR_S)
    assert clock.known_for_s() == math.inf
    clock.learn(REDIS_MS + 3_601_000)
    assert clock.known_for_s() == 0
    assert clock.now_ms() == REDIS_MS + 3_601_000


@pytest.mark.parametrize("step_ms", [-5_000, 5_000])
def test_after_a_step_of_this_machines_wall_clock_redis_is_asked_once_more(
    machine: Machine, clock: ServerClock, step_ms: int
) -> None:
    machine.wall_ms += step_ms
    assert clock.known_for_s() == math.inf
    clock.learn(REDIS_MS)
    assert clock.known_for_s() == 0


def test_a_wall_clock_that_is_slewed_changes_nothing(machine: Machine, clock: ServerClock) -> None:
    machine.passes(4)
    machine.wall_ms += 200
    assert clock.known_for_s() == 4
