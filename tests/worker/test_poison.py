"""What nobody can work on ends in the dead set with its reason, payload kept, and holds nobody up."""

import json

import pytest

from service.worker import Worker
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
