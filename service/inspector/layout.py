"""The shape of every layout: one folder a library, read-only, each method one bounded look.

A layout is made anew for each look, with a budget of its own: `Asynq(look).summary("emails")`.

What all of them keep to:
- any key may be of a wrong type, any value cut short, broken, huge or of any bytes: that is a Problem in the answer,
  never an exception. Only what Transport raises when Redis is away leaves a method; OverBudget is turned into the
  problem `not-all-looked-at` wherever something is known already.
- ids, queues and keys are text by `service.members.text_of`, which every byte survives.
- a name that `queues` told is one that the other methods take.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from service.inspector.answers import JobDetail, Problem, QueueDetail, QueueSummary
from service.inspector.payloads import MAX_BYTES
from service.inspector.reading import ReadOnly
from service.keys import Keys

ENDS = 5  #: entries shown of each end of a structure
EXAMPLES = 5  #: ids named with a problem
SAMPLE = 1000  #: entries of each end of a structure whose records are compared with it


@dataclass(frozen=True, slots=True)
class Look:
    """What one look has to work with."""

    reader: ReadOnly
    now_ms: int  #: by Redis's clock
    keys: Keys = field(default_factory=Keys)  #: Coatcheck's own; other layouts have their prefixes
    max_bytes: int = MAX_BYTES  #: shown of a payload
    prefix: str | None = None  #: of another library's keys, where its users choose one; None: its own default


class Layout(Protocol):
    """Reads one library's structures. tests/inspector/test_layouts.py is this docstring in executable form."""

    name: ClassVar[str]
    checked_against: ClassVar[str]  #: which releases' structures these are

    def __init__(self, look: Look) -> None: ...

    def hint(self, key: str) -> str | None:
        """The queue that this key seems to belong to, None if it is none of this library's. Pure and quick: it is asked
        of every key that a SCAN meets, of which there may be 100,000.
        """

    async def queues(self, hints: Collection[str]) -> Sequence[str]:
        """The queues that the library's own registry lists, and those of `hints` that are really there; sorted."""

    async def has(self, queue: str) -> bool:
        """Whether anything of such a queue is there, by a few reads."""

    async def summary(self, queue: str) -> QueueSummary:
        """Counts by state and the next times, by commands of constant or logarithmic time."""

    async def detail(self, queue: str) -> QueueDetail:
        """The same, with ENDS entries of both ends of every structure."""

    async def job(self, queue: str, id: str) -> JobDetail | None:  # noqa: A002  the word that every library uses
        """Everything about one job; None if nothing knows it and everything was looked at."""

    async def problems(self, queue: str) -> Sequence[Problem]:
        """What does not fit, by samples of both ends of each structure."""
