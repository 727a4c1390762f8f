"""Due jobs that were put back still count as overdue, until they may be claimed again. Pure."""

from service.overdue import Overdue
from service.records import PutBack


def put_back(count: int, oldest_ms: int, until_ms: int) -> list[PutBack]:
    return [PutBack("s3", count, oldest_ms, until_ms)]


def test_what_is_put_back_counts_until_it_is_due_again():
    overdue = Overdue()
    overdue.put_back("a", put_back(10, 500, 2000), 1000)
    assert overdue.of("a", 1999) == (10, 500)
    assert overdue.of("a", 2000) == (0, None)


def test_put_backs_add_up_and_the_oldest_counts():
    overdue = Overdue()
    overdue.put_back("a", put_back(10, 500, 2000), 1000)
    overdue.put_back("a", [*put_back(5, 400, 3000), PutBack("s4", 1, 600, 2500)], 1100)
    assert overdue.of("a", 1500) == (16, 400)
    assert overdue.of("a", 2700) == (5, 400)


def test_queues_do_not_mix():
    overdue = Overdue()
    overdue.put_back("a", put_back(10, 500, 2000), 1000)
    assert overdue.of("b", 1000) == (0, None)


def test_a_backlog_beyond_what_is_remembered_still_adds_up():
    """A million jobs are put back in hundreds of steps; memory must not grow with them."""
    overdue = Overdue()
    for step in range(500):
        overdue.put_back("a", put_back(2000, 500 + step, 100_000 + step), 1000)
    assert overdue.of("a", 2000) == (1_000_000, 500)
    assert len(overdue._groups["a"]) <= 100
    assert overdue.of("a", 100_499) == (0, None)


def test_merged_groups_stay_until_the_last_of_them_is_due():
    overdue = Overdue()
    overdue.put_back("a", put_back(1, 1, 90_000), 0)
    for _ in range(150):
        overdue.put_back("a", put_back(1, 1, 2_000), 0)
    assert overdue.of("a", 3_000)[0] >= 1


def test_queues_that_nobody_asks_about_are_forgotten():
    """The gauges ask for a few hundred queues; the others would stay for ever."""
    overdue = Overdue()
    for number in range(5000):
        overdue.put_back(f"q{number}", put_back(1, 1, number + 10), number)
    assert len(overdue._groups) < 2100
