"""The proxy does to a real server's connections what it says, and nothing else."""

import asyncio
import time

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError, ReadOnlyError, TimeoutError as RedisTimeoutError

from tests.kit.proxy import Proxy
from tests.kit.servers import client_of
from tests.kit.waiting import eventually

LOST = (RedisConnectionError, OSError)


@pytest.fixture
async def through(redis_proxy):
    """A client that reaches the server by way of the proxy."""
    async with client_of(redis_proxy.url) as client:
        yield client


async def test_it_passes_everything(through):
    payload = bytes(range(256)) * 40_000
    await through.set("big", payload)
    assert await through.get("big") == payload


async def test_a_swallowed_reply_belongs_to_a_command_that_was_carried_out(redis_proxy, through, redis_client):
    await through.ping()
    trap = redis_proxy.swallow_reply(matching=b"INCR")
    with pytest.raises(LOST):
        await through.incr("counter")
    assert (await trap).reply == b":1\r\n"
    assert await redis_client.get("counter") == b"1"


async def test_only_the_next_matching_request_is_hit(redis_proxy, through, redis_client):
    trap = redis_proxy.swallow_reply(matching=lambda request: b"SET" in request and b"second" in request)
    await through.set("first", 1)
    with pytest.raises(LOST):
        await through.set("second", 2)
    await trap
    await through.set("second", 3)
    assert await redis_client.mget("first", "second") == [b"1", b"3"]


async def test_a_script_is_recognised_by_its_arguments(redis_proxy, through, redis_client):
    """What the ledger's tests rest on: EVALSHA of one job's transition, and no other."""
    script = through.register_script("return redis.call('INCR', KEYS[1])")
    await script(keys=["counter"])
    trap = redis_proxy.swallow_reply(matching=lambda request: b"EVALSHA" in request and b"job-7" in request)
    await script(keys=["counter"], args=["job-6"])
    with pytest.raises(LOST):
        await script(keys=["counter"], args=["job-7"])
    await trap
    assert await redis_client.get("counter") == b"3"


async def test_a_request_in_many_pieces_is_recognised_by_its_end(redis_proxy, through, redis_client):
    await through.ping()
    trap = redis_proxy.swallow_request(matching=b"the-very-end")
    with pytest.raises(LOST):
        await through.set("big", b"x" * 3_000_000 + b"the-very-end")
    await trap
    assert await redis_client.exists("big") == 0


async def test_a_swallowed_request_is_never_carried_out(redis_proxy, through, redis_client):
    trap = redis_proxy.swallow_request(matching=b"INCR")
    with pytest.raises(LOST):
        await through.incr("counter")
    await trap
    assert await redis_client.exists("counter") == 0


@pytest.mark.parametrize("swallow", ["swallow_reply", "swallow_request"])
async def test_silence_leaves_the_client_waiting(redis_proxy, redis_client, swallow):
    async with Redis.from_url(redis_proxy.url, retry=None, socket_timeout=0.2) as client:
        await client.ping()
        trap = getattr(redis_proxy, swallow)(matching=b"INCR", then_silence=True)
        with pytest.raises(RedisTimeoutError):
            await client.incr("counter")
        await trap
    assert await redis_client.exists("counter") == (swallow == "swallow_reply")


async def test_a_reply_can_be_cut_short(redis_proxy, through, redis_client):
    await redis_client.set("long", b"x" * 1000)
    trap = redis_proxy.truncate_reply(100, matching=b"GET")
    with pytest.raises(LOST):
        await through.get("long")
    assert (await trap).reply.startswith(b"$1000")


async def test_a_reply_can_be_forged(redis_proxy, through, redis_client):
    """A replica that was promoted a moment ago, a server that is loading: errors that cannot be made on demand."""
    trap = redis_proxy.forge_reply(b"-READONLY You can't write against a read only replica.\r\n", matching=b"INCR")
    with pytest.raises(ReadOnlyError):
        await through.incr("counter")
    await trap
    await through.connection_pool.disconnect()
    assert await redis_client.exists("counter") == 0
    assert await through.incr("counter") == 1


async def test_cut_connections_can_be_opened_again(redis_proxy, through):
    await through.ping()
    assert redis_proxy.cut() == 1
    with pytest.raises(LOST):
        await through.ping()
    assert await through.ping()


async def test_a_cut_reaches_a_client_that_waits(redis_proxy, through, redis_client):
    waiting = asyncio.create_task(through.blpop(["never"], timeout=30))
    await eventually(lambda: _blocked(redis_client), described="BLPOP waits")
    redis_proxy.cut()
    with pytest.raises(LOST):
        await waiting


async def test_refused_until_healed(redis_proxy, through):
    await through.ping()
    async with redis_proxy.down():
        for _ in range(2):
            with pytest.raises(LOST):
                await through.ping()
    assert await through.ping()


async def test_a_black_hole_accepts_and_never_answers(redis_proxy, redis_client):
    async with Redis.from_url(redis_proxy.url, retry=None, socket_timeout=0.2) as client:
        await client.ping()
        redis_proxy.blackhole()
        accepted = redis_proxy.accepted
        for _ in range(2):
            with pytest.raises(RedisTimeoutError):
                await client.incr("counter")
        assert redis_proxy.accepted > accepted
        await redis_proxy.heal()
        assert await client.incr("counter") == 1


async def test_what_was_held_arrives_late_though_its_client_has_left(redis_proxy, redis_client):
    """The nastiest one: the caller was told of a failure, and the write happens afterwards."""
    async with Redis.from_url(redis_proxy.url, retry=None, socket_timeout=0.2) as client:
        await client.ping()
        redis_proxy.hold()
        with pytest.raises(RedisTimeoutError):
            await client.incr("counter")
    assert await redis_client.exists("counter") == 0
    await redis_proxy.heal()
    await eventually(lambda: redis_client.exists("counter"), described="the late command arrives")


async def test_a_delay_is_felt(redis_proxy, through):
    await through.ping()
    redis_proxy.delay(request_s=0.1, reply_s=0.1)
    began = time.monotonic()
    await through.ping()
    assert time.monotonic() - began >= 0.2


async def test_a_throttle_is_felt(redis_proxy, through):
    await through.ping()
    redis_proxy.throttle(bytes_per_s=1_000_000)
    began = time.monotonic()
    await through.set("big", b"x" * 200_000)
    assert time.monotonic() - began >= 0.2


async def test_the_death_of_the_server_reaches_the_client(own_redis):
    server = own_redis()
    async with Proxy(server.port) as proxy, client_of(proxy.url) as client:
        await client.ping()
        server.kill()
        with pytest.raises(LOST):
            await client.ping()
        with pytest.raises(LOST):
            await client.ping()
        server.restart()
        assert await client.ping()


async def test_a_fault_that_never_happened_fails_the_test(shared_redis):
    """Else a typo in `matching` makes every test of a fault pass."""
    with pytest.raises(AssertionError, match="never happened"):
        async with Proxy(shared_redis.port) as proxy:
            proxy.swallow_reply(matching=b"no-such-command")


async def test_nothing_of_a_proxy_stays(shared_redis):
    async with Proxy(shared_redis.port) as proxy, client_of(proxy.url) as client:
        await client.ping()
        assert proxy.connections == 1
    assert proxy.connections == 0


async def _blocked(client) -> bool:
    return (await client.info("clients"))["blocked_clients"] == 1
