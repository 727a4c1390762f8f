"""What proofs stand on: a Redis of their own, an S3 that is quick enough for thousands, proxies before both."""

from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from service.embedded import RedisServer
from tests.kit.proxy import Proxy
from tests.kit.s3_servers import ENVIRONMENT, S3Server, running_rclone
from tests.kit.site import Site


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent.name == "proofs":
            item.add_marker("proof")


@pytest.fixture(scope="session")
def rclone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with running_rclone(tmp_path_factory.mktemp("rclone")) as server:
        yield server


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """boto3's chain finds these, and nothing that this machine or an earlier test left."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def server(own_redis: Callable[..., RedisServer]) -> RedisServer:
    """This test's Redis."""
    return own_redis()


@pytest.fixture
async def site(server: RedisServer, rclone: S3Server) -> AsyncIterator[Site]:
    """An installation of its own: an empty Redis and an empty bucket."""
    made = Site(server.url, rclone, rclone.new_bucket())
    yield made
    await made.redis.aclose()


@pytest.fixture
async def s3_proxy(rclone: S3Server) -> AsyncIterator[Proxy]:
    """In front of the S3, for the processes that are told to go through it."""
    async with Proxy(rclone.port) as proxy:
        yield proxy


@pytest.fixture
async def redis_faults(server: RedisServer) -> AsyncIterator[Proxy]:
    """In front of this test's Redis, likewise."""
    async with Proxy(server.port) as proxy:
        yield proxy
