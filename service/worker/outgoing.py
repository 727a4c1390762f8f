"""What Redis has yet to hear of jobs that left a lane's hands."""

from typing import Final, TypeVar

from service.runner import chunks
from service.worker.source import Condemned, Entry, Finished, Placed, Postponed

T = TypeVar("T", Finished, Postponed, Condemned)
_MANY: Final = 100


class Outgoing:
    """Gathers. What is taken for a request is the caller's to get answered."""

    def __init__(self) -> None:
        self.finished: list[Finished] = []
        self.postponed: list[Postponed] = []
        self.condemned: list[Condemned] = []
        self.returned: list[Entry] = []

    @property
    def empty(self) -> bool:
        return not (self.finished or self.urgent)

    @property
    def urgent(self) -> bool:
        """Whether something must not wait for the next turn."""
        many = len(self.finished) >= _MANY
        return many or bool(self.postponed or self.condemned or self.returned)

    def take(self, waiting: list[T]) -> list[T]:
        """The first of one of the lists, as many as one request may take."""
        some = next(chunks(waiting, _size_bytes), [])
        del waiting[: len(some)]
        return some

    def take_returned(self) -> list[Entry]:
        """The last of them, likewise: what goes back last is the next to be taken."""
        some = next(chunks(self.returned[::-1], lambda entry: len(entry.handle)), [])
        del self.returned[len(self.returned) - len(some) :]
        return some[::-1]

    def forget(self) -> list[Placed]:
        """The jobs are others' now. Their payloads that were put somewhere, which nobody needs; what is finished and
        must not run again stays here, for that is so whoever has the job.
        """
        placed = [job.placed for job in self.postponed] + [job.placed for job in self.condemned]
        self.finished = [each for each in self.finished if each.once_key is not None]
        self.postponed, self.condemned, self.returned = [], [], []
        return placed


def _size_bytes(job: Finished | Postponed | Condemned) -> int:
    size_bytes = len(job.entry.handle)
    if not isinstance(job, Finished):
        size_bytes += len(job.placed.body or b"")
    if isinstance(job, Condemned):
        size_bytes += len(job.record)
    return size_bytes
