"""Looking changes nothing, and never holds Redis up: refused before it is sent, and refused by the server, too."""

import re

import pytest
from redis.exceptions import NoPermissionError

from service.inspector.reading import PAGE, READS, Budget, NotAllowed, OverBudget, ReadOnly, check
from service.transport import Transport, connect
from tests.kit.inspecting import ACL, USER, Inspected, Monitor


@pytest.mark.parametrize(
    "command",
    [
        ("SET", "k", "v"),
        ("DEL", "k"),
        ("EXPIRE", "k", 1),
        ("KEYS", "*"),
        ("EVAL", "return 1", 0),
        ("EVALSHA_RO", "0" * 40, 0),
        ("FCALL_RO", "f", 0),
        ("BRPOP", "k", 0),
        ("XREAD", "BLOCK", 0, "STREAMS", "k", "$"),
        ("LPOP", "k"),
        ("GETDEL", "k"),
        ("GETEX", "k"),
        ("HGETALL", "k"),
        ("SMEMBERS", "k"),
        ("SORT_RO", "k"),
        ("SUBSCRIBE", "c"),
        ("MONITOR",),
        ("CONFIG", "GET", "*"),
        ("DEBUG", "OBJECT", "k"),
        ("MEMORY", "PURGE"),
        ("MEMORY",),
        ("del", "k"),
        (b"DEL", "k"),
    ],
    ids=lambda command: str(command[0]),
)
async def test_what_is_no_read_is_never_sent(inspected: Inspected, monitor: Monitor, command):
    await inspected.redis.set("k", "v")
    with pytest.raises(NotAllowed):
        await inspected.reader.send([("TYPE", "k"), command])
    assert await inspected.redis.get("k") == b"v"


@pytest.mark.parametrize(
    "command",
    [
        ("LRANGE", "k", 0, -1),
        ("LRANGE", "k", 0, PAGE),
        ("LRANGE", "k", "0", "x"),
        ("ZRANGE", "k", 0, -1),
        ("ZRANGE", "k", 0, PAGE, "REV"),
        ("ZRANGE", "k", "-inf", "+inf", "BYSCORE"),
        ("ZRANGE", "k", "-inf", "+inf", "BYSCORE", "LIMIT", 0, -1),
        ("ZRANGE", "k", "-inf", "+inf", "BYSCORE", "LIMIT", 1_000_000, 10),
        ("LPOS", "k", "v"),
        ("LPOS", "k", "v", "MAXLEN", 0),
        ("SCAN", 0),
        ("SCAN", 0, "COUNT", 10**9),
        ("HSCAN", "k", 0, "COUNT", 10**9),
        ("HMGET", "k", *range(PAGE + 1)),
        ("GETRANGE", "k", 0, -1),
        ("XRANGE", "k", "-", "+"),
        ("XPENDING", "k", "g", "-", "+", 10**6),
        ("MEMORY", "USAGE", "k"),
        ("MEMORY", "USAGE", "k", "SAMPLES", 0),
        ("SRANDMEMBER", "k", 10**6),
    ],
    ids=str,
)
def test_a_read_that_nothing_bounds_is_refused(command):
    """One inspector of the field held a Redis for six minutes."""
    with pytest.raises(NotAllowed):
        check(command)


async def test_every_read_of_the_list_is_one_that_the_user_of_the_acl_file_may_send(inspected: Inspected):
    """Were one missing, the inspector would fail where only the shipped user is let in."""
    reader = inspected.reader
    commands = [
        ("DBSIZE",),
        ("EXISTS", "k"),
        ("GETRANGE", "k", 0, 9),
        ("HEXISTS", "k", "f"),
        ("HGET", "k", "f"),
        ("HLEN", "k"),
        ("HMGET", "k", "f", "g"),
        ("HRANDFIELD", "k", 10),
        ("HSCAN", "k", 0, "COUNT", 10),
        ("HSTRLEN", "k", "f"),
        ("INFO", "server"),
        ("LINDEX", "k", 0),
        ("LLEN", "k"),
        ("LPOS", "k", "v", "RANK", -1, "MAXLEN", 10),
        ("LRANGE", "k", -10, -1),
        ("MEMORY", "USAGE", "k", "SAMPLES", 5),
        ("PTTL", "k"),
        ("SCAN", 0, "MATCH", "*", "COUNT", 10, "TYPE", "zset"),
        ("SCARD", "k"),
        ("SISMEMBER", "k", "m"),
        ("SMISMEMBER", "k", "m"),
        ("SRANDMEMBER", "k", 3),
        ("SSCAN", "k", 0, "COUNT", 10),
        ("STRLEN", "k"),
        ("TIME",),
        ("TTL", "k"),
        ("TYPE", "k"),
        ("XINFO", "GROUPS", "s"),
        ("XLEN", "k"),
        ("XPENDING", "s", "g"),
        ("XPENDING", "s", "g", "-", "+", 10, "c"),
        ("XRANGE", "k", "-", "+", "COUNT", 10),
        ("XREVRANGE", "k", "+", "-", "COUNT", 10),
        ("ZCARD", "k"),
        ("ZCOUNT", "k", "-inf", "+inf"),
        ("ZMSCORE", "k", "m"),
        ("ZRANDMEMBER", "k", 3),
        ("ZRANGE", "k", "-inf", "+inf", "BYSCORE", "LIMIT", 0, 10, "WITHSCORES"),
        ("ZSCAN", "k", 0, "COUNT", 10),
        ("ZSCORE", "k", "m"),
    ]
    containers = ("MEMORY", "XINFO")
    assert {"|".join(command[:2]) if command[0] in containers else command[0] for command in commands} == set(READS)
    await inspected.redis.xgroup_create("s", "g", mkstream=True)
    assert [reply for reply in await reader.send(commands) if isinstance(reply, Exception)] == []


