"""Runs the scripts for the ledger: hands each the keys that its header names, and repeats what may be repeated."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, TypeVar

from service.errors import RedisUnavailable
from service.keys import Keys
from service.scripts import Script, Scripts
from service.transport import Encodable, Interrupted, Transport

T = TypeVar("T")

#: A script holds Redis while it runs (1,000 small jobs: about 3 ms), and Lua unpacks at most about 8,000 values.
MAX_MEMBERS: Final = 1000
#: Of payload a call, but always one job: 8 MiB hold Redis for 25-34 ms.
MAX_BYTES: Final = 2**20
#: Told after each call of a script that was answered: its name, seconds with all repetitions, how many these were.
OnScript = Callable[[str, float, int], None]

#: Before each repetition: a dropped connection needs no longer, and an outage is the caller's to wait out.
_PAUSES_S: Final = (0.02, 0.2)
TRIES: Final = len(_PAUSES_S) + 1


class Runner:
    """Raises RedisUnavailable, Interrupted if any of the tries may have been carried out, and what Transport raises."""

    def __init__(self, transport: Transport, keys: Keys, scripts: Scripts, on_script: OnScript) -> None:
        self._transport = transport
        self._keys = keys
        self._scripts = scripts
        self._on_script = on_script
        self._fixed_keys = lru_cache(maxsize=4096)(self._named_keys)

    async def run(
        self,
        name: str,
        queue: str,
        arguments: Sequence[Encodable],
        *,
        keys: Sequence[str] | None = None,
        more_keys: Sequence[str] = (),
        repeat: bool = True,
    ) -> Any:
        """The reply of script `name`. `keys` replaces those of `queue` that its header names, `more_keys` follow them.

        `repeat`: it finds its own work done the second time, so that it may be sent again when no answer was seen.
        """
        script = self._scripts[name]
        fixed = keys if keys is not None else self._fixed_keys(script, queue)
        every = (*fixed, *more_keys) if more_keys else fixed
        began_s = time.perf_counter()
        reply, repeats = await _patiently(lambda: self._transport.run(script, every, arguments), repeat=repeat)
        self._on_script(name, time.perf_counter() - began_s, repeats)
        return reply

    async def read(self, commands: Sequence[tuple[Encodable, ...]]) -> list[Any]:
        """The replies to commands that only read, in one round trip."""
        replies: list[Any]
        replies, _ = await _patiently(lambda: self._transport.send(commands), repeat=True)
        return replies

    def _named_keys(self, script: Script, queue: str) -> tuple[str, ...]:
        """The keys that the script's header names, except those that the caller hands in."""
        of = self._keys.queue(queue)
        shared = {"queues": self._keys.queues}
        return tuple(
            shared.get(name) or getattr(of, name) for name in script.keys if isinstance(getattr(of, name, ""), str)
        )


def chunks(
    items: Sequence[T], size_bytes: Callable[[T], int] | None = None, most: int = MAX_MEMBERS
) -> Iterator[list[T]]:
    """`items` in order, in pieces that one script may take: so many members, so many bytes, at least one."""
    chunk: list[T] = []
    bytes_left = MAX_BYTES
    for item in items:
        size = size_bytes(item) if size_bytes else 0
        if chunk and (len(chunk) == most or size > bytes_left):
            yield chunk
            chunk, bytes_left = [], MAX_BYTES
        chunk.append(item)
        bytes_left -= size
    if chunk:
        yield chunk


async def _patiently(request: Callable[[], Awaitable[Any]], *, repeat: bool) -> tuple[Any, int]:
    """The reply, and how often it took another try: after one certainly not carried out, or, with `repeat`, perhaps.

    Raises Interrupted if any of the tries may have been carried out, else RedisUnavailable.
    """
    interrupted: Interrupted | None = None
    for repeats, pause_s in enumerate((*_PAUSES_S, None)):
        try:
            return await request(), repeats
        except Interrupted as error:
            interrupted = error
            if not repeat or pause_s is None:
                raise
        except RedisUnavailable as error:
            if pause_s is None:
                raise interrupted or error from error
        await asyncio.sleep(pause_s)
    raise AssertionError("unreachable")
