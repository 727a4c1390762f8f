"""Whose turn it is."""

import math
from collections import Counter

import pytest
from hypothesis import given, strategies as st

from service.errors import CannotStart
from service.worker import Context, Worker
from service.worker.weights import Shares
from tests.kit.waiting import eventually
from tests.kit.workers import Gate, Log, Workshop, envelope


def served(shares: Shares, rounds: list[int], candidates: list[int]) -> Counter[int]:
    got: Counter[int] = Counter()
    for count in rounds:
        got.update(shares.grant(count, candidates))
    return got


@pytest.mark.parametrize("batch", [1, 3, 10, 250])
def test_shares_are_true_whatever_the_batches(batch: int) -> None:
    got = served(Shares([6, 3, 1]), [batch] * (10_000 // batch), [0, 1, 2])
    assert [round(got[queue] / got.total(), 3) for queue in range(3)] == [0.6, 0.3, 0.1]


def test_a_heavy_neighbour_starves_nobody() -> None:
    got = served(Shares([1_000, 1]), [1] * 10_010, [0, 1])
    assert got[1] == 10


def test_who_has_jobs_alone_gets_everything() -> None:
    shares = Shares([6, 3, 1])
    served(shares, [1] * 100, [0, 1])
    assert served(shares, [7] * 10, [2]) == {2: 70}


def test_who_comes_back_has_no_claim_on_what_it_did_not_want() -> None:
    """Else a queue that was empty for an hour would shut out the others for another."""
    shares = Shares([1, 1])
    served(shares, [1] * 1_000, [0])
    assert served(shares, [1] * 10, [0, 1])[0] in (4, 5, 6)


def test_what_was_granted_in_vain_is_not_charged() -> None:
    shares, neighbours = Shares([1, 1]), 0
    for _ in range(50):
        granted = shares.grant(10, [0, 1])
        shares.refund(0, granted.get(0, 0) - 1)  # it had but one, for payloads are large there
        neighbours += granted.get(1, 0)
    assert 50 <= neighbours <= 60


def test_strict_gives_everything_to_the_first_that_has_jobs() -> None:
    shares = Shares([1, 100], strict=True)
    assert shares.grant(5, [0, 1]) == {0: 5}
    assert shares.grant(5, [1]) == {1: 5}


@pytest.mark.parametrize("weights", [[], [0], [1, -1], [float("nan")], [float("inf")]])
def test_what_is_no_weight_is_refused(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="weight"):
        Shares(weights)


@given(
    st.lists(st.integers(1, 50), min_size=2, max_size=6),
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 5)), max_size=30),
)
def test_no_history_makes_shares_untrue_afterwards(weights: list[int], history: list[tuple[int, int]]) -> None:
    shares = Shares(weights)
    every = range(len(weights))
    for count, absent in history:
        shares.grant(count, [queue for queue in every if queue != absent])
    shares.grant(1, list(every))
    rounds = sum(weights)
    got = served(shares, [1] * rounds * 3, list(every))
    for queue in every:
        assert abs(got[queue] - 3 * weights[queue]) <= max(weights) + 1


async def test_shares_of_10_000_jobs_are_within_2_percent_and_nobody_starves(shop: Workshop, log: Log) -> None:
    """Through the whole worker: takes in batches, short jobs taken ahead, many handlers."""
    worker = Worker()

    @worker.task("note")
    async def note(context: Context) -> None:
        log.add(context.queue)

    weights = {"critical": 6.0, "default": 3.0, "low": 1.0}
    for queue in weights:
        for _ in range(10):
            await shop.push(queue, *(envelope("note") for _ in range(1_200)))
    async with shop.at_work(worker, weights=weights):
        await log.has(10_000, within_s=60)
    seen = log.seen[:10_000]
    for queue, weight in weights.items():
        assert abs(seen.count(queue) / 10_000 - weight / 10) <= 0.02 * weight / 10, Counter(seen)
    longest = max(b - a for a, b in zip(_at(seen, "low"), _at(seen, "low")[1:], strict=False))
    assert longest < 300, f"low waited for {longest} others"


async def test_strict_priority_does_the_first_queue_s_jobs_first(shop: Workshop, log: Log) -> None:
    worker = Worker()

    @worker.task("note")
    async def note(context: Context) -> None:
        log.add(context.queue)

    for queue in ("low", "critical"):
        await shop.push(queue, *(envelope("note") for _ in range(500)))
    async with shop.at_work(worker, "critical", "low", strict=True):
        await log.has(1_000, within_s=30)
    assert log.seen == ["critical"] * 500 + ["low"] * 500


def _at(seen: list[str], queue: str) -> list[int]:
    return [at for at, each in enumerate(seen) if each == queue]


async def test_with_the_others_empty_the_lightest_queue_has_every_hand_at_once(shop: Workshop) -> None:
    """A weight is a share among those who have jobs, and reserves nothing for those who have none."""
    worker, gate = Worker(), Gate()

    @worker.task("wait")
    async def wait() -> None:
        await gate.passed()

    async with shop.at_work(worker, weights={"critical": 1_000.0, "default": 30.0, "low": 1.0}, concurrency=10):
        await shop.push("low", *(envelope("wait") for _ in range(10)))
        await eventually(lambda: gate.waiting == 10)
        gate.open()
        await shop.idle("low")


@pytest.mark.parametrize("weight", [0, -1.0, math.nan, math.inf, 1e9])
async def test_a_worker_with_what_is_no_weight_cannot_start(shop: Workshop, weight: float) -> None:
    with pytest.raises(CannotStart, match="weights"):
        async with shop.at_work(Worker(), weights={"critical": 6.0, "low": weight}):
            pass
