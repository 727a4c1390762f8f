"""Where inspectors look: a server with the shipped ACL file, whose MONITOR is followed during the whole suite."""

from collections.abc import AsyncIterator, Iterator

import pytest

from service.embedded import RedisServer
from tests.kit.inspecting import Inspected, Monitor, inspected_server, inspecting


@pytest.fixture(scope="session")
def inspectors_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One server a test process, for these tests alone. Ask for `inspected`."""
    with inspected_server(tmp_path_factory.mktemp("acl")) as server:
        yield server


@pytest.fixture(scope="session")
def monitor(inspectors_redis: RedisServer) -> Iterator[Monitor]:
    """Follows the server from the first test to the last."""
    following = Monitor(inspectors_redis.url)
    yield following
    following.close()


@pytest.fixture
async def inspected(inspectors_redis: RedisServer, monitor: Monitor) -> AsyncIterator[Inspected]:
    """An empty Redis to fill and to look at. Fails the test if looking wrote, or sent anything but reads."""
    async with inspecting(inspectors_redis.url) as made:
        yield made
    await monitor.caught_up()
    assert monitor.refused == [], "an inspector sent what is no read"
