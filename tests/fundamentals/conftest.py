"""What each chapter begins with: a running service, and a consumer that knows nothing but BRPOP."""

from collections.abc import AsyncIterator

import pytest

from service.wiring import Service
from tests.kit.s3_servers import S3Server
from tests.kit.services import Consumer, a_consumer, running_service, settings_for


@pytest.fixture
async def service(redis_url: str, s3_server: S3Server) -> AsyncIterator[Service]:
    """Payloads over 16 KiB, or due in more than 15 minutes, go to S3."""
    async with running_service(settings_for(redis_url, s3_server)) as service:
        yield service


@pytest.fixture
async def consumer(redis_url: str) -> AsyncIterator[Consumer]:
    async with a_consumer(redis_url) as consumer:
        yield consumer
