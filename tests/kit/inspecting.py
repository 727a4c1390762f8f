"""A Redis that a test fills and inspectors look at: through the shipped ACL user, watched by MONITOR, held unchanged.

inspected.redis fills it (all rights). `await inspected.look(Asynq)` gives a layout with a budget of its own.
"""

import hashlib
import re
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import redis
from redis.asyncio import Redis

from service.embedded import RedisServer
from service.inspector.layout import Look
from service.inspector.reading import READS, Budget, ReadOnly
from service.keys import Keys
from service.transport import Encodable, Transport, connect
from tests.kit.servers import client_of, running_redis
from tests.kit.waiting import eventually

L = TypeVar("L")

ACL = Path(__file__).parents[2] / "ops/redis/inspector.acl"
USER: Final = "coatcheck-inspector"
PASSWORD: Final = "for tests alone"  #: of a server that lives as long as these tests
#: Of a connection, not of the data; what connects with them is no reader of anything.
GREETINGS: Final = frozenset({"CLIENT", "SELECT", "PING", "AUTH", "HELLO"})
_line: Final = re.compile(r'[\d.]+ \[\d+ (?P<address>[^\]]+)\] (?P<words>"(?:[^"\\]|\\.)*"(?: "(?:[^"\\]|\\.)*")?)')


@contextmanager
def inspected_server(folder: Path, **options: object) -> Iterator[RedisServer]:
    """A server with the shipped ACL file, to which somebody has added a password, as the README says."""
    copy = folder / "users.acl"
    copy.write_text(ACL.read_text().rstrip("\n") + " #" + hashlib.sha256(PASSWORD.encode()).hexdigest() + "\n")
    with running_redis(aclfile=copy, **options) as server:
        yield server


def inspectors_url(url: str) -> str:
    """The same server, as the inspector's user logs in."""
    return url.replace("redis://", f"redis://{USER}:{PASSWORD.replace(' ', '%20')}@")


class Monitor:
    """All that inspectors send to a server, as its own MONITOR tells. They are known by their connections' name."""

    def __init__(self, url: str) -> None:
        self.refused: list[str] = []  #: whatever is no read
        self.names: set[str] = set()  #: of the commands that were seen
        self._inspectors: set[str] = set()
        self._named: set[str] = set()
        self._admin = redis.Redis.from_url(url)
        self._marks: set[str] = set()
        self._client = redis.Redis.from_url(url, socket_timeout=None)  # redis-py 8 gives up after 5 s of silence
        self._connection = self._client.connection_pool.get_connection()
        self._connection.send_command("MONITOR")
        self._connection.read_response()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._connection.disconnect()
        self._thread.join(5)
        self._client.close()
        self._admin.close()

    async def caught_up(self) -> None:
        """Everything that was sent up to now has been seen."""
        mark = f"mark-{len(self._marks)}"
        self._admin.echo(mark)
        await eventually(lambda: mark in self._marks, 30, "MONITOR has shown everything")

    def _follow(self) -> None:
        while True:
            try:
                told = self._connection.read_response(disconnect_on_error=False)
            except (redis.RedisError, OSError, AttributeError, ValueError):  # closed
                return
            self._saw(told.decode("utf-8", "replace") if isinstance(told, bytes) else str(told))

    def _saw(self, line: str) -> None:
        match = _line.match(line)
        assert match, line
        address, words = match["address"], [word.upper() for word in re.findall(r'"((?:[^"\\]|\\.)*)"', match["words"])]
        if words[0] == "ECHO":
            self._marks.add(words[1].lower())
        if words[:2] == ["CLIENT", "SETNAME"]:
            self._named.add(address)
            (self._inspectors.add if USER in line else self._inspectors.discard)(address)
        elif words[:2] == ["CLIENT", "SETINFO"]:  # a new connection that has no name, where an inspector's was before
            if address not in self._named:
                self._inspectors.discard(address)
        else:
            self._named.discard(address)
            if address in self._inspectors:
                self._judge(words, line)

    def _judge(self, words: Sequence[str], line: str) -> None:
        self.names.add(words[0])
        if words[0] not in READS and "|".join(words[:2]) not in READS and words[0] not in GREETINGS:
            self.refused.append(line[:200])


class Watched(Transport):
    """Holds every request to leaving the server's data as they were."""

    def __init__(self, pool: Any, admin: Redis) -> None:
        super().__init__(pool)
        self._admin = admin
        self._seen: tuple[int, str] | None = None  # writes so far, and the digest of all keys

    async def send(self, commands: Sequence[tuple[Encodable, ...]], *, raising: bool = True) -> list[Any]:
        writes = await self._writes()
        if self._seen is None or self._seen[0] != writes:  # the test has written
            self._seen = writes, await digest(self._admin)
        try:
            return await super().send(commands, raising=raising)
        finally:
            assert await self._writes() == writes, f"looking wrote: {commands[:3]}"

    async def unchanged(self) -> None:
        """Since the first look after the test's last write."""
        if self._seen is not None and self._seen[0] == await self._writes():
            assert await digest(self._admin) == self._seen[1], "looking changed a key"

    async def _writes(self) -> int:
        return int((await self._admin.info("persistence"))["rdb_changes_since_last_save"])


async def digest(admin: Redis) -> str:
    """Of all keys of all databases: types and contents, in whatever order they are kept; TTLs aside."""
    return str(await admin.execute_command("DEBUG", "DIGEST"))


class Inspected:
    """Use the fixture `inspected`."""

    def __init__(self, url: str) -> None:
        self.url = inspectors_url(url)
        self.redis = client_of(url)
        self.pool = connect(self.url, timeout_s=10, max_connections=16, client_name=USER)
        self.transport = Watched(self.pool, self.redis)
        self.unwatched = Transport(self.pool)  #: for many looks within `unchanged`

    @property
    def reader(self) -> ReadOnly:
        return ReadOnly(self.transport)

    @asynccontextmanager
    async def unchanged(self) -> AsyncIterator[None]:
        """Nothing within changes a key."""
        before = await digest(self.redis)
        yield
        assert await digest(self.redis) == before, "looking changed a key"

    async def now_ms(self) -> int:
        seconds, micros = await self.redis.time()
        return int(seconds) * 1000 + int(micros) // 1000

    async def look(self, layout: type[L], *, budget: Budget | None = None, keys: Keys | None = None, **more: Any) -> L:
        """A layout for one look."""
        look = Look(ReadOnly(self.transport, budget), await self.now_ms(), keys or Keys(), **more)
        return layout(look)  # type: ignore[call-arg]  # the shape of all layouts


@asynccontextmanager
async def inspecting(url: str, *, emptied: bool = True) -> AsyncIterator[Inspected]:
    """A server's data, none at first unless it is to be kept, held unchanged by whoever looks."""
    inspected = Inspected(url)
    try:
        if emptied:
            await inspected.redis.flushall()
        yield inspected
        await inspected.transport.unchanged()
    finally:
        await inspected.pool.disconnect()
        await inspected.redis.aclose()
