"""What sources of both kinds have in common: the workers' scripts, and how to sleep. Alone in running these scripts."""

import hashlib
import os
import re
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final
from uuid import uuid4

from redis.exceptions import ResponseError

from service.clock import ServerClock
from service.errors import RetryLater
from service.keys import Keys
from service.runner import MAX_BYTES, MAX_MEMBERS, Runner
from service.transport import Encodable, Pool, Transport
from service.worker.sleeper import Sleeper
from service.worker.source import Condemned, Entry, Finished, Placed, Postponed, Pulse, Reaped, Turn
from storage_backends.reference import Reference

_STRIKES_MS: Final = 7 * 86_400_000  #: a payload that killed nobody for a week begins anew
#: A request that a worker sent before it was taken for dead may be carried out so much later, and take something.
_LINGER_MS: Final = 300_000
_WORKERS_A_PASS: Final = 10  #: reaped at once; the next pass comes soon
_DEPARTED_A_PASS: Final = 100
_TIME_S: Final = 5.0  #: Redis's own clock counts; what it told so long ago is still good to a millisecond


class ReadySource(ABC):
    """As `Source`. At `maxmemory`, too: its scripts move or free."""

    def __init__(
        self,
        queue: str,
        *,
        runner: Runner,
        transport: Transport,
        pool: Pool,
        keys: Keys,
        clock: ServerClock,
        patience_ms: int,
        block_s: float,
        stale_after_ms: int,
    ) -> None:
        """Who is not heard of for `patience_ms` is taken for dead. `wait` takes up to `block_s`.

        `stale_after_ms`: a payload that was put so long ago may be taken for an orphan.
        """
        self.queue = queue
        self.worker = self._begun_as = ""
        self._runner = runner
        self._transport = transport
        self._keys = keys
        self._of = keys.queue(queue)
        self._kind: tuple[Encodable, Encodable] = (self._of.ready_kind, self._of.group or "")
        self._clock = clock
        self._patience_ms = patience_ms
        self._block_s = block_s
        self._stale_after_ms = stale_after_ms
        self._sleeper = Sleeper(pool)

    @abstractmethod
    async def wait(self) -> Entry | None:
        """As Source."""

    @abstractmethod
    async def holdings(self) -> list[Entry]:
        """As Source."""

    @abstractmethod
    async def _held(self, worker: str) -> int:
        """How many entries are in this worker's hands."""

    @abstractmethod
    async def _apart(self) -> int:
        """How many entries wait that nobody is woken by."""

    @abstractmethod
    def _entries(self, taken: Sequence[Any]) -> list[Entry]:
        """What take.lua says that it took."""

    # ---- alive -----------------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        await self.hang_up()
        self.worker = new_name()
        arguments: list[Encodable] = ["", self.worker, *self._kind, self._patience_ms, self._begun_as, _LINGER_MS]
        now = await self._run("begin", arguments)
        self._begun_as = self.worker
        self._clock.learn(now)

    async def beat(self, *, count: bool) -> Pulse:
        """No script: an idle worker's beats are most of what it says."""
        name = self.worker
        if self._clock.known_for_s() > _TIME_S:
            seconds, micros = (await self._runner.read([("TIME",)]))[0]
            self._clock.learn(int(seconds) * 1000 + int(micros) // 1000)
        beat = ("ZADD", self._of.workers, "XX", "CH", self._clock.now_ms() + self._patience_ms, name)
        changed = (await self._runner.read([beat]))[0]  # what it writes may be written again
        alive = changed or (await self._runner.read([("ZSCORE", self._of.workers, name)]))[0] is not None
        return Pulse(bool(alive), await self._held(name) if count else None)

    async def leave(self) -> int:
        await self.hang_up()
        linger = _LINGER_MS if time.monotonic() < self._sleeper.unheard_until_s else 0
        return int(await self._run("leave", ["", self.worker, *self._kind, linger, MAX_MEMBERS, MAX_BYTES]))

    async def reap(self) -> Reaped:
        overdue = ("-inf", f"({self._clock.now_ms()}", "BYSCORE", "LIMIT", 0, _WORKERS_A_PASS)
        workers, departed = await self._runner.read(
            [("ZRANGE", self._of.workers, *overdue), ("ZRANGE", self._of.departed, 0, _DEPARTED_A_PASS - 1)]
        )
        dead, returned, suspected = 0, 0, 0
        for name in {*workers, *departed} - {self.worker.encode()}:
            arguments: list[Encodable] = ["", name, *self._kind, MAX_MEMBERS, MAX_BYTES, _LINGER_MS, _STRIKES_MS]
            back, aside = await self._run("reap", arguments, of=name.decode("utf-8", "surrogateescape"))
            dead, returned, suspected = dead + bool(back or aside), returned + back, suspected + aside
        return Reaped(dead, returned, suspected, await self._apart())

    # ---- jobs ------------------------------------------------------------------------------------------------------

    async def turn(self, number: int, finished: Sequence[Finished], count: int, *, suspect: bool) -> Turn:
        marked = [each for each in finished if each.once_key is not None]
        arguments: list[Encodable] = [self.worker, *self._kind, number, min(count, MAX_MEMBERS), MAX_BYTES]
        arguments += [int(suspect), *(each.once_ms for each in marked)]
        arguments += [each.entry.handle for each in finished if each.entry.worker == self.worker]
        once_keys = [each.once_key for each in marked if each.once_key is not None]
        status, *told = await self._run("take", arguments, more_keys=once_keys)
        if not told:
            return Turn(status.decode())
        left, suspects, struck, missing, deaths, *taken = told
        entries = self._entries(taken)
        if deaths != b"":
            entries[0].deaths = int(deaths)
        return Turn(status.decode(), entries, left, suspects, bool(struck), missing)

    async def postpone(self, number: int, jobs: Sequence[Postponed]) -> list[bool]:
        arguments: list[Encodable] = ["", self.queue, self._keys.wake, self.worker, *self._kind]
        arguments += (number, self._stale_after_ms)
        for job in jobs:
            reference, put_at, body = _placed(job.placed)
            attempts = "" if job.attempts is None else job.attempts
            arguments += (job.entry.handle, str(reference), reference.uuid, reference.ts_ms, put_at, body, attempts)
        return _done(await self._run("postpone", arguments), len(jobs))

    async def condemn(self, number: int, jobs: Sequence[Condemned]) -> list[bool]:
        arguments: list[Encodable] = ["", self.queue, self.worker, *self._kind, number, self._stale_after_ms]
        for job in jobs:
            reference, put_at, body = _placed(job.placed)
            arguments += (job.entry.handle, str(reference), reference.uuid, put_at, body, job.record)
        return _done(await self._run("condemn", arguments), len(jobs))

    async def hand_back(self, entries: Sequence[Entry]) -> int:
        handles: list[Encodable] = [entry.handle for entry in entries]
        return int(await self._run("hand_back", [self.worker, *self._kind, *handles]))

    async def attempts(self, entry: Entry) -> int:
        told = (await self._runner.read([("HGET", self._of.strikes, f"attempt:{fingerprint(entry.payload)}")]))[0]
        return int(told) if told and told.isdigit() else 0

    async def _run(
        self, name: str, arguments: Sequence[Encodable], *, of: str | None = None, more_keys: Sequence[str] = ()
    ) -> Any:
        """`of`: whose hands are meant; this worker's own if nothing is said. Streams have no in-flight lists."""
        inflight = self._of.inflight(self.worker if of is None else of)
        return await self._runner.run(name, self.queue, arguments, more_keys=[inflight, *more_keys])

    # ---- asleep ----------------------------------------------------------------------------------------------------

    async def rouse(self) -> None:
        try:
            await self._sleeper.wake(self._transport)
        except (RetryLater, ResponseError):  # away, or a user that may not unblock
            await self.hang_up()

    async def hang_up(self) -> None:
        await self._sleeper.hang_up()


def new_name() -> str:
    """Of one worker's life on one queue: for people where it runs, and never the same again."""
    host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())[:64]
    return f"{host}-{os.getpid()}-{uuid4().hex[:16]}"


def fingerprint(payload: bytes) -> str:
    """What strikes are kept under."""
    return hashlib.sha1(payload, usedforsecurity=False).hexdigest()


def _placed(placed: Placed) -> tuple[Reference, Encodable, bytes]:
    return placed.reference, "" if placed.put_at_ms is None else placed.put_at_ms, placed.body or b""


def _done(reply: Sequence[bytes | int], count: int) -> list[bool]:
    """For each job, whether it was done. A turn that was repeated was done the first time."""
    status, *outcomes = reply
    return [True] * count if status == b"repeated" else [bool(outcome) for outcome in outcomes]
