"""Where jobs are accepted, and how callers reach it; tests with needs of their own make their own."""

from collections.abc import AsyncIterator

import httpx
import pytest

from tests.kit.desk import Desk, a_desk
from tests.kit.s3_servers import S3Server
from tests.kit.web import app_of, calling


@pytest.fixture
async def desk(redis_url: str, s3_server: S3Server) -> AsyncIterator[Desk]:
    async with a_desk(redis_url, s3_server) as made:
        yield made


@pytest.fixture
async def api(desk: Desk) -> AsyncIterator[httpx.AsyncClient]:
    async with calling(app_of(desk)) as caller:
        yield caller
