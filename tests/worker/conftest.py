"""A place to work on a real server."""

from collections.abc import AsyncIterator

import pytest

from tests.kit.workers import QUEUES, Log, Workshop, a_workshop


@pytest.fixture
async def shop(request: pytest.FixtureRequest, redis_url: str) -> AsyncIterator[Workshop]:
    """Its ready queues are lists; streams, too, for tests with `tests.kit.workers.both_kinds`."""
    kind = getattr(request, "param", "list")
    async with a_workshop(redis_url, streams=QUEUES if kind == "stream" else ()) as made:
        yield made


@pytest.fixture
def log() -> Log:
    return Log()
