"""What proofs stand on: a Redis of their own, an S3 that is quick enough for thousands, proxies before both."""

from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from service.embedded import RedisServer
from tests.kit.proxy import Proxy
from tests.kit.s3_servers import ENVIRONMENT, S3Server, running_moto
from tests.kit.site import Site


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent.name == "proofs":
            item.add_marker("proof")


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """moto's. rclone's is quicker, but while objects beside it come and go, it denies an object that it has just stored
    (seen in one of about 10,000 puts): no proof of ours can stand on that."""
    with running_moto(tmp_path_factory.mktemp("moto")) as server:
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
async def site(server: RedisServer, store: S3Server) -> AsyncIterator[Site]:
    """An installation of its own: an empty Redis and an empty bucket."""
    made = Site(server.url, store, store.new_bucket())
    yield made
    await made.redis.aclose()


@pytest.fixture
async def s3_proxy(store: S3Server) -> AsyncIterator[Proxy]:
    """In front of the S3, for the processes that are told to go through it."""
    async with Proxy(store.port) as proxy:
        yield proxy


@pytest.fixture
async def redis_faults(server: RedisServer) -> AsyncIterator[Proxy]:
    """In front of this test's Redis, likewise."""
    async with Proxy(server.port) as proxy:
        yield proxy
