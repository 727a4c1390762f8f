"""The inline backend where it differs: whose client it is, and what Redis's errors mean."""

from collections.abc import AsyncIterator, Callable

import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from service.embedded import RedisServer
from service.keys import Keys
from storage_backends.base import AccessDenied, Misconfigured, PayloadMissing, StorageUnavailable
from storage_backends.redis_inline import RedisInline
from storage_backends.reference import Reference, new_uuid
from tests.kit.proxy import Proxy
from tests.kit.servers import client_of


def bodies_key(queue: str) -> str:
    return Keys().queue(queue).bodies


@pytest.fixture
def inline(redis_client: Redis) -> RedisInline:
    return RedisInline("redis", redis_client, bodies_key)


@pytest.fixture
async def proxied(redis_proxy: Proxy) -> AsyncIterator[RedisInline]:
    async with client_of(redis_proxy.url) as client:
        yield RedisInline("redis", client, bodies_key)


def a_reference() -> Reference:
    return Reference("redis", "emails", 1_764_547_200_000, new_uuid())


def test_it_has_one_name(redis_client: Redis) -> None:
    with pytest.raises(Misconfigured, match="redis"):
        RedisInline("redis_2", redis_client, bodies_key)


async def test_a_payload_lies_where_the_scripts_look(inline: RedisInline, redis_client: Redis) -> None:
    """`schedule` writes and `claim` moves the same field; the backend only serves who asks for it by reference."""
    reference = a_reference()
    await inline.put(reference, b"x")
    assert await redis_client.hgetall("coatcheck:{emails}:bodies") == {reference.uuid.encode(): b"x"}
    await inline.delete([reference])
    assert await redis_client.exists("coatcheck:{emails}:bodies") == 0


async def test_the_client_stays_open(inline: RedisInline, redis_client: Redis) -> None:
    """It is the whole service's."""
    await inline.aclose()
    assert await redis_client.ping()


async def test_a_server_that_is_away_is_unavailable(proxied: RedisInline, redis_proxy: Proxy) -> None:
    reference = a_reference()
    await proxied.check()
    async with redis_proxy.down():
        for call in (
            proxied.put(reference, b"x"),
            proxied.get(reference),
            proxied.delete([reference]),
            proxied.check(),
        ):
            with pytest.raises(StorageUnavailable):
                await call
    with pytest.raises(PayloadMissing):
        await proxied.get(reference)


async def test_a_put_whose_answer_is_lost_may_have_happened(proxied: RedisInline, redis_proxy: Proxy) -> None:
    reference = a_reference()
    trap = redis_proxy.swallow_reply(b"HSET")
    with pytest.raises(StorageUnavailable) as caught:
        await proxied.put(reference, b"x")
    await trap
    assert caught.value.maybe_done
    assert await proxied.get(reference) == b"x"


async def test_a_full_redis_is_unavailable_and_has_kept_nothing(own_redis: Callable[..., RedisServer]) -> None:
    server = own_redis(maxmemory="1")
    async with client_of(server.url) as client:
        inline = RedisInline("redis", client, bodies_key)
        with pytest.raises(StorageUnavailable) as caught:
            await inline.put(a_reference(), b"x" * 1024)
        assert not caught.value.maybe_done
        await inline.check()


async def test_a_user_without_rights_is_denied(redis_client: Redis, redis_url: str) -> None:
    await redis_client.execute_command("ACL", "SETUSER", "guest", "on", ">word", "~*", "+ping", "+client", "+hello")
    try:
        for user in ("guest:word", "guest:wrong"):
            async with client_of(redis_url.replace("//", f"//{user}@")) as guest:
                with pytest.raises(AccessDenied):
                    await RedisInline("redis", guest, bodies_key).get(a_reference())
    finally:
        await redis_client.execute_command("ACL", "DELUSER", "guest")


async def test_what_has_no_meaning_here_is_passed_on(inline: RedisInline, redis_client: Redis) -> None:
    """A key of the wrong type is no outage: the dispatcher treats it as an unknown error of this job."""
    await redis_client.set(bodies_key("emails"), b"not a hash")
    with pytest.raises(ResponseError):
        await inline.get(a_reference())
