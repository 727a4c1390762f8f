"""Of every failure the one thing that matters: can the request have been carried out? And whose answer is this?"""

import asyncio
import random

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError, ResponseError

from service.errors import RedisFull, RedisUnavailable
from service.scripts import Scripts
from service.transport import Interrupted, Transport, connect
from tests.kit.ledgers import rigged
from tests.kit.waiting import eventually


@pytest.fixture
async def transport(redis_proxy):
    """One connection, by way of the proxy: whatever is wrong with it meets the next request."""
    pool = connect(redis_proxy.url, timeout_s=0.5, max_connections=1)
    yield Transport(pool)
    await pool.disconnect()


async def certainly_not(transport, *command) -> RedisUnavailable:
    """The refusal of a request that was certainly not carried out."""
    with pytest.raises(RedisUnavailable) as refused:
        await transport.send([command])
    assert not isinstance(refused.value, Interrupted)
    return refused.value


# ---- certain or not --------------------------------------------------------------------------------------------------


async def test_a_lost_answer_is_an_interruption_and_the_command_ran_once(redis_proxy, transport, redis_client):
    """redis-py repeats by itself if it is let: the counter would say two."""
    await transport.send([("PING",)])
    trap = redis_proxy.swallow_reply(b"INCR")
    with pytest.raises(Interrupted):
        await transport.send([("INCR", "counter")])
    await trap
    assert await redis_client.get("counter") == b"1"


@pytest.mark.parametrize("silence", [False, True])
async def test_a_lost_request_is_an_interruption_too(redis_proxy, transport, redis_client, silence):
    """From here the two look alike: nothing may be concluded."""
    trap = redis_proxy.swallow_request(b"INCR", then_silence=silence)
    with pytest.raises(Interrupted):
        await transport.send([("INCR", "counter")])
    await trap
    assert await redis_client.get("counter") is None
    assert await transport.send([("INCR", "counter")]) == [1]


async def test_an_answer_cut_short_is_an_interruption(redis_proxy, transport, redis_client):
    await redis_client.set("long", bytes(1_000))
    redis_proxy.truncate_reply(100, b"GET")
    with pytest.raises(Interrupted):
        await transport.send([("GET", "long")])
    assert await transport.send([("GET", "long")]) == [bytes(1_000)]


async def test_an_answer_that_is_no_redis_protocol_is_an_interruption(redis_proxy, transport):
    """Something between us and Redis answered: whether Redis had the request is anybody's guess."""
    redis_proxy.forge_reply(b"HTTP/1.1 502 Bad Gateway\r\n\r\n", b"INCR")
    with pytest.raises(Interrupted):
        await transport.send([("INCR", "counter")])
    assert await transport.send([("INCR", "counter")]) == [1]


async def test_a_server_that_is_down_has_certainly_done_nothing(redis_proxy, transport):
    async with redis_proxy.down():
        await certainly_not(transport, "INCR", "counter")
    assert await transport.send([("INCR", "counter")]) == [1]


@pytest.mark.parametrize(
    "refusal",
    [
        "LOADING Redis is loading the dataset in memory",
        "MASTERDOWN Link with MASTER is down",
        "READONLY You can't write against a read only replica.",
        "NOAUTH Authentication required.",
        "BUSY Redis is busy running a script.",
        "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
        "NOREPLICAS Not enough good replicas to write.",
        "CLUSTERDOWN The cluster is down",
        "TRYAGAIN Multiple keys request during rehashing of slot",
    ],
)
async def test_a_server_that_refuses_for_now_has_certainly_done_nothing(redis_proxy, transport, refusal):
    """Retrying is right then, and so is a 503."""
    redis_proxy.forge_reply(f"-{refusal}\r\n".encode(), b"INCR")
    await certainly_not(transport, "INCR", "counter")
    assert await transport.send([("INCR", "counter")]) == [1]


async def test_a_full_server_says_so(redis_proxy, transport):
    redis_proxy.forge_reply(b"-OOM command not allowed when used memory > 'maxmemory'.\r\n", b"INCR")
    with pytest.raises(RedisFull):
        await transport.send([("INCR", "counter")])


