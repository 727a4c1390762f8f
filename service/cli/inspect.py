"""Where did my job go: inspect, which asks Redis itself, by reads alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from service.cli.asking import RedisUrl, asked
from service.cli.exits import Exit
from service.cli.remote import Json

if TYPE_CHECKING:
    from service.inspector.inspector import Inspector
    from service.inspector.layout import Layout
    from service.settings import Settings
    from service.transport import Transport

Layouts = Annotated[
    list[str] | None,
    typer.Option(
        "--layout", help="Only this one: coatcheck, asynq, bullmq, rtq. Several may be named.", metavar="NAME"
    ),
]
_EVERY_S: Final = 2.0  #: between two looks of --watch


def inspect(
    queue: Annotated[str | None, typer.Argument(help="This queue alone, closely.", show_default=False)] = None,
    id: Annotated[str | None, typer.Argument(help="This job of it.", show_default=False)] = None,  # noqa: A002  the argument's name
    *,
    problems: Annotated[bool, typer.Option("--problems", help="What does not fit, and what that means.")] = False,
    layout: Layouts = None,
    redis: RedisUrl = None,
    prefix: Annotated[
        str | None, typer.Option(help="Of another library's keys, if not its default.", show_default=False)
    ] = None,
    max_bytes: Annotated[int, typer.Option(min=0, help="Shown of a payload.")] = 512,
    all_keys: Annotated[
        bool, typer.Option("--all-keys", help="Look for queues among all keys, not only 100,000.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Look again every 2 seconds, until Ctrl-C.")] = False,
    as_json: Json = False,
) -> None:
    """What jobs there are, and what state each is really in: Coatcheck's, Asynq's, BullMQ's, redis_task_queue's.

    Asks Redis, not the service, and changes nothing there. Works on a replica, and for a user who may only read
    (ops/redis/inspector.acl).
    """
    if problems and id is not None:
        raise typer.BadParameter("--problems is of a queue, or of all; a job tells its own")
    request = _Request(queue, id, problems, as_json, watch)
    options: dict[str, Any] = {"layouts": _layouts(layout), "max_bytes": max_bytes, "prefix": prefix}
    if all_keys:
        options["keys_at_most"] = None
    every_s = _EVERY_S if watch else None
    code = asked(lambda at, chosen: _inspect(at, chosen, request, options), redis, as_json=as_json, every_s=every_s)
    if code != Exit.DONE:
        raise typer.Exit(code)


@dataclass(frozen=True)
class _Request:
    """What is asked for, and how it is to be told."""

    queue: str | None
    id: str | None
    problems: bool
    as_json: bool
    watch: bool


def _layouts(names: Sequence[str] | None) -> "dict[str, type[Layout]]":
    from service.inspector.layouts import LAYOUTS

    unknown = [name for name in names or () if name not in LAYOUTS]
    if unknown:
        raise typer.BadParameter(f"--layout {unknown[0]!r}: one of {', '.join(LAYOUTS)}")
    return {name: layout for name, layout in LAYOUTS.items() if not names or name in names}


async def _inspect(transport: "Transport", chosen: "Settings", request: _Request, options: dict[str, Any]) -> Exit:
    from service.inspector.inspector import Inspector
    from service.keys import Keys

    inspector = Inspector(transport, Keys(chosen.key_prefix, chosen.ready_keys(), chosen.streams()), **options)
    return await _look(inspector, request)


async def _look(inspector: "Inspector", request: _Request) -> Exit:
    """One look, shown when all of it is known."""
    from service.cli.inspected import Shown

    found: Sequence[Any]
    shown = Shown(await inspector.now_ms(), as_json=request.as_json, redraws=request.watch)
    if request.problems:
        every = None if request.queue is not None else await inspector.found()
        shown.problems(await inspector.problems(request.queue, every), request.queue, every)
    elif request.queue is None:
        shown.overview(await inspector.overview())
    elif request.id is None:
        found = await inspector.queue(request.queue)
        shown.queues(found, request.queue)
        return Exit.DONE if found else Exit.FAILED
    else:
        found = await inspector.job(request.queue, request.id)
        shown.jobs(found, request.queue, request.id)
        return Exit.DONE if found else Exit.FAILED
    return Exit.DONE