async def test_the_user_of_the_acl_file_may_send_nothing_else(inspected: Inspected):
    """Also a program that is no inspector cannot change anything with its password."""
    rights = re.findall(r"\+(\S+)", ACL.read_text())
    assert sorted(rights) == sorted(["ping", "select", "client|setname", *(name.lower() for name in READS)])
    await inspected.redis.set("k", "v")
    for command in (("SET", "k", "w"), ("KEYS", "*"), ("EVAL", "return 1", "0"), ("GET", "k"), ("CONFIG", "GET", "*")):
        with pytest.raises(NoPermissionError):
            await inspected.transport.send([command])


def test_nobody_can_log_in_before_somebody_set_a_password():
    """The file is public."""
    assert "nopass" not in ACL.read_text()
    assert not re.search(r" [>#]", ACL.read_text())


async def test_a_look_ends_when_it_has_read_enough(inspected: Inspected):
    await inspected.redis.rpush("k", *[b"x" * 1000] * 100)
    reader = ReadOnly(inspected.transport, Budget(commands=1000, reply_bytes=150_000))
    await reader.ask("LRANGE", "k", 0, 99)
    await reader.ask("LRANGE", "k", 0, 99)
    with pytest.raises(OverBudget):
        await reader.ask("LLEN", "k")
    with pytest.raises(OverBudget):
        await ReadOnly(inspected.transport, Budget(commands=3)).send([("TYPE", "k")] * 4)
    assert await reader.fresh().ask("LLEN", "k") == 100


async def test_many_reads_at_once_end_with_the_budget_too(inspected: Inspected):
    """A thousand records of a megabyte each were a gigabyte before anybody counted."""
    await inspected.redis.set("k", b"x" * 10_000)
    reader = ReadOnly(inspected.transport, Budget(reply_bytes=1_000_000))
    before = (await inspected.redis.info("stats"))["total_net_output_bytes"]
    with pytest.raises(OverBudget):
        await reader.send([("GETRANGE", "k", 0, 9_999)] * 1_500)
    sent = (await inspected.redis.info("stats"))["total_net_output_bytes"] - before
    assert 1_000_000 < sent < 5_000_000


async def test_an_error_reply_hides_no_other(inspected: Inspected):
    await inspected.redis.set("k", "v")
    length, kind = await inspected.reader.send([("LLEN", "k"), ("TYPE", "k")])
    assert isinstance(length, Exception)
    assert kind == b"string"


async def test_the_monitor_of_this_suite_misses_nothing(own_redis):
    """It is what the others rely on: it tells an inspector's connection from those that fill the server."""
    server = own_redis()
    monitor = Monitor(server.url)
    inspectors, others = (
        connect(server.url, timeout_s=5, max_connections=1, client_name=name) for name in (USER, "coatcheck")
    )
    try:
        await Transport(others).send([("SET", "k", "v")])
        await Transport(inspectors).send([("GET", "k"), ("LLEN", "l"), ("MEMORY", "USAGE", "k"), ("MEMORY", "PURGE")])
        await monitor.caught_up()
        assert {"GET", "LLEN", "MEMORY"} <= monitor.names
        assert "SET" not in monitor.names
        assert [re.sub(r".*\] ", "", line) for line in monitor.refused] == ['"GET" "k"', '"MEMORY" "PURGE"']
    finally:
        monitor.close()
        await inspectors.disconnect()
        await others.disconnect()
