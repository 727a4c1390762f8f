"""Every backend, each against a real server: what the contract suite runs over."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from redis.asyncio import Redis

from service.keys import Keys
from storage_backends import registry
from storage_backends.base import Context, StorageBackend
from tests.kit.plugins import installed
from tests.kit.s3_servers import ENVIRONMENT, S3Server, running_moto, running_rclone

INSTALLATION = "0193f2a4-7c1e-7b3a-9d57-6f0a1c2b3d4e"


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with running_moto(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture(scope="session")
def rclone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with running_rclone(tmp_path_factory.mktemp("rclone")) as server:
        yield server


@pytest.fixture(scope="session")
def memory_plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with installed("coatcheck_memory", tmp_path_factory.mktemp("plugins")):
        yield


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """boto3's chain finds these, and nothing that this machine or an earlier test left."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(params=[pytest.param("redis", marks=pytest.mark.redis), "moto", "rclone", "memory"])
def made(request: pytest.FixtureRequest, _credentials: None) -> StorageBackend:
    """A backend of each kind on a place of its own. Built as the service builds it, and not started."""
    if request.param == "redis":
        client: Redis = request.getfixturevalue("redis_client")
        return build("redis", "redis", context=Context(client, lambda queue: Keys().queue(queue).bodies))
    if request.param == "memory":
        request.getfixturevalue("memory_plugin")
        return build("memory", "memory")
    server: S3Server = request.getfixturevalue(request.param)
    return build("s3", "s3", server.options(server.new_bucket(), prefix="coats"))


@pytest.fixture
async def backend(made: StorageBackend) -> AsyncIterator[StorageBackend]:
    """Started, with nothing in it."""
    await made.start(INSTALLATION)
    yield made
    await made.aclose()


@pytest.fixture(params=["moto", "rclone"])
def s3_server(request: pytest.FixtureRequest) -> S3Server:
    server: S3Server = request.getfixturevalue(request.param)
    return server


def build(name: str, kind: str, options: dict[str, Any] | None = None, context: Context = Context()) -> StorageBackend:  # noqa: B008  # frozen
    return registry.build(name, kind, registry.options_of(kind)(**(options or {})), context)
