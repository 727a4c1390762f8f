"""Values of megabytes wherever a layout reads: told, and not fetched only to be looked at."""

from collections.abc import Iterator
from typing import Any

import pytest

from service.embedded import RedisServer
from service.inspector.inspector import Inspector
from service.inspector.layouts import LAYOUTS
from service.keys import Keys
from service.transport import Transport, connect
from tests.kit.inspecting import USER, digest, inspected_server, inspectors_url
from tests.kit.ruins import FIELDS, KEYS, NOW_MS, QUEUE, REFERENCES, put
from tests.kit.servers import client_of

pytestmark = pytest.mark.redis  #: by a server of its own

HUGE_BYTES = 2 * 2**20
ENTRIES = 8  #: of each structure
LOOK_BYTES = 40 * 2**20  #: of the 200 MiB that are there: the budgets of two looks, and the replies with which they end


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """Without a MONITOR, which would have to spell all of this."""
    with inspected_server(tmp_path_factory.mktemp("acl")) as server:
        yield server


def huge(layout: str, kind: str) -> Any:
    value = b"x" * HUGE_BYTES
    entries = [b"%d%s" % (n, value) for n in range(ENTRIES)]
    match kind:
        case "string":
            return value
        case "zset":
            return {entry: NOW_MS + n for n, entry in enumerate(entries)}
        case "hash" | "stream":
            return {**dict.fromkeys(FIELDS[layout], value), entries[0]: value}
        case _:
            return entries


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_a_look_at_huge_values_reads_little(server: RedisServer, layout):
    """It would fill the network and hold Redis up: one HGETALL of such a hash takes it tens of milliseconds."""
    pool = connect(inspectors_url(server.url), timeout_s=60, max_connections=16, client_name=USER)
    async with client_of(server.url) as admin:
        try:
            await admin.flushall()
            for key, kind in KEYS[layout].items():
                await put(admin, key, kind, huge(layout, kind))
            inspector = Inspector(Transport(pool), Keys(), layouts={layout: LAYOUTS[layout]})
            before = await digest(admin)
            for look in (
                inspector.overview,
                inspector.problems,
                lambda: inspector.queue(QUEUE),
                lambda: inspector.job(QUEUE, "1"),
                lambda: inspector.job(QUEUE, REFERENCES[0]),
            ):
                sent = (await admin.info("stats"))["total_net_output_bytes"]
                told = await look()
                sent = (await admin.info("stats"))["total_net_output_bytes"] - sent
                assert "inspector-failed" not in repr(told)[:100_000]
                assert sent < LOOK_BYTES
            assert await digest(admin) == before
        finally:
            await admin.flushall()
            await pool.disconnect()
