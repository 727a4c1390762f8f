"""What every backend promises (storage_backends/base.py), held against each of them on a real server.

A new backend is done when it stands in conftest.py's `backend` fixture, and this file passes.
"""

import asyncio
import random
from contextlib import suppress

import pytest

from storage_backends import registry
from storage_backends.base import BackendKind, PayloadMissing, Scannable, StorageBackend, StorageUnavailable, Stored
from storage_backends.reference import MAX_TS_MS, Reference, new_uuid
from tests.contract.conftest import INSTALLATION

KIB = 1024
MIB = 1024 * KIB
SIZES = [0, 1, 64 * KIB - 1, 64 * KIB, 64 * KIB + 1, MIB, 16 * MIB]
QUEUES = ["q", "a..b", "a:b", "a.", "A-_:1", "0" * 128, "INSTALLATION"]
DAY_MS = 86_400_000


def a_reference(backend: StorageBackend, queue: str = "emails", ts_ms: int = 1_764_547_200_000) -> Reference:
    return Reference(backend.name, queue, ts_ms, new_uuid())


def bytes_of(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def test_it_offers_all_that_the_protocol_names(backend: StorageBackend) -> None:
    assert isinstance(backend, StorageBackend)
    assert backend.concurrency >= 1
    assert backend.inflight_bytes >= 1
    assert backend.inline == (backend.name == "redis")


@pytest.mark.parametrize("size", SIZES)
async def test_a_payload_comes_back_unchanged(backend: StorageBackend, size: int) -> None:
    """Every byte value, no length, and both sides of the 64 KiB at which a backend changes its ways."""
    reference, payload = a_reference(backend), bytes_of(size)
    await backend.put(reference, payload)
    assert await backend.get(reference) == payload


@pytest.mark.parametrize("queue", QUEUES)
async def test_any_queue_name_will_do(backend: StorageBackend, queue: str) -> None:
    """Queue names become part of a store's key: dots, colons and length must not change where it lies."""
    reference = a_reference(backend, queue)
    await backend.put(reference, b"x")
    assert await backend.get(reference) == b"x"
    await backend.delete([reference])
    with pytest.raises(PayloadMissing):
        await backend.get(reference)


@pytest.mark.parametrize("ts_ms", [0, 1, 253_402_300_800_000, MAX_TS_MS])
async def test_any_due_time_will_do(backend: StorageBackend, ts_ms: int) -> None:
    """`datetime` ends with the year 9999, references do not."""
    reference = a_reference(backend, ts_ms=ts_ms)
    await backend.put(reference, b"x")
    assert await backend.get(reference) == b"x"


async def test_queues_are_told_apart(backend: StorageBackend) -> None:
    uuid = new_uuid()
    first, second = (Reference(backend.name, queue, 7, uuid) for queue in ("a", "b"))
    await backend.put(first, b"first")
    await backend.put(second, b"second")
    await backend.delete([second])
    assert await backend.get(first) == b"first"


async def test_the_same_reference_again_overwrites(backend: StorageBackend) -> None:
    """A put is repeated when its answer was lost."""
    reference = a_reference(backend)
    for payload in (b"long, and then", b"short"):
        await backend.put(reference, payload)
        assert await backend.get(reference) == payload


async def test_a_missing_payload_is_an_answer_not_an_outage(backend: StorageBackend) -> None:
    """Were it StorageUnavailable, one bad job would open the breaker for all."""
    reference = a_reference(backend)
    with pytest.raises(PayloadMissing) as caught:
        await backend.get(reference)
    assert (caught.value.backend, caught.value.reference) == (backend.name, reference)


async def test_deleting_what_is_not_there_is_no_error(backend: StorageBackend) -> None:
    """The trash is emptied by whoever is alive, and again after a crash."""
    there, gone = a_reference(backend), a_reference(backend)
    await backend.put(there, b"x")
    for _ in range(2):
        await backend.delete([gone, there, gone, there])
    await backend.delete([])
    with pytest.raises(PayloadMissing):
        await backend.get(there)


async def test_thousands_are_deleted_in_one_call(backend: StorageBackend) -> None:
    """More than one request of any store takes; first, last and both sides of a batch's edge are really there."""
    references = [a_reference(backend, f"queue-{number % 3}") for number in range(2_500)]
    real = [references[number] for number in (0, 999, 1_000, 1_999, 2_000, 2_499)]
    for reference in real:
        await backend.put(reference, b"x")
    await backend.delete(references)
    for reference in real:
        with pytest.raises(PayloadMissing):
            await backend.get(reference)


async def test_a_large_body_is_admitted_before_it_is_read(backend: StorageBackend) -> None:
    """The dispatcher's byte budget: the length is known, and waiting is possible, before the bytes are in memory."""
    asked: list[int] = []

    async def admit(length_bytes: int) -> None:
        asked.append(length_bytes)
        await asyncio.sleep(0)

    for size in (0, 64 * KIB, 64 * KIB + 1, MIB):
        reference, payload = a_reference(backend), bytes_of(size)
        await backend.put(reference, payload)
        assert await backend.get(reference, admit) == payload
    assert asked == [64 * KIB + 1, MIB]


async def test_what_admit_raises_ends_the_call_and_nothing_else(backend: StorageBackend) -> None:
    """More often than there are connections: none may be left waiting for a reader."""

    async def admit(length_bytes: int) -> None:
        raise LookupError(length_bytes)

    reference = a_reference(backend)
    await backend.put(reference, bytes_of(MIB))
    for _ in range(backend.concurrency + 2):
        with pytest.raises(LookupError):
            await backend.get(reference, admit)
    assert await backend.get(reference) == bytes_of(MIB)


async def test_a_call_cancelled_while_it_waits_for_admission_lets_go(backend: StorageBackend) -> None:
    reference = a_reference(backend)
    await backend.put(reference, bytes_of(MIB))
    for _ in range(backend.concurrency + 2):
        waiting = asyncio.Event()

        async def admit(_: int, waiting: asyncio.Event = waiting) -> None:
            waiting.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(backend.get(reference, admit))
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert await backend.get(reference) == bytes_of(MIB)


async def test_calls_cancelled_anywhere_leave_it_working(backend: StorageBackend) -> None:
    """A dispatcher that stops cancels whatever is under way."""
    reference = a_reference(backend)
    await backend.put(reference, bytes_of(200 * KIB))
    for turns in range(12):
        tasks = [asyncio.create_task(backend.get(reference, _admit_all)) for _ in range(4)]
        for _ in range(turns * 10):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    assert await backend.get(reference, _admit_all) == bytes_of(200 * KIB)


async def test_many_calls_at_once_are_served(backend: StorageBackend) -> None:
    """More than `concurrency`: the rest waits its turn."""
    payloads = {a_reference(backend): bytes_of(size) for size in range(3 * min(backend.concurrency, 32))}
    await _put_at_once(backend, payloads)
    got = await asyncio.gather(*(backend.get(reference, _admit_all) for reference in payloads))
    assert got == list(payloads.values())


async def test_check_says_nothing_when_all_is_well(backend: StorageBackend) -> None:
    assert await backend.check() is None  # type: ignore[func-returns-value]  # that is the point


async def test_start_may_be_called_again_and_stays_ours(backend: StorageBackend) -> None:
    for _ in range(2):
        ownership = await backend.start(INSTALLATION)
        assert ownership.ours
        assert ownership.owner == INSTALLATION


async def test_aclose_may_be_called_again(backend: StorageBackend) -> None:
    await backend.aclose()
    await backend.aclose()


async def test_scan_meets_every_payload_once_and_nothing_else(backend: StorageBackend) -> None:
    """Rebuilding after Redis is lost: a payload that scan does not meet is a job that is lost."""
    scannable = _scannable(backend)
    queues, times = ("a..b", "a:b", "0" * 128), (0, DAY_MS - 1, DAY_MS, 1_764_547_200_000, MAX_TS_MS)
    stored = {a_reference(backend, queue, ts_ms): bytes_of(len(queue)) for queue in queues for ts_ms in times}
    await _put_at_once(backend, stored)
    met = [each async for each in scannable.scan()]
    assert sorted(str(each.reference) for each in met) == sorted(map(str, stored))
    assert all(each.size_bytes == len(stored[each.reference]) for each in met)


async def test_scan_keeps_to_the_days_it_is_given(backend: StorageBackend) -> None:
    """The sweeper's everyday pass reads past days alone."""
    scannable = _scannable(backend)
    by_day = {"1970-01-01": DAY_MS - 1, "1970-01-02": DAY_MS, "2025-12-01": 1_764_547_200_000, "1970-01-04": 3 * DAY_MS}
    for ts_ms in by_day.values():
        await backend.put(a_reference(backend, ts_ms=ts_ms), b"x")
    met: list[Stored] = [each async for each in scannable.scan(["1970-01-02", "2025-12-01", "1999-09-09"])]
    assert sorted(each.reference.ts_ms for each in met) == [DAY_MS, 1_764_547_200_000]
    assert [each async for each in scannable.scan([])] == []


@pytest.mark.usefixtures("memory_plugin")
@pytest.mark.parametrize("kind", ["redis", "s3", "memory"])
def test_every_kind_is_found_by_its_entry_point(kind: str) -> None:
    """Built-ins come in by the same door as other people's packages."""
    assert kind in registry.kinds()
    found: type[BackendKind] = registry.load(kind)
    assert found.Options is registry.options_of(kind)


def _scannable(backend: StorageBackend) -> Scannable:
    if not isinstance(backend, Scannable):
        pytest.skip(f"{backend.name} offers no scan")
    return backend


async def _put_at_once(backend: StorageBackend, payloads: dict[Reference, bytes]) -> None:
    """Repeats what the store did not take: rclone answers 500 to puts that race to make the same folder."""

    async def put(reference: Reference, payload: bytes) -> None:
        for _ in range(10):
            with suppress(StorageUnavailable):
                return await backend.put(reference, payload)
        return await backend.put(reference, payload)

    await asyncio.gather(*(put(*item) for item in payloads.items()))


async def _admit_all(length_bytes: int) -> None:
    assert length_bytes > 64 * KIB
