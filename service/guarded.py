"""Guarded: one backend's breaker at work. It asks the backend only when it may, and says after a failure whose it was.

How an outage begins and ends, in every role, with or without traffic:

    start failed or is late, a failure and its check failed, or FAILURES different jobs failed -> open
    open for open_s: `probe_if_due`, called about once a second by a loop in every process,
    runs `check` (after a failed start: `start`); bad: open for open_s more; good             -> half_open
    half_open: `available` and `permit` let one job through, the first `get` or `put` that comes;
    any other is told BreakerOpen. It succeeds                                                -> closed
    it fails                                                                                  -> open
    it says nothing (missing, corrupt, no room, cancelled)                                    -> the next one may try
    nobody judged it: taken for gone after open_s                                             -> the next one may try
    half_open for open_s and nobody came: `probe_if_due` runs `check` again; good             -> closed
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from service.bounded import Bounded, NoRoom
from service.breaker import Breaker, Permit, Policy, State
from service.clock import Clock
from service.shared_check import SharedCheck
from service.storage import Decorator
from storage_backends.base import (
    Admit,
    Misconfigured,
    Ownership,
    PayloadCorrupt,
    PayloadMissing,
    StorageBackend,
    StorageError,
    StorageUnavailable,
)
from storage_backends.reference import Reference

#: A start that takes longer opens the breaker and goes on in the background: who has nothing for this backend waits no
#: longer than this for it, once. A store that is well answers the two or three requests of a start in far less.
START_PATIENCE_S: Final = 3.0


class BreakerOpen(StorageUnavailable):
    """The backend was not asked: its breaker is open, or half-open with another job under way as the probe."""

    kind = "breaker_open"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a job whose payload could not be fetched.

    bury    dead at once, with `kind` as the reason
    charge  back to delayed with backoff, one attempt charged
    free    back to delayed with backoff, not charged

    `kind` is from a closed set (service.catalogue.FAILURE_KINDS) unless a foreign backend adds its own. Trying before
    `wait_s` is over is useless; 0: the usual backoff.
    """

    do: Literal["bury", "charge", "free"]
    kind: str
    wait_s: float = 0.0


#: Told after each change: backend, new state, and what caused it (None: a success or a good check). Must not raise.
OnChange = Callable[[str, State, Exception | None], None]

#: Told when the place turns out to be somebody else's than was known: backend, and whose. Must not raise.
OnOwnership = Callable[[str, Ownership], None]


