"""Bulkhead: how much of one backend's payloads a dispatcher has in hand. A slow backend fills its own, and no other's.

Two bounds. Slots are counted before a claim, without waiting: no slot, no lease. Bytes are waited for, first come,
first served, when a payload's length is known and its body not yet read; they are given back when it was delivered.

    got = bulkhead.take(50)                  # before the claim
    bulkhead.give_back(got - len(leased))    # after it; and one for each payload delivered or given up
    admission = bulkhead.admission()         # one a fetch
    payload = await backend.get(reference, admission)
    …deliver…
    admission.release()                      # always, in a finally

Whoever holds bytes must come to `release` without waiting for another fetch of the same backend: a batch that is
delivered only when all of it is fetched would wait for itself.
"""

import asyncio
from collections import deque


class Bulkhead:
    """`slots` fetches and `budget_bytes` of payloads at once. For one event loop."""

    def __init__(self, slots: int, budget_bytes: int) -> None:
        self.slots = slots
        self.budget_bytes = budget_bytes
        self.taken = 0  #: slots in use
        self.held_bytes = 0  #: at most the budget, or one payload that is bigger
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def free(self) -> int:
        """Slots that can be taken now."""
        return self.slots - self.taken

    def take(self, n: int) -> int:
        """Takes up to `n` slots, as many as are free, and returns how many."""
        got = min(n, self.free)
        self.taken += got
        return got

    def give_back(self, n: int = 1) -> None:
        """Raises ValueError if fewer were taken: somebody gave back twice."""
        if not 0 <= n <= self.taken:
            raise ValueError(f"{n} slots given back, {self.taken} are taken")
        self.taken -= n

    def admission(self) -> "Admission":
        return Admission(self)

    async def _acquire(self, size_bytes: int) -> None:
        if not self._waiting and self._fits(size_bytes):
            self.held_bytes += size_bytes
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (size_bytes, turn)
        self._waiting.append(entry)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release(size_bytes)  # its turn came and was cancelled in the same step
            else:
                self._waiting.remove(entry)
                self._admit_waiting()  # it may have been the big one that others stood behind
            raise

    def _release(self, size_bytes: int) -> None:
        self.held_bytes -= size_bytes
        self._admit_waiting()

    def _admit_waiting(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            size_bytes, turn = self._waiting.popleft()
            self.held_bytes += size_bytes
            turn.set_result(None)

    def _fits(self, size_bytes: int) -> bool:
        """A payload bigger than the whole budget is admitted alone: else it could never be delivered."""
        return self.held_bytes == 0 or self.held_bytes + size_bytes <= self.budget_bytes


class Admission:
    """What one fetch holds of the byte budget. It is the `admit` that a backend's `get` awaits."""

    def __init__(self, bulkhead: Bulkhead) -> None:
        self._bulkhead = bulkhead
        self._held_bytes = 0

    async def __call__(self, size_bytes: int) -> None:
        """Returns when there is room. Again for the same fetch, as a backend's own retry does: the last size counts."""
        if size_bytes != self._held_bytes:
            self.release()
            await self._bulkhead._acquire(size_bytes)
            self._held_bytes = size_bytes

    def release(self) -> None:
        """Gives back what is held. Idempotent."""
        held_bytes, self._held_bytes = self._held_bytes, 0
        if held_bytes:
            self._bulkhead._release(held_bytes)
