"""Asynq's servers, which write every few seconds that they live: who serves a queue, who works on a task."""

from collections.abc import Sequence
from typing import Final

from service.inspector.asynq.keys import SERVERS, WORKERS
from service.inspector.asynq.message import NotAMessage, Server, decode_server
from service.inspector.findings import Findings
from service.inspector.layout import Look
from service.members import text_of

_MOST: Final = 100  #: servers that one look asks
_BYTES: Final = 2**16  #: of what a server says of itself


async def serving(look: Look, queue: str, found: Findings) -> Sequence[Server] | None:
    """The servers that live and take tasks of this queue; None if that cannot be told."""
    live = await _live(look, SERVERS, found)
    if live is None:
        return None
    replies = await look.reader.send([("GETRANGE", key, 0, _BYTES - 1) for key in live])
    said = [found.told(reply, key, None) for key, reply in zip(live, replies, strict=True)]
    try:
        servers = [decode_server(each) for each in said if each]  # b"": it has just gone
    except NotAMessage:
        found.add("does-not-parse", f"what a server says of itself, in {SERVERS}, is no message")
        return None
    return None if None in said else [server for server in servers if queue in server.queues]


async def worked_on_by(look: Look, id: str, found: Findings) -> str | None:  # noqa: A002  Asynq's own word
    """`host:pid:server` of who says that it works on this task; None if nobody does."""
    live = await _live(look, WORKERS, found) or []
    holds = await look.reader.send([("HEXISTS", key, id) for key in live])
    names = [key.partition("{")[2].removesuffix("}") for key, held in zip(live, holds, strict=True) if held == 1]
    return ", ".join(names) or None


async def _live(look: Look, registry: str, found: Findings) -> list[str] | None:
    """Keys whose time is not over."""
    command = ("ZRANGE", registry, look.now_ms // 1000, "+inf", "BYSCORE", "LIMIT", 0, _MOST)
    (reply,) = await look.reader.send([command])
    keys = found.told(reply, registry, None)
    return None if keys is None else [key for key in map(text_of, keys) if key.startswith(f"{registry}:")]
