"""A TCP proxy that cuts, delays and lies: real faults in front of a real server.

    client --- request ---> Proxy --- request ---> server
           <---- reply ----       <---- reply ----

A request is what a connection sends between two replies: for a client that waits for its answers, one command, one
pipeline or one HTTP request. A pipeline is therefore matched, and loses its replies, as a whole. Watched are the bytes
on the wire: `EVALSHA`, the sha and every argument are found in them; so is what a client says when it connects.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from types import TracebackType
from typing import Self

from service.child import HOST, free_port
from tests.kit.waiting import eventually

#: Bytes that the request must contain, or a predicate on it; None matches any.
Matching = bytes | Callable[[bytes], bool] | None

_CHUNK_BYTES = 65_536


class _Fate(Enum):
    """What befalls a request that a trap was set for."""

    LOSE_REQUEST = auto()
    LOSE_REPLY = auto()
    FORGE_REPLY = auto()


@dataclass(eq=False)
class Trap:
    """One fault that waits for its request. `await trap` returns when it has happened, or fails after 10 s."""

    fate: _Fate
    matching: Matching
    keep_reply_bytes: int  #: how much of the reply still reaches the client
    then_silence: bool  #: the client's connection is left open, unanswered, instead of dropped
    request: bytes = b""  #: as far as it was seen when it matched
    reply: bytes = (
        b""  #: what the server answered, as far as it was seen: proof that it had the request. Or the forgery
    )
    sprung: bool = field(default=False, init=False)
    disarmed: bool = field(default=False, init=False)

    def matches(self, request: bytes) -> bool:
        if callable(self.matching):
            return self.matching(request)
        return self.matching is None or self.matching in request

    def disarm(self) -> None:
        """It need not happen any more."""
        self.disarmed = True

    def __await__(self) -> Generator[object, None, "Trap"]:
        return self._happened().__await__()

    async def _happened(self) -> "Trap":
        await eventually(lambda: self.sprung, described=f"{self.fate.name} happens to {self.matching!r}")
        return self


class Proxy:
    """In front of the server on loopback port `upstream`; passes everything until told otherwise.

    What is said about "everything" holds for the connections that exist, too. `heal` ends it; traps stay. Leaving the
    context fails if a trap has neither sprung nor been disarmed: a test whose fault never happened has tested nothing.
    """

    def __init__(self, upstream: int) -> None:
        self.upstream = upstream
        self.port = 0
        self.accepted = 0  #: connections so far
        self._listener: asyncio.Server | None = None
        self._links: dict[asyncio.Task[None], _Link] = {}
        self._traps: list[Trap] = []
        self._open = asyncio.Event()
        self._open.set()
        self._deaf = False
        self._request_delay_s = 0.0
        self._reply_delay_s = 0.0
        self._bytes_per_s: float | None = None

    @property
    def url(self) -> str:
        """As a Redis URL."""
        return f"redis://{HOST}:{self.port}/0"

    @property
    def http_url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def connections(self) -> int:
        """How many are open now."""
        return len(self._links)

    async def __aenter__(self) -> Self:
        self.port = free_port()
        await self._listen()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        await self.refuse()
        waiting = [trap for trap in self._traps if not (trap.sprung or trap.disarmed)]
        assert kind is not None or not waiting, f"faults that never happened: {waiting}"

    # -- one request ---------------------------------------------------------------------------------------------------

    def swallow_reply(self, matching: Matching = None, *, then_silence: bool = False) -> Trap:
        """The next matching request reaches the server and is carried out; its answer is lost.

        The trap springs when the answer has arrived here. Then the client's connection is dropped, or left in silence.
        """
        return self._arm(Trap(_Fate.LOSE_REPLY, matching, 0, then_silence))

    def truncate_reply(self, after_bytes: int, matching: Matching = None) -> Trap:
        """Like `swallow_reply`, but the answer's first `after_bytes` arrive. Springs when those have passed."""
        return self._arm(Trap(_Fate.LOSE_REPLY, matching, after_bytes, then_silence=False))

    def swallow_request(self, matching: Matching = None, *, then_silence: bool = False) -> Trap:
        """The next matching request is not carried out: at most an incomplete part of it has reached the server."""
        return self._arm(Trap(_Fate.LOSE_REQUEST, matching, 0, then_silence))

    def forge_reply(self, reply: bytes, matching: Matching = None) -> Trap:
        r"""The next matching request is not carried out but answered with `reply`, such as `b"-READONLY …\r\n"`.

        Then the connection ends. At most an incomplete part of the request has reached the server.
        """
        return self._arm(Trap(_Fate.FORGE_REPLY, matching, 0, then_silence=False, reply=reply))

    # -- everything ----------------------------------------------------------------------------------------------------

    def delay(self, *, request_s: float = 0, reply_s: float = 0) -> None:
        """Every piece that passes is held for so long."""
        self._request_delay_s, self._reply_delay_s = request_s, reply_s

    def throttle(self, bytes_per_s: float) -> None:
        """At most so many bytes a second, per connection and direction."""
        self._bytes_per_s = bytes_per_s

    def cut(self) -> int:
        """Drop every connection now; new ones are served. Says how many there were."""
        for link in self._links.values():
            link.drop()
        return len(self._links)

    async def refuse(self) -> None:
        """Drop every connection and refuse new ones, like a server that is down."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        self.cut()
        for task in self._links:
            task.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    def blackhole(self) -> None:
        """Accept everything, pass nothing, answer nothing. What is sent is lost, and the connections are, at `heal`."""
        self._deaf = True

    def hold(self) -> None:
        """Nothing moves until `heal`; then all of it arrives late, even if the client has given up on it and left."""
        self._open.clear()

    async def heal(self) -> None:
        """Pass everything again."""
        self.delay()
        self._bytes_per_s = None
        if self._deaf:
            self._deaf = False
            self.cut()
        self._open.set()
        if self._listener is None:
            await self._listen()

    @asynccontextmanager
    async def down(self) -> AsyncIterator[None]:
        """`refuse` while the context lasts."""
        await self.refuse()
        try:
            yield
        finally:
            await self.heal()

    # -- the inside ----------------------------------------------------------------------------------------------------

    def _arm(self, trap: Trap) -> Trap:
        self._traps.append(trap)
        return trap

    def armed(self) -> list[Trap]:
        """Traps that wait for their request."""
        return [trap for trap in self._traps if not (trap.request or trap.sprung or trap.disarmed)]

    async def _listen(self) -> None:
        self._listener = await asyncio.start_server(self._accept, HOST, self.port, limit=_CHUNK_BYTES)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        link = _Link(self, reader, writer)
        task = asyncio.create_task(link.serve())
        self._links[task] = link
        task.add_done_callback(self._links.pop)

    async def passing(self, chunk: bytes, delay_s: float) -> bool:
        """Wait as the present faults demand; False if the chunk is lost."""
        if self._deaf:
            return False
        pause_s = delay_s + (len(chunk) / self._bytes_per_s if self._bytes_per_s else 0)
        if pause_s:
            await asyncio.sleep(pause_s)
        await self._open.wait()
        return not self._deaf

    async def passing_request(self, chunk: bytes) -> bool:
        return await self.passing(chunk, self._request_delay_s)

    async def passing_reply(self, chunk: bytes) -> bool:
        return await self.passing(chunk, self._reply_delay_s)


class _Link:
    """One client's connection and ours to the server on its behalf."""

    def __init__(self, proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._from_client, self._to_client = reader, writer
        self._to_server: asyncio.StreamWriter | None = None
        self._request = bytearray()  # since the last reply, while a trap is armed
        self._caught: Trap | None = None
        self._silent = False

    def drop(self) -> None:
        self._to_client.transport.abort()
        if self._to_server is not None:
            self._to_server.transport.abort()

    async def serve(self) -> None:
        """Until both sides have said all they had to say, or either is lost."""
        try:
            with suppress(OSError):
                from_server, self._to_server = await asyncio.open_connection(HOST, self._proxy.upstream)
                async with asyncio.TaskGroup() as pumps:
                    pumps.create_task(self._pump_requests(self._to_server))
                    pumps.create_task(self._pump_replies(from_server))
        finally:
            self.drop()

    async def _pump_requests(self, to_server: asyncio.StreamWriter) -> None:
        while chunk := await self._read(self._from_client):
            if self._silent or not await self._proxy.passing_request(chunk):
                continue
            self._watch(chunk)
            if self._caught is not None and self._caught.fate is not _Fate.LOSE_REPLY:
                await self._answer_instead(to_server, self._caught)
            else:
                await self._write(to_server, chunk)
        await self._proxy.passing_request(b"")
        self._end(to_server)

    async def _pump_replies(self, from_server: asyncio.StreamReader) -> None:
        while chunk := await self._read(from_server):
            self._request.clear()
            if self._silent or not await self._proxy.passing_reply(chunk):
                continue
            await self._write(self._to_client, self._left_of(chunk))
            if self._caught is not None and len(self._caught.reply) >= max(1, self._caught.keep_reply_bytes):
                self._spring(self._caught)
        if not self._silent:
            self._to_client.close()  # after what was written

    def _watch(self, chunk: bytes) -> None:
        armed = self._proxy.armed()
        if not armed or self._caught is not None:
            return
        self._request += chunk
        request = bytes(self._request)
        self._caught = next((trap for trap in armed if trap.matches(request)), None)
        if self._caught is not None:
            self._caught.request = request

    def _left_of(self, chunk: bytes) -> bytes:
        """What may reach the client of this piece of a reply."""
        if self._caught is None:
            return chunk
        room = max(0, self._caught.keep_reply_bytes - len(self._caught.reply))
        self._caught.reply += chunk
        return chunk[:room]

    async def _answer_instead(self, to_server: asyncio.StreamWriter, trap: Trap) -> None:
        self._silent = trap.then_silence or trap.fate is _Fate.FORGE_REPLY
        to_server.transport.abort()
        if trap.fate is _Fate.FORGE_REPLY:
            await self._write(self._to_client, trap.reply)
            self._end(self._to_client)  # and no more: closing it while it still sends would destroy the reply
        self._spring(trap)

    def _spring(self, trap: Trap) -> None:
        trap.sprung, self._caught = True, None
        self._silent = self._silent or trap.then_silence
        if not self._silent:
            self.drop()

    # A side that is lost ends its own direction only: what the other one still holds back must arrive.

    @staticmethod
    async def _read(reader: asyncio.StreamReader) -> bytes:
        with suppress(OSError):
            return await reader.read(_CHUNK_BYTES)
        return b""

    @staticmethod
    async def _write(writer: asyncio.StreamWriter, chunk: bytes) -> None:
        with suppress(OSError):
            writer.write(chunk)
            await writer.drain()

    @staticmethod
    def _end(writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            writer.write_eof()