class Guarded(Decorator):
    """A backend behind its breaker. Give each backend one of its own; for one event loop.

    Calls are bounded in time (service/bounded.py). A caller who loses patience earlier cancels its call, and what is
    cancelled tells nothing about the backend.
    """

    def __init__(
        self,
        inner: StorageBackend,
        clock: Clock,
        *,
        policy: Policy | None = None,
        fetch_timeout_s: float = 15.0,
        put_timeout_s: float = 20.0,
        check_timeout_s: float = 10.0,
        start_patience_s: float = START_PATIENCE_S,
        on_change: OnChange = lambda backend, state, cause: None,
        on_ownership: OnOwnership = lambda backend, ownership: None,
    ) -> None:
        super().__init__(Bounded(inner, fetch_timeout_s=fetch_timeout_s, put_timeout_s=put_timeout_s))
        self.ownership = Ownership(None, ours=False)  #: as `start` or `read_ownership` last found it
        self._clock = clock
        self._breaker = Breaker(policy or Policy())
        self._judging: set[asyncio.Task[Verdict]] = set()
        self._on_change = on_change
        self._on_ownership = on_ownership
        self._start_patience_s = start_patience_s
        self._check_timeout_s = check_timeout_s
        self._check = SharedCheck(self._prove, clock, check_timeout_s)
        self._installation: str | None = None
        self._unstarted: str | None = None  # the installation with which `start` has yet to succeed

    @property
    def state(self) -> State:
        return self._breaker.state

    @property
    def available(self) -> bool:
        """The router's fact: may the next payload be put here? Half-open, one may: it is the probe."""
        return self.permit().kind != "nothing"

    def permit(self) -> Permit:
        """For a claim. Not a reservation: two claims that ask at once may both hear `probe`; the second `get` is told
        BreakerOpen, which charges nobody."""
        return self._breaker.permit(self._clock.monotonic_s())

    async def start(self, installation: str) -> Ownership:
        """Starts the backend. Raises Misconfigured; any other failure opens the breaker: `probe_if_due` tries again.

        So does an answer that is not there in `start_patience_s`; if that comes later, the breaker stays open all the
        same until it is probed, and for Misconfigured, too. Calling it again reads the ownership anew.
        """
        self._installation = self._unstarted = installation
        error: Exception | None
        try:
            async with asyncio.timeout(self._start_patience_s):
                error = await self._check.fresh()
                if error is None and self._unstarted is not None:  # a check that ran already answered
                    error = await self._check.fresh()
        except TimeoutError as late:
            error = late
        if isinstance(error, Misconfigured):
            raise error
        if error is not None:
            self._become(self._breaker.tripped(self._clock.monotonic_s()), error)
        return self.ownership

    async def read_ownership(self) -> None:
        """Asks the backend anew whose its place is. Not before it has started, nor while the breaker is open.

        Raises what the backend does, Misconfigured included, and TimeoutError; then `ownership` stays as it was. It is
        no business of the breaker: it may have waited behind payloads.
        """
        if self._installation is None or self._unstarted is not None or self.state == "open":
            return
        async with asyncio.timeout(self._check_timeout_s):
            self._owned(await self._inner.start(self._installation))

    async def probe_if_due(self) -> None:
        """One step towards the end of an outage, if it is time for one. For a loop that runs about every second."""
        if not self._breaker.check_due(self._clock.monotonic_s()):
            return
        error = await self._check.fresh()
        now_s = self._clock.monotonic_s()
        self._become(self._breaker.checked(now_s) if error is None else self._breaker.tripped(now_s), error)

    async def put(self, reference: Reference, payload: bytes) -> None:
        """As the backend's, bounded in time. Raises BreakerOpen without asking the backend.

        A failure is judged before it is raised, and also if the caller is cancelled meanwhile.
        """
        self._begin(reference)
        began_s = self._clock.monotonic_s()
        try:
            await self._inner.put(reference, payload)
        except asyncio.CancelledError:
            self._unproven(reference)
            raise
        except Exception as error:
            judging = asyncio.create_task(self.judge(reference, error, began_s))
            self._judging.add(judging)
            judging.add_done_callback(self._judging.discard)
            await asyncio.shield(judging)
            raise
        self._succeeded()

    async def get(self, reference: Reference, admit: Admit | None = None) -> bytes:
        """As the backend's, bounded in time. Raises BreakerOpen without asking the backend, and NoRoom.

        After an exception call `judge`: who does not leaves the failure uncounted, and if this was the probe, no other
        may try for open_s. For who has no use for a verdict there is `peek`.
        """
        self._begin(reference)
        try:
            payload = await self._inner.get(reference, admit)
        except (PayloadMissing, PayloadCorrupt, NoRoom, asyncio.CancelledError):
            self._unproven(reference)
            raise
        self._succeeded()
        return payload

    async def peek(self, reference: Reference, admit: Admit | None = None) -> bytes:
        """As `get`, for people who look: never the probe, and neither its success nor its failure says anything, for
        somebody may look at one bad object all the time. Raises BreakerOpen only while open, and NoRoom.
        """
        if self.state == "open":
            raise self._refusal(reference)
        return await self._inner.get(reference, admit)

    async def delete(self, references: Sequence[Reference]) -> None:
        """As the backend's; raises BreakerOpen while open. Says nothing about reads and writes, so it is not judged."""
        if self.state == "open":
            raise self._refusal(None)
        await self._inner.delete(references)

    async def judge(self, reference: Reference, error: Exception, began_s: float = -math.inf) -> Verdict:
        """Whose failure was `error`, raised by a `get` for `reference` that began then (by our clock)?

        Once for each failure: it is counted here.
        """
        if isinstance(error, PayloadMissing | PayloadCorrupt):
            self._unproven(reference)
            return Verdict("bury", error.kind)
        if isinstance(error, BreakerOpen | NoRoom):
            return Verdict("free", error.kind, self.permit().wait_s)
        throttled = isinstance(error, StorageUnavailable) and error.throttled
        needless = throttled or self.state == "open"
        check_error = None if needless else await self._check.answer(began_s)
        breaker, charged = self._breaker.failed(
            str(reference), self._clock.monotonic_s(), check_ok=check_error is None, throttled=throttled
        )
        self._become(breaker, check_error or error)
        return Verdict("charge" if charged else "free", _kind(error, throttled=throttled), self.permit().wait_s)

    async def check(self) -> None:
        """As the backend's, but shared: one at a time, and its answer serves all for CHECK_SHARED_S."""
        error = await self._check.answer()
        if error is not None:
            raise error

    async def aclose(self) -> None:
        if self._judging:
            await asyncio.wait(self._judging)
        await self._check.aclose()
        await self._inner.aclose()

    async def _prove(self) -> None:
        if self._unstarted is None:
            await self._inner.check()
        else:
            self._owned(await self._inner.start(self._unstarted))
            self._unstarted = None

    def _owned(self, ownership: Ownership) -> None:
        changed = ownership != self.ownership
        self.ownership = ownership
        if changed:
            self._on_ownership(self.name, ownership)

    def _begin(self, reference: Reference) -> None:
        begun = self._breaker.begin(str(reference), self._clock.monotonic_s())
        if begun is None:
            raise self._refusal(reference)
        self._breaker = begun

    def _refusal(self, reference: Reference | None) -> BreakerOpen:
        return BreakerOpen(f"{self.name}: its breaker is {self.state}", backend=self.name, reference=reference)

    def _succeeded(self) -> None:
        self._become(self._breaker.succeeded(), None)

    def _unproven(self, reference: Reference) -> None:
        self._breaker = self._breaker.unproven(str(reference))

    def _become(self, breaker: Breaker, cause: Exception | None) -> None:
        changed = breaker.state != self._breaker.state
        self._breaker = breaker
        if changed:
            self._on_change(self.name, breaker.state, cause)


def _kind(error: Exception, *, throttled: bool) -> str:
    if throttled:
        return "throttled"
    return error.kind if isinstance(error, StorageError) else "unexpected"
