"""The kit's servers are what they say they are. Everything else that is tested here rests on it."""

import os
from pathlib import Path

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError, OutOfMemoryError

from service.embedded import answers
from tests.kit.servers import client_of, kind, no_traces, running_redis
from tests.kit.waiting import eventually


async def test_the_server_is_the_one_that_was_asked_for(redis_client):
    """CI's second run would prove nothing if it used Valkey again."""
    info = await redis_client.info("server")
    assert info.get("server_name", "redis-server") == kind()


async def test_a_killed_server_is_gone_and_restarts_on_its_port_with_what_its_aof_holds(own_redis):
    server = own_redis(appendonly=True, appendfsync="always")
    port = server.port
    async with client_of(server.url) as client:
        await client.set("kept", "yes")
        server.kill()
        with pytest.raises(RedisConnectionError):
            await client.ping()
        server.restart()
        assert (server.port, await client.get("kept")) == (port, b"yes")


async def test_without_an_aof_a_restart_forgets(own_redis):
    """A test of what survives a crash must be able to tell the difference."""
    server = own_redis()
    async with client_of(server.url) as client:
        await client.set("kept", "no")
        server.restart()
        await client.connection_pool.disconnect()
        assert await client.get("kept") is None


async def test_options_reach_the_server(own_redis):
    server = own_redis(maxmemory="3mb", maxmemory_policy="noeviction")
    async with client_of(server.url) as client:
        with pytest.raises(OutOfMemoryError):
            await client.set("big", b"x" * 4_000_000)


def test_a_stopped_server_leaves_no_process_and_no_file(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with running_redis(appendonly=True) as server:
        pid = server.pid
        assert Path(f"/proc/{pid}").exists()
    assert not Path(f"/proc/{pid}").exists()
    assert list(tmp_path.iterdir()) == []


def test_a_foreign_server_on_the_port_is_not_taken_for_ours(shared_redis):
    """Two test processes may pick the same free port in the same moment."""
    assert answers(shared_redis.port, shared_redis.pid)
    assert not answers(shared_redis.port, os.getpid())


@pytest.mark.parametrize("round_", [1, 2])
async def test_every_test_begins_with_an_empty_database(redis_client, round_):
    await no_traces(redis_client, besides=())
    await redis_client.set("left-behind", round_)


async def test_a_key_left_behind_is_named(redis_client):
    await redis_client.set("forgotten", 1)
    with pytest.raises(AssertionError, match="forgotten"):
        await no_traces(redis_client)


async def test_eventually_says_what_it_waited_for_and_what_it_saw():
    with pytest.raises(AssertionError, match=r"the sun rises.*saw 0"):
        await eventually(lambda: 0, within_s=0.01, described="the sun rises")


async def test_eventually_waits_for_coroutines_and_assertions_too():
    looks = iter(range(10))

    async def third_look() -> bool:
        assert next(looks) == 3, "not yet"
        return True

    assert await eventually(third_look, described="the third look") is True
