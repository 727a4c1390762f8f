"""An S3 that is there and says no to everything: `503 SlowDown`, `500 InternalError`, `403 AccessDenied`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from service.child import HOST, free_port


@asynccontextmanager
async def refusing(status: int, code: str) -> AsyncIterator[int]:
    """The port where every request is answered like that. For a proxy to lead to: `proxy.upstream = port`."""
    body = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
    head = f"HTTP/1.1 {status} No\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n"
    answer = f"{head}Connection: close\r\n\r\n".encode()
    busy: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            request = await reader.readuntil(b"\r\n\r\n")
            writer.write(answer + (b"" if request.startswith(b"HEAD") else body))
            await writer.drain()
        writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(serve(reader, writer))
        busy.add(task)
        task.add_done_callback(busy.discard)

    port = free_port()
    listener = await asyncio.start_server(accept, HOST, port)
    try:
        yield port
    finally:
        listener.close()
        for task in busy:
            task.cancel()
        await asyncio.gather(*busy, return_exceptions=True)
