"""What must hold of Redis before anything runs: refused with a reason, or waited for."""

import asyncio

import pytest

from service import loops, wiring
from service.errors import CannotStart, RetryLater
from service.keys import LAYOUT, Keys
from service.wiring import Service
from tests.kit.proxy import Proxy
from tests.kit.servers import client_of
from tests.kit.waiting import eventually
from tests.kit.yards import Yard, a_yard, counted

ASKED = b"$4\r\nINFO\r\n"  # not the CLIENT SETINFO of every new connection


@pytest.fixture
async def yard(redis_url, s3_server):
    async with a_yard(redis_url, s3_server) as yard:
        yield yard


async def refusal(service: Service) -> str:
    """Why it does not start."""
    try:
        with pytest.raises(CannotStart) as caught:
            await service.start()
    finally:
        await service.stop_dispatching()
        await service.close()
    return str(caught.value)


@pytest.mark.parametrize("version", ["6.2.14", "5.0.7", "6.9"])
async def test_a_redis_that_is_too_old_is_refused(yard: Yard, redis_proxy: Proxy, version):
    """Its scripts could not be allowed to run when it is full. A real server that says that it is older."""
    info = f"redis_version:{version}\r\nused_memory:1\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n".encode()
    reply = b"$%d\r\n%s\r\n" % (len(info), info)
    trap = redis_proxy.forge_reply(reply + reply, matching=ASKED)
    text = await refusal(yard.service(redis_url=redis_proxy.url))
    await trap
    assert version in text
    assert "7.0" in text


@pytest.mark.parametrize("version", ["7.0.0", "7.4.0-rc1", "8.2", "255.255.255"])
async def test_newer_ones_are_taken_however_they_spell_their_version(yard: Yard, redis_proxy: Proxy, version):
    info = f"redis_version:{version}\r\nused_memory:1\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n".encode()
    reply = b"$%d\r\n%s\r\n" % (len(info), info)
    trap = redis_proxy.forge_reply(reply + reply, matching=ASKED)
    async with yard.dispatcher(yard.service(redis_url=redis_proxy.url)) as service:
        await trap
        assert service.started


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
async def test_a_redis_that_evicts_is_refused_unless_that_is_wanted(own_redis, s3_server, policy):
    """It would throw jobs away when it is full, and say nothing."""
    server = own_redis(maxmemory_policy=policy)
    async with a_yard(server.url, s3_server) as yard:
        text = await refusal(yard.service())
        assert policy in text
        assert "COATCHECK_REDIS__ALLOW_EVICTION" in text
        async with yard.dispatcher(REDIS__ALLOW_EVICTION="true") as service:
            assert service.started


@pytest.mark.parametrize(
    "command",
    [
        *(("SET", "text"), ("RPUSH", "x"), ("HSET", "layout", "new", "installation", "x")),
        *(("HSET", "layout", b"\xff", "installation", "x"), ("HSET", "layout", "1", "installation", b"\xff")),
    ],
)
async def test_a_place_that_is_not_ours_is_refused_with_a_reason(yard: Yard, command):
    """Whoever reads a traceback does not know that two services share a prefix."""
    name, *values = command
    await yard.redis.execute_command(name, yard.keys.meta, *values)
    text = await refusal(yard.service())
    assert yard.keys.meta in text
    assert "COATCHECK_KEY_PREFIX" in text


async def test_a_newer_layout_is_refused(yard: Yard):
    """This release would misread it."""
    await yard.redis.hset(yard.keys.meta, mapping={"layout": LAYOUT + 1, "installation": "x"})
    assert f"layout {LAYOUT + 1}" in await refusal(yard.service())


async def test_the_installation_is_made_once(yard: Yard):
    services = [yard.service() for _ in range(4)]
    try:
        await asyncio.gather(*(service.start() for service in services))
        made = await yard.redis.hget(yard.keys.meta, "installation")
        assert await yard.redis.hget(yard.keys.meta, "layout") == str(LAYOUT).encode()
        owners = {service.offloading["s3"].ownership.owner for service in services}
        assert owners == {made.decode()}
    finally:
        for service in services:
            await service.stop_dispatching()
            await service.close()


async def test_a_new_owner_of_a_bucket_is_noticed_and_a_bucket_that_is_gone_ends_nothing(yard: Yard, monkeypatch):
    """A second installation on the same prefix appears while the first one runs, and that one has to know."""
    monkeypatch.setattr(wiring, "_OWNERSHIP_S", 0.02)
    other = "ffffffff-7c1e-7b3a-9d57-6f0a1c2b3d4e"
    async with yard.dispatcher(role="all") as service:
        assert counted(service, "ownership_mismatch") == 0
        yard.store.client.put_object(Bucket=yard.bucket, Key="v1/s3/INSTALLATION", Body=other.encode())
        await eventually(lambda: counted(service, "ownership_mismatch", backend="s3") == 1)
        ready = await service.ready()
        assert ready.ok
        assert ready.details["backends"] == {"s3": f"owned by another installation: {other}"}
        yard.store.client.delete_object(Bucket=yard.bucket, Key="v1/s3/INSTALLATION")
        yard.store.client.delete_bucket(Bucket=yard.bucket)
        rounds = counted(service, "loop_rounds_total", loop="ownership")
        tried = loops.MAX_FAILURES + 2  # a loop that failed so often would be dead
        await eventually(lambda: counted(service, "loop_rounds_total", loop="ownership") > rounds + tried, 20)
        assert service.alive().ok
        await service.producer.enqueue(b"x", queue="emails", delay="0s")


async def test_a_redis_that_is_not_there_yet_is_waited_for(own_redis, s3_server):
    """Alive, not ready, and it says so; no job is taken. Then it starts by itself."""
    server = own_redis()
    async with a_yard(server.url, s3_server) as yard:
        server.kill()
        service = yard.service("all")
        starting = asyncio.create_task(service.start())
        try:
            await eventually(lambda: _says_why(service), described="it says what it waits for")
            assert service.alive().ok
            with pytest.raises(RetryLater):
                await service.producer.enqueue(b"x", queue="emails", delay="0s")
            await service.gauges.refresh()
            assert not starting.done()
            server.restart()
            await starting
            assert (await service.ready()).ok
            await service.producer.enqueue(b"x", queue="emails", delay="0s")
            async with client_of(server.url) as redis:
                assert await redis.blpop([Keys().queue("emails").ready], timeout=5)
        finally:
            starting.cancel()
            await service.stop_dispatching()
            await service.close()


async def test_a_redis_that_loads_its_data_is_waited_for(yard: Yard, redis_proxy: Proxy):
    trap = redis_proxy.forge_reply(b"-LOADING Redis is loading the dataset in memory\r\n", matching=ASKED)
    async with yard.dispatcher(yard.service(redis_url=redis_proxy.url)) as service:
        await trap
        assert service.started


async def test_a_stop_while_it_waits_for_redis_ends_it(yard: Yard, redis_proxy: Proxy):
    async with redis_proxy.down():
        service = yard.service(redis_url=redis_proxy.url)
        starting = asyncio.create_task(service.start())
        await eventually(lambda: _says_why(service), described="it waits")
        starting.cancel()
        async with asyncio.timeout(3):
            await service.stop_dispatching()
            await service.close()


async def _says_why(service: Service) -> bool:
    ready = await service.ready()
    return not ready.ok and len(ready.reasons) >= 2