async def test_other_errors_are_ours_to_mend_and_pass_as_they_are(transport, redis_client):
    await redis_client.set("text", "x")
    with pytest.raises(ResponseError):
        await transport.send([("INCR", "text")])


async def test_of_several_commands_all_replies_are_read_before_an_error_is_raised(transport, redis_client):
    """Replies left on the connection would answer the next request."""
    await redis_client.set("text", "x")
    with pytest.raises(ResponseError):
        await transport.send([("INCR", "text"), ("INCR", "a"), ("INCR", "b")])
    assert await transport.send([("INCR", "a")]) == [2]


async def test_any_text_and_any_bytes_reach_the_server(transport):
    """A member that is no reference may be any bytes, and is named back as the same."""
    for argument in ("plain", "ünïcode", "\udcff\udc80", b"\xff\0\r\n", 2**53, 0.1, ""):
        await transport.send([("SET", "key", argument)])
        expected = argument if isinstance(argument, bytes) else str(argument).encode("utf-8", "surrogateescape")
        assert await transport.send([("GET", "key")]) == [expected]


# ---- real servers in trouble -----------------------------------------------------------------------------------------


async def test_a_script_that_holds_the_server_makes_others_wait_not_fail(own_redis):
    """BUSY is answered before the script begins: repeating is safe, and the caller hears 503, not 500."""
    server = own_redis(busy_reply_threshold=10)
    async with rigged(server.url) as rig:
        rig.transport.after = None
        job = await rig.inline()
        async with rigged(server.url) as other:
            other.transport.after = None
            await other.redis.ping()  # a connection that is there: to make one, and name it, is refused meanwhile
            hog = asyncio.create_task(rig.redis.eval("while true do end", 0))

            async def is_busy() -> bool:
                try:
                    await other.transport.send([("PING",)])
                except RedisUnavailable as refused:
                    return not isinstance(refused, Interrupted)
                return False

            await eventually(is_busy, described="the server says BUSY")
            with pytest.raises(RedisUnavailable) as refused:
                await other.ledger.cancel(job)
            assert not isinstance(refused.value, Interrupted)
            await other.redis.script_kill()
            with pytest.raises(ResponseError):
                await hog
            assert await other.ledger.cancel(job) == "cancelled"


async def test_a_replica_refuses_and_nothing_changes(own_redis):
    """Behind one address another server may answer after a failover."""
    master, replica = own_redis(repl_diskless_sync_delay=0), own_redis()
    async with rigged(master.url) as rig, rigged(replica.url) as other:
        job = await rig.inline()
        await other.redis.replicaof("127.0.0.1", master.port)

        async def synchronised():
            return (await other.redis.info("replication"))["master_link_status"] == "up"

        await eventually(synchronised, described="the replica has the master's data")
        with pytest.raises(RedisUnavailable) as refused:
            await other.ledger.cancel(job)
        assert not isinstance(refused.value, Interrupted)
        assert await rig.where(job) == {"delayed"}
        assert (await other.ledger.lookup(job)).state == "delayed", "what only reads is answered"


async def test_forgotten_scripts_are_taught_again(rig):
    """After SCRIPT FLUSH, a restart or a failover no error surfaces, and no batch is lost."""
    job = None
    for _ in range(2):
        await rig.redis.script_flush()
        job = await rig.inline()
        await rig.redis.script_flush()
        assert (await rig.claim()).moved == 1
        await rig.redis.script_flush()
        assert await rig.ledger.lookup(job) is None


async def noticed(rig) -> bool:
    """Whether a client's idle connections, which the server dropped, are known to be dead."""
    try:
        return bool(await rig.redis.ping())
    except RedisConnectionError:
        return False


