"""Dead jobs: list, revive, purge."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Annotated, Any, Final

import typer

from service.catalogue import FAILURE_KINDS
from service.cli import show
from service.cli.exits import Exit
from service.cli.queues import Limit, Queue, State, paged, show_jobs
from service.cli.remote import Json, Url, service_at

app = typer.Typer(help="Jobs that were given up on: payload kept, with the reason.", no_args_is_help=True)

References = Annotated[list[str] | None, typer.Argument(help="These jobs.", show_default=False)]
Reason = Annotated[
    str | None, typer.Option(help="All that died of it, as `dead list` has it: payload_missing, …", show_default=False)
]
All = Annotated[bool, typer.Option("--all", help="All of them.")]
Most = Annotated[int | None, typer.Option(min=1, help="At most so many.", show_default=False)]

Call = Callable[..., dict[str, Any]]

_AT_ONCE: Final = 1000


@dataclass(frozen=True)
class _Which:
    """References, or what they died of, or all; exactly one of the three."""

    references: list[str]
    reason: str | None
    every: bool
    limit: int | None

    def __post_init__(self) -> None:
        if sum((bool(self.references), self.reason is not None, self.every)) != 1:
            raise typer.BadParameter("say which: references, --reason or --all")
        if self.references and self.limit is not None:
            raise typer.BadParameter("--limit belongs to --reason and --all")

    @property
    def fields(self) -> dict[str, Any]:
        return {"all": True} if self.every else {"reason": self.reason}


@app.command("list")
def list_dead(queue: Queue, reason: Reason = None, limit: Limit = 50, url: Url = None, as_json: Json = False) -> None:
    """Dead jobs of a queue, the longest dead first."""
    with service_at(url, as_json=as_json) as remote:
        found = paged(remote, "jobs", "queues", queue, "jobs", state="dead")
        wanted = (each for each in found if reason is None or each["reason"] == reason)
        show_jobs(islice(wanted, limit), State.DEAD, as_json)


@app.command()
def revive(
    queue: Queue,
    references: References = None,
    *,
    reason: Reason = None,
    every: All = False,
    limit: Most = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Give dead jobs another life: due now, with no failure counted."""
    _end("revive", queue, _Which(references or [], reason, every, limit), url, as_json=as_json)


@app.command()
def purge(
    queue: Queue,
    references: References = None,
    *,
    reason: Reason = None,
    every: All = False,
    limit: Most = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """End dead jobs for good, payload and all."""
    which = _Which(references or [], reason, every, limit)
    if not which.references and not yes:
        if not sys.stdin.isatty():
            raise typer.BadParameter("nobody is there to be asked: say --yes")
        typer.confirm(f"Purge what is dead in {queue}, payloads and all?", abort=True, err=True)
    _end("purge", queue, which, url, as_json=as_json)


def _end(verb: str, queue: str, which: _Which, url: str | None, *, as_json: bool) -> None:
    with service_at(url, as_json=as_json) as remote:
        call = partial(remote.post, "queues", queue, "dead", verb)
        if which.references:
            done = _these(call, which.references, as_json=as_json)
        else:
            dead = remote.get("queues", queue)["dead"]
            done = _matching(call, which, dead, as_json=as_json)
    if not done and which.reason is not None and which.reason not in FAILURE_KINDS:
        show.note(f"{which.reason!r} is no reason; reasons are {', '.join(FAILURE_KINDS)}")
    missing = len(which.references) - done
    if missing > 0:
        show.note(f"{missing} of these were not dead")
        raise typer.Exit(Exit.FAILED)


def _these(call: Call, references: list[str], *, as_json: bool) -> int:
    done = left = 0
    with show.progress("Working", len(references), quiet=as_json) as advance:
        for at in range(0, len(references), _AT_ONCE):
            ended = call(references=references[at : at + _AT_ONCE])
            done, left = done + ended["done"], left + ended["left"]
            advance(_AT_ONCE)
    show.fields({"done": done, "left": left}, machine=as_json)
    return done


def _matching(call: Call, which: _Which, dead: int, *, as_json: bool) -> int:
    """Bounded calls, until all that were dead at the first one have been looked at."""
    done, left, more = 0, dead, dict[str, Any]()
    with show.progress("Working", dead, quiet=as_json) as advance:
        while True:
            most = _AT_ONCE if which.limit is None else min(_AT_ONCE, which.limit - done)
            ended = call(**which.fields, **more, limit=most)
            done += int(ended["done"])
            advance(max(0, left - ended["left"]))
            left = ended["left"]
            if ended["next"] is None or done == which.limit:
                break
            more = {"cursor": ended["next"]}
    show.fields({"done": done, "left": left}, machine=as_json)
    return done
