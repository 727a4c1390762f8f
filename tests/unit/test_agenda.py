"""When a queue that waits for something is looked at again: soon, then less and less often. Pure."""

import math

import pytest

from service.agenda import FIRST_WAIT_S, Agenda


@pytest.fixture
def agenda():
    return Agenda(longest_wait_s=1.0, cool_down_s=30.0)


def test_a_queue_that_waits_for_nothing_may_always_be_looked_at(agenda):
    assert agenda.ready("a", 0)
    assert agenda.first_look_s(0) == math.inf


@pytest.mark.parametrize("cause", ["slots", "ready_full", "redis_full"])
def test_waits_double_up_to_the_interval(agenda, cause):
    """Else a full ready list would be asked about as fast as Redis answers."""
    now_s, waits = 0.0, []
    for _ in range(8):
        agenda.wait("a", cause, now_s)
        waits.append(agenda.first_look_s(now_s))
        now_s += waits[-1]
        assert agenda.ready("a", now_s)
        assert not agenda.ready("a", now_s - 0.001)
    assert waits == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0])


def test_no_wait_is_longer_than_a_short_interval():
    agenda = Agenda(longest_wait_s=0.01, cool_down_s=30.0)
    agenda.wait("a", "slots", 0)
    assert agenda.first_look_s(0) == 0.01


def test_something_taken_begins_the_waits_anew(agenda):
    for _ in range(5):
        agenda.wait("a", "ready_full", 0)
    agenda.go_on("a")
    assert agenda.ready("a", 0)
    agenda.wait("a", "ready_full", 0)
    assert agenda.first_look_s(0) == FIRST_WAIT_S


def test_another_cause_begins_the_waits_anew(agenda):
    for _ in range(5):
        agenda.wait("a", "ready_full", 0)
    agenda.wait("a", "slots", 0)
    assert agenda.first_look_s(0) == FIRST_WAIT_S


@pytest.mark.parametrize("cause", ["ready_unusable", "error"])
def test_what_needs_people_waits_for_the_cool_down_each_time(agenda, cause):
    for _ in range(3):
        agenda.wait("a", cause, 0)
        assert agenda.first_look_s(0) == 30.0
        assert agenda.waits_for("a", cause, 29.9)
        assert not agenda.waits_for("a", cause, 30.0)


def test_free_slots_let_only_those_look_who_wait_for_slots(agenda):
    agenda.wait("a", "slots", 0)
    agenda.wait("b", "ready_full", 0)
    assert agenda.slots_freed()
    assert agenda.ready("a", 0)
    assert not agenda.ready("b", 0)
    assert agenda.starved("a"), "others held all slots at its last turn: it comes first"
    assert not agenda.starved("b")


def test_nobody_is_woken_when_nobody_waits_for_slots(agenda):
    agenda.wait("b", "ready_full", 0)
    assert not agenda.slots_freed()


def test_queues_that_are_no_longer_due_are_forgotten(agenda):
    """Else names of queues would pile up, and a queue that is due again would wait for its old reason."""
    for queue in "abc":
        agenda.wait(queue, "slots", 0)
    agenda.keep(["b", "d"])
    assert len(agenda) == 1
    assert agenda.causes() == {"slots": 1}
    assert agenda.ready("a", 0)
    assert not agenda.ready("b", 0)


def test_the_first_of_several_decides(agenda):
    agenda.wait("a", "ready_unusable", 0)
    agenda.wait("b", "ready_full", 0)
    assert agenda.first_look_s(0.02) == pytest.approx(0.03)
    assert agenda.first_look_s(1.0) == 0.0