async def test_a_restarted_server_goes_on_where_its_log_ends(own_redis):
    """Nothing is to be repaired afterwards."""
    server = own_redis(appendonly=True, appendfsync="always")
    async with rigged(server.url) as rig:
        delayed, leased = await rig.inline(b"kept"), await rig.leased(due_ms=rig.now_ms - 1)
        assert await rig.where(delayed) == set(), "the claim took it along"
        server.restart()
        await eventually(lambda: noticed(rig), described="the clients have noticed that their connections are gone")
        later = await rig.inline(b"later")
        assert await rig.where(leased.reference) == {"leases"}
        assert await rig.where(later) == {"delayed"}
        assert (await rig.claim()).moved == 1
        assert await rig.ready() == [b"kept", b"later"]
        assert (await rig.deliver(leased)).outcomes[0].name == "DELIVERED"


# ---- whose answer is this? -------------------------------------------------------------------------------------------


async def test_a_cancelled_request_leaves_its_answer_to_nobody(redis_proxy, transport, redis_client):
    """The next request on the same connection would take it for its own."""
    await redis_client.mset({"mine": "mine", "another": "another"})
    await transport.send([("PING",)])
    redis_proxy.hold()
    waiting = asyncio.create_task(transport.send([("GET", "another")]))
    done, _ = await asyncio.wait([waiting], timeout=0.01)
    assert not done
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await redis_proxy.heal()
    assert await transport.send([("GET", "mine")]) == [b"mine"]


async def test_a_timed_out_request_leaves_its_answer_to_nobody(redis_proxy, transport, redis_client):
    await redis_client.mset({"mine": "mine", "another": "another"})
    await transport.send([("PING",)])
    redis_proxy.hold()
    with pytest.raises(Interrupted):
        await transport.send([("GET", "another")])
    await redis_proxy.heal()
    assert await transport.send([("GET", "mine")]) == [b"mine"]


async def test_connections_survive_a_storm_of_cancellations(redis_url):
    """Whoever was not cancelled gets the own answer at once: no connection is lost, and no wake-up for it."""
    random.seed(3)
    pool = connect(redis_url, timeout_s=1, max_connections=3)
    transport = Transport(pool)

    async def ask(number: int) -> int:
        return int((await transport.send([("ECHO", number)]))[0])

    for _ in range(150):
        asking = [asyncio.create_task(ask(number)) for number in range(12)]
        await asyncio.wait(asking, timeout=random.random() / 400)
        for task in random.sample(asking, 6):
            task.cancel()
        answers = await asyncio.gather(*asking, return_exceptions=True)
        wrong = [it for i, it in enumerate(answers) if it != i and not isinstance(it, asyncio.CancelledError)]
        assert wrong == []
    assert await asyncio.wait_for(asyncio.gather(*map(ask, range(9))), 5) == list(range(9))
    await pool.disconnect()


async def test_no_cancellation_is_swallowed(redis_url):
    """In Python 3.11 `asyncio.wait_for` may swallow one, and redis-py writes through it: a loop would never stop."""
    pool = connect(redis_url, timeout_s=5, max_connections=1)
    transport = Transport(pool)

    async def loop() -> None:
        while True:
            await transport.send([("PING",)])

    for turns in range(300):
        looping = asyncio.create_task(loop())
        for _ in range(turns % 20):
            await asyncio.sleep(0)
        looping.cancel()
        _, still_running = await asyncio.wait([looping], timeout=5)
        assert not still_running
    await pool.disconnect()


async def test_callers_wait_for_a_free_connection_but_not_for_ever(redis_proxy):
    """A pool that is exhausted has sent nothing: certain, and retriable."""
    pool = connect(redis_proxy.url, timeout_s=0.05, max_connections=1)
    transport = Transport(pool)
    await transport.send([("PING",)])
    connection = await pool.get_connection()
    await certainly_not(transport, "PING")
    await pool.release(connection)
    assert await transport.send([("PING",)]) == [b"PONG"]
    await pool.disconnect()


def test_no_two_scripts_have_one_name_for_redis():
    """EVALSHA calls by hash: two variants of one source must differ."""
    shas = [script.sha for script in Scripts()]
    assert len(set(shas)) == len(shas)
