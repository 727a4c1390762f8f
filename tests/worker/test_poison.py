"""What nobody can work on ends in the dead set with its reason, payload kept, and holds nobody up."""

import json
from datetime import timedelta
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator

from service.worker import Retry, Worker
from tests.kit.workers import QUEUE, Log, Workshop, both_kinds, envelope

GOOD = envelope("note")


def without(*names: str) -> bytes:
    return json.dumps({name: value for name, value in json.loads(GOOD).items() if name not in names}).encode()


POISON = {
    "nothing": (b"", "not_an_envelope", "not JSON"),
    "no JSON": (b"{", "not_an_envelope", "not JSON"),
    "no UTF-8": (b"\xff\xfe\x00", "not_an_envelope", "not JSON"),
    "deep": (b"[" * 100_000 + b"]" * 100_000, "not_an_envelope", "RecursionError"),
    "no object": (b'["note"]', "not_an_envelope", "not a JSON object"),
    "no id": (without("id"), "not_an_envelope", "id"),
    "no task": (without("task"), "not_an_envelope", "task"),
    "no attempt": (without("attempt"), "not_an_envelope", "attempt"),
    "id of another type": (envelope("note", id=7), "not_an_envelope", "id"),
    "type of another type": (envelope("note", task={"type": 7, "payload": 1}), "not_an_envelope", "type"),
    "retries of another type": (envelope("note", max_retries="3"), "not_an_envelope", "max_retries"),
    "16 MiB of no JSON": (b"\x00" * 2**24, "not_an_envelope", "not JSON"),
    "16 MiB without a handler": (envelope("nobody_s", "x" * 2**24), "unknown_task", "nobody_s"),
    "a long type": (envelope("x" * 5_000), "not_an_envelope", "type"),
    "a lone surrogate": (GOOD.replace(b'"note"', b'"\\ud800"'), "unknown_task", "no handler"),
    "an id of a lone surrogate": (envelope("nobody_s", id="\ud800"), "unknown_task", "nobody_s"),
}


@both_kinds
@pytest.mark.parametrize("kind", POISON)
async def test_poison_is_dead_with_its_reason_and_the_jobs_around_it_are_done(
    shop: Workshop, log: Log, kind: str
) -> None:
    payload, reason, error = POISON[kind]
    worker = Worker()
    worker.task("note")(lambda: log.add(1))
    async with shop.at_work(worker) as work:
        await shop.push(QUEUE, envelope("note"), payload, envelope("note"))
        await log.has(2)
        (record,) = await shop.dead(within_s=30)
        await shop.idle()
        assert work.shift.alive().ok
    assert record["reason"] == reason
    assert error in record["error"]
    assert record["body"] == payload


@pytest.mark.parametrize("due", [10**400, -1, "tomorrow"])
async def test_a_due_that_is_no_time_is_worked_on_like_none(shop: Workshop, log: Log, due: Any) -> None:
    """It is of use to metrics alone; arithmetic with any of these would end a hand."""
    worker = Worker()
    worker.task("note")(lambda: log.add(1))
    async with shop.at_work(worker) as work:
        await shop.push(QUEUE, envelope("note", due=due))
        await log.has(1)
        await shop.idle()
        assert work.shift.alive().ok


async def test_a_payload_whose_validator_raises_anything_is_refused_without_a_word_of_it(shop: Workshop) -> None:
    """pydantic lets through all but ValueError and AssertionError, and an application's validator looks things up."""
    worker = Worker()

    def look_up(name: str) -> str:
        return {}[name]

    @worker.task("typed")
    async def typed(payload: Annotated[str, AfterValidator(look_up)]) -> None: ...

    async with shop.at_work(worker) as work:
        await shop.push(QUEUE, envelope("typed", "secret"))
        (record,) = await shop.dead()
        await shop.idle()
        assert work.shift.alive().ok
    assert (record["reason"], record["error"]) == ("invalid_payload", "not what 'typed' takes: KeyError")


async def test_a_job_that_cannot_be_handled_for_a_reason_that_nobody_foresaw_ends_no_hand(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be handed to one hand after the other, in one process after the other."""

    def surprised(*_: Any) -> None:
        raise LookupError("secret")

    worker = Worker()
    monkeypatch.setattr(worker, "find", surprised)
    async with shop.at_work(worker) as work:
        await shop.push(QUEUE, envelope("any"))
        (record,) = await shop.dead()
        await shop.idle()
        assert work.shift.alive().ok
    assert record["reason"] == "unexpected"
    assert record["error"].startswith("LookupError at ")


async def test_a_retry_after_more_than_time_has_to_give_is_an_error_of_its_handler(shop: Workshop) -> None:
    worker = Worker()

    @worker.task("later")
    async def later() -> None:
        raise Retry(after=timedelta.max)

    async with shop.at_work(worker) as work:
        await shop.push(QUEUE, envelope("later", max_retries=0))
        (record,) = await shop.dead()
        assert work.shift.alive().ok
    assert record["error"] == "ValueError: a duration is at most ten years"


@pytest.mark.parametrize("once", [None, "1h"])
async def test_an_id_that_no_text_could_be_is_an_id_all_the_same(shop: Workshop, log: Log, once: str | None) -> None:
    """JSON can spell lone surrogates; nothing else of ours can."""
    worker = Worker()
    worker.task("note", once=once)(lambda: log.add(1))
    async with shop.at_work(worker):
        await shop.push(QUEUE, envelope("note", id="\ud800"))
        await log.has(1)
        await shop.idle()


@both_kinds
async def test_a_payload_of_16_mib_is_worked_on(shop: Workshop, log: Log) -> None:
    worker = Worker()
    worker.task("note")(lambda payload: log.add(len(payload)))
    async with shop.at_work(worker):
        await shop.push(QUEUE, envelope("note", "x" * 2**24), envelope("note", "y"))
        assert sorted(await log.has(2, within_s=30)) == [1, 2**24]
        await shop.idle()


async def test_an_exception_that_cannot_say_what_it_is_keeps_no_job_alive(shop: Workshop) -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise ValueError("no")

    worker = Worker()

    @worker.task("mute")
    async def mute() -> None:
        raise MuteError

    async with shop.at_work(worker):
        await shop.push(QUEUE, envelope("mute", max_retries=0))
        (record,) = await shop.dead()
    assert record["error"].startswith("MuteError")
