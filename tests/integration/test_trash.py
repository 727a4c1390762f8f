"""The trash while its backend fails: when deletions are tried again."""

from collections.abc import AsyncIterator, Sequence

import pytest

from service.clock import SystemClock
from service.metrics import Metrics
from service.trash import Trash
from storage_backends.base import StorageUnavailable
from storage_backends.reference import Reference
from tests.kit.ledgers import QUEUE, Rig, rigged


class Away:
    """Of a backend, what the trash uses; it is not there."""

    name = "s3"

    async def delete(self, references: Sequence[Reference]) -> None:
        raise StorageUnavailable("away", backend=self.name)


@pytest.fixture
async def rig(redis_url: str) -> AsyncIterator[Rig]:
    async with rigged(redis_url) as made:
        yield made


async def deleted_in_vain(rig: Rig, trash: Trash) -> int:
    """One more job ends; how long its deletion was put off, s."""
    job = await rig.offloaded()
    await rig.ledger.cancel(job)
    await trash.collect(QUEUE)
    await trash.round()
    score = await rig.score("trash", job)
    assert score is not None
    return round((score - rig.now_ms) / 1000)


async def test_many_failures_in_a_moment_put_deletions_off_for_a_minute_not_for_an_hour(rig: Rig) -> None:
    """A busy service tries many pages in the first second of an outage: counted one by one they doubled the pause ten
    times, and after an outage of seconds payloads stayed for an hour."""
    trash = Trash(rig.ledger, {"s3": Away()}, Metrics("0", backends=["redis", "s3"]), SystemClock())  # type: ignore[dict-item]  # a part
    assert {await deleted_in_vain(rig, trash) for _ in range(12)} == {60}
    rig.now_ms += 10 * 60_000
    assert await deleted_in_vain(rig, trash) == 10 * 60
    rig.now_ms += 10_000 * 60_000
    assert await deleted_in_vain(rig, trash) == 60 * 60
