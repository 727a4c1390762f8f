"""Room: how many bytes of payloads this process holds at once for its clients, whatever their number."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from starlette.requests import Request

from service.api.incoming import announced_bytes, body_of
from service.bulkhead import Admission, Bulkhead
from service.errors import Busy
from storage_backends.base import Admit

#: The server reads so much of each connection ahead anyway. If it were counted, small jobs would wait for large ones.
FREE_BYTES: Final = 64 * 1024
#: Who has been given room and sends nothing, or next to nothing, gives it back: see incoming.unless_slow.
IDLE_S: Final = 30.0
#: For room. Longer, and clients would give up on us without having been told to come back.
WAIT_S: Final = 10.0
_RETRY_AFTER_S: Final = 5.0


class Room:
    """Bodies that do not fit wait their turn, unread, up to WAIT_S: clients are slowed down, and in the end told so."""

    def __init__(self, budget_bytes: int) -> None:
        self._bulkhead = Bulkhead(0, budget_bytes)

    @asynccontextmanager
    async def body_of(self, request: Request, limit_bytes: int) -> AsyncIterator[bytes]:
        """The request's body, as incoming.body_of reads it; its bytes are counted until the context ends."""
        async with self.taken(request, limit_bytes) as counted:
            yield await body_of(request, limit_bytes, idle_s=IDLE_S if counted else None)

    @asynccontextmanager
    async def admitting(self) -> AsyncIterator[Admit]:
        """What a backend's `get` awaits before it reads a payload; its bytes are counted until the context ends.

        Raises Busy if there is no room within WAIT_S.
        """
        admission = self._bulkhead.admission()
        try:
            yield lambda size_bytes: _in_time(admission, size_bytes)
        finally:
            admission.release()

    @asynccontextmanager
    async def taken(self, request: Request, most_bytes: int) -> AsyncIterator[bool]:
        """Room for what `request` announces, at most `most_bytes`, or for as many if it announces nothing.

        Says whether that is enough to be counted. Raises Busy.
        """
        size_bytes = min(announced_bytes(request, unknown=most_bytes), most_bytes)
        if size_bytes <= FREE_BYTES:
            yield False
            return
        async with self.admitting() as admit:
            await admit(size_bytes)
            yield True


async def _in_time(admission: Admission, size_bytes: int) -> None:
    try:
        async with asyncio.timeout(WAIT_S):
            await admission(size_bytes)
    except TimeoutError as error:
        raise Busy(
            f"no room for {size_bytes} bytes came free within {WAIT_S:g} s", retry_after_s=_RETRY_AFTER_S
        ) from error
