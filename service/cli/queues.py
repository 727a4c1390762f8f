"""Queues: what they hold, in figures and job by job; pause and resume."""

from collections.abc import Iterator
from enum import StrEnum
from itertools import islice
from typing import Annotated, Any, Final

import typer

from service.cli import show
from service.cli.remote import Json, Remote, Url, service_at

Queue = Annotated[str, typer.Argument(help="The queue.", show_default=False)]
Limit = Annotated[int, typer.Option(min=1, help="At most so many.")]

COUNTS: Final = ("queue", "future", "overdue", "leased", "ready", "dead", "trash", "paused", "next_due", "error")
_COLUMNS: Final = {
    "delayed": ("reference", "due", "next_attempt", "attempts", "last_error"),
    "leased": ("reference", "due", "attempts", "expiries", "last_error"),
    "dead": ("reference", "reason", "died_at", "attempts", "last_error"),
}


class State(StrEnum):
    DELAYED = "delayed"
    LEASED = "leased"
    DEAD = "dead"


def queues(
    queue: Annotated[str | None, typer.Argument(help="One queue alone.", show_default=False)] = None,
    limit: Limit = 1000,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """How many jobs queues hold, by state.

    Without a name, of those that the service has work with; `inspect` has those whose jobs are all ready, too.
    """
    with service_at(url, as_json=as_json) as remote:
        if queue is not None:
            show.fields(remote.get("queues", queue), machine=as_json)
            return
        every = {each["queue"]: each for each in islice(paged(remote, "queues", "queues"), limit)}
        rows = [every[name] for name in sorted(every)]
        if as_json:
            show.as_json(rows)
        else:
            columns = [name for name in COUNTS if name != "error" or any("error" in row for row in rows)]
            show.table(columns, rows)


def jobs(
    queue: Queue,
    state: Annotated[State, typer.Option(help="Which jobs.")] = State.DELAYED,
    limit: Limit = 50,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """The jobs of a queue, those that are due first."""
    with service_at(url, as_json=as_json) as remote:
        show_jobs(islice(paged(remote, "jobs", "queues", queue, "jobs", state=state.value), limit), state, as_json)


def pause(queue: Queue, url: Url = None, as_json: Json = False) -> None:
    """Stop dispatching a queue. Jobs are accepted as before, and what is leased is still delivered."""
    with service_at(url, as_json=as_json) as remote:
        show.fields(remote.post("queues", queue, "pause"), machine=as_json)


def resume(queue: Queue, url: Url = None, as_json: Json = False) -> None:
    """Dispatch a queue again."""
    with service_at(url, as_json=as_json) as remote:
        show.fields(remote.post("queues", queue, "resume"), machine=as_json)


def show_jobs(found: Iterator[dict[str, Any]], state: State, as_json: bool) -> None:
    """JSON has every field, a line a job; a table has those that matter in this state."""
    if as_json:
        for each in found:
            show.as_json(each)
    else:
        show.table(_COLUMNS[state.value], found)


def paged(remote: Remote, what: str, *parts: str, **query: Any) -> Iterator[dict[str, Any]]:
    """One by one, whatever the number of pages."""
    cursor = None
    while True:
        page = remote.get(*parts, **query, cursor=cursor, limit=500)
        yield from page[what]
        cursor = page["next"]
        if cursor is None:
            return
