"""What every test may ask for: a real server with an empty database, one of its own, a proxy that makes faults."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack

import pytest
import structlog
from redis.asyncio import Redis

from service.embedded import RedisServer
from tests.kit.ledgers import Rig, rigged
from tests.kit.proxy import Proxy
from tests.kit.s3_servers import ENVIRONMENT, S3Server, running_moto
from tests.kit.servers import client_of, running_redis
from tests.kit.tasks import no_task_left

#: A test that reaches one of these runs in CI once more, on Debian's redis-server.
_SERVERS = {"shared_redis", "own_redis", "inspectors_redis"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _SERVERS & set(getattr(item, "fixturenames", ())):
            item.add_marker("redis")


@pytest.fixture(scope="session", autouse=True)
def _plain_logs() -> None:
    """What is logged is shown with a failure; tracebacks with every frame's locals would take longer than the test."""
    structlog.configure(
        processors=[
            structlog.stdlib.add_log_level,
            structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
        ]
    )


@pytest.fixture(scope="session")
def shared_redis() -> Iterator[RedisServer]:
    """One server a test process. Ask for `redis_url` or `redis_client`: they come with an empty database."""
    with running_redis() as server:
        yield server


@pytest.fixture
async def redis_url(shared_redis: RedisServer) -> str:
    """The URL of a real server whose databases are all empty. To kill or reconfigure one, take `own_redis`."""
    async with client_of(shared_redis.url) as client:
        await client.flushall()
    return shared_redis.url


@pytest.fixture
async def redis_client(redis_url: str) -> AsyncIterator[Redis]:
    """A client of `redis_url` that never retries."""
    async with client_of(redis_url) as client:
        yield client


@pytest.fixture
def own_redis() -> Iterator[Callable[..., RedisServer]]:
    """Starts servers for this test alone, to kill, stop and restart: `own_redis(maxmemory="20mb", appendonly=True)`."""
    with ExitStack() as running:
        yield lambda **options: running.enter_context(running_redis(**options))


@pytest.fixture
async def redis_proxy(redis_url: str, shared_redis: RedisServer) -> AsyncIterator[Proxy]:
    """A proxy in front of `redis_url`: `redis_proxy.url` passes everything until told otherwise."""
    async with Proxy(shared_redis.port) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """One S3 server a test process. Ask for `s3_server`."""
    with running_moto(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture
def s3_server(moto: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """A real S3 API, with credentials where boto3's chain finds them. Take a new bucket for each test."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    return moto


@pytest.fixture
async def rig(redis_url: str) -> AsyncIterator[Rig]:
    """A ledger whose time the test sets; the layout's invariants are checked after every script."""
    async with rigged(redis_url) as rig:
        yield rig


@pytest.fixture(autouse=True)
def _tasks(request: pytest.FixtureRequest) -> None:
    """Every asyncio test is checked for tasks that outlive it. Set up first, so that it looks after all the others."""
    if request.node.get_closest_marker("asyncio"):
        request.getfixturevalue("_no_task_left")


@pytest.fixture
async def _no_task_left() -> AsyncIterator[None]:
    yield
    await no_task_left()
