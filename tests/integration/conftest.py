"""A real S3 API, and a ledger on a real Redis, for whoever asks."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.kit.ledgers import Rig, rigged
from tests.kit.s3_servers import ENVIRONMENT, S3Server, running_moto


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with running_moto(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture
def s3_server(moto: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """With credentials where boto3's chain finds them."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    return moto


@pytest.fixture
async def rig(redis_url: str) -> AsyncIterator[Rig]:
    """A ledger whose time the test sets; the layout's invariants are checked after every script."""
    async with rigged(redis_url) as rig:
        yield rig
