"""Every backend, each against a real server: what the contract suite runs over."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from redis.asyncio import Redis

from service.keys import Keys
from storage_backends import registry
from storage_backends.base import Context, StorageBackend, StorageUnavailable
from storage_backends.reference import Reference, new_uuid
from storage_backends.s3 import S3Backend
from storage_backends.s3_options import S3Options
from tests.kit.plugins import installed
from tests.kit.proxy import Proxy
from tests.kit.s3_servers import ENVIRONMENT, S3Server, running_moto, running_rclone
from tests.kit.waiting import eventually

INSTALLATION = "0193f2a4-7c1e-7b3a-9d57-6f0a1c2b3d4e"
MARKER = "v1/s3/INSTALLATION"
TIMEOUT_S = 1.0  #: of backends whose store hangs: long for a busy machine, short for whoever waits


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


Make = Callable[..., Awaitable[S3Backend]]


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    """Backends that are closed at the end. `make(server, bucket, sse="AES256")`"""
    async with AsyncExitStack() as stack:

        async def made(server: S3Server, bucket: str, **options: Any) -> S3Backend:
            return await stack.enter_async_context(
                _closing(S3Backend("s3", S3Options(**server.options(bucket, **options))))
            )

        yield made


@asynccontextmanager
async def _closing(backend: S3Backend) -> AsyncIterator[S3Backend]:
    try:
        yield backend
    finally:
        await backend.aclose()


class Place:
    """A bucket, the backend that reads it through a proxy, and the proxy."""

    def __init__(self, server: S3Server, proxy: Proxy, **options: Any) -> None:
        self.server = server
        self.proxy = proxy
        self.bucket = server.new_bucket()
        chosen = {"endpoint_url": proxy.http_url, "timeout": TIMEOUT_S, "concurrency": 2, **options}
        self.backend = S3Backend("s3", S3Options(**server.options(self.bucket, **chosen)))


@pytest.fixture
async def place(moto: S3Server) -> AsyncIterator[Place]:
    async with Proxy(moto.port) as proxy:
        made = Place(moto, proxy)
        await eventually(lambda: _started(made.backend), described="a client is made, however busy the machine")
        yield made
        await proxy.heal()
        await made.backend.aclose()


async def _started(backend: S3Backend) -> bool:
    try:
        return (await backend.start(INSTALLATION)).ours
    except StorageUnavailable:
        return False


async def unavailable(backend: StorageBackend, *, put_maybe_done: bool, throttled: bool = False) -> None:
    """Every call says so, and a put tells whether it may have arrived."""
    reference = Reference(backend.name, "emails", 1_764_547_200_000, new_uuid())
    calls = [backend.put(reference, b"x"), backend.get(reference), backend.delete([reference]), backend.check()]
    for call, writes in zip(calls, (True, False, True, False), strict=True):
        with pytest.raises(StorageUnavailable) as caught:
            await call
        assert caught.value.throttled == throttled
        assert caught.value.maybe_done == (writes and put_maybe_done)


def build(name: str, kind: str, options: dict[str, Any] | None = None, context: Context = Context()) -> StorageBackend:  # noqa: B008  # frozen
    return registry.build(name, kind, registry.options_of(kind)(**(options or {})), context)
