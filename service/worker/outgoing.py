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
        back, self.returned = self.returned, []
        return back

    def forget(self) -> list[Placed]:
        """The jobs are others' now. Their payloads that were put somewhere, which nobody needs; what is finished and
        must not run again stays here, for that is so whoever has the job.
        """
        placed = [job.placed for job in self.postponed] + [job.placed for job in self.condemned]
        self.finished = [each for each in self.finished if each.once_key is not None]
        self.postponed, self.condemned, self.returned = [], [], []
        return placed


def _size_bytes(job: Finished | Postponed | Condemned) -> int:
    body = b"" if isinstance(job, Finished) else job.placed.body or b""
    return len(job.entry.handle) + len(body)
