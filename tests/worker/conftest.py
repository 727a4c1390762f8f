"""A place to work on a real server."""

from collections.abc import AsyncIterator

import pytest

from tests.kit.workers import Log, Workshop, a_workshop


@pytest.fixture
async def shop(redis_url: str) -> AsyncIterator[Workshop]:
    async with a_workshop(redis_url) as made:
        yield made


@pytest.fixture
def log() -> Log:
    return Log()
