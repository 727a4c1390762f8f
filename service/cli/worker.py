"""worker: runs an application's handlers on ready queues."""

import importlib
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Annotated, Final

import typer

from service.cli.exits import Exit
from service.cli.run import configured, run

if TYPE_CHECKING:
    from service.settings import Settings
    from service.worker import Worker
    from service.worker.shift import Shift

_SHOWN_EVERY_S: Final = 0.5
_LEFT_RUNNING_S: Final = 2.0  #: after the end, for what handlers left behind


def worker(
    app: Annotated[
        str, typer.Argument(help="Where the Worker is, from here: module:name, as tasks:worker.", show_default=False)
    ],
    *,
    queue: Annotated[
        list[str],
        typer.Option(
            help="A queue, and its weight, 1 if not given: critical=6. Again for each queue.", show_default=False
        ),
    ],
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="Jobs at once; COATCHECK_WORKER__CONCURRENCY if not given.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="An earlier queue always goes before a later one.")] = False,
) -> None:
    """Run the handlers of an application on ready queues, until told to stop. Settings come from the environment.

    SIGTERM, and Ctrl-C, end it: what runs has COATCHECK_WORKER__GRACE to finish, the rest goes back to its queues.
    Serves /healthz, /readyz and /metrics at COATCHECK_HTTP__HOST and __PORT: a port of its own for each process of one
    machine, or 0 for a free one.
    """
    # Process 1 of a container has no default action: until the worker listens for it, SIGTERM would be lost.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(Exit.DONE))
    chosen, weights = configured(), _weights(queue)
    found = _load(app)
    run(lambda: _work(chosen, found, weights, concurrency, strict=strict))


async def _work(
    settings: "Settings", found: "Worker", weights: dict[str, float], concurrency: int | None, *, strict: bool
) -> None:
    from dataclasses import replace

    from service.api.app import create_app
    from service.services import Health
    from service.serving import listen, serve
    from service.wiring import Service
    from service.worker.opening import shift_of

    service = Service(settings, "worker")
    shift = shift_of(service, found, weights, concurrency=concurrency, strict=strict)
    services = service.services()

    def alive() -> Health:
        reasons = [*services.alive().reasons, *shift.alive().reasons]
        return Health(not reasons, reasons)

    async def ready() -> Health:
        asked = await services.ready()
        reasons = [*asked.reasons, *shift.ready().reasons]
        return Health(not reasons, reasons, asked.details)

    async def refresh() -> None:
        shift.measure()
        await services.refresh()

    async def work() -> None:
        await shift.start()
        try:
            await _shown(shift)
        finally:
            await shift.stop()

    seen = replace(services, alive=alive, ready=ready, refresh=refresh)
    listener = listen(settings.http.host, settings.http.port)
    code = Exit.FAILED
    try:
        await serve(service, create_app(seen), listener, meanwhile=work)
        code = Exit.DONE
    finally:
        _ends_soon(code)


def _ends_soon(code: Exit) -> None:
    """All is in order by now. What handlers left running, as threads and tasks that are deaf to cancellation, would
    keep the process for as long as it likes: asyncio and the interpreter wait for these.
    """
    import structlog

    def end() -> None:
        structlog.get_logger(__name__).warning("ended, although something of the handlers goes on")
        os._exit(code)

    timer = threading.Timer(_LEFT_RUNNING_S, end)
    timer.daemon = True
    timer.start()


async def _shown(shift: "Shift") -> None:
    """For ever; on a terminal with a line that says how it goes."""
    import asyncio

    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True)
    if not console.is_terminal:
        await asyncio.Event().wait()
    with Live(console=console, transient=True, auto_refresh=False) as live:
        done = shift.done
        while True:
            await asyncio.sleep(_SHOWN_EVERY_S)
            rate, done = (shift.done - done) / _SHOWN_EVERY_S, shift.done
            live.update(f"{done:,} done · {rate:,.0f}/s · {shift.running} running", refresh=True)


def _weights(queues: list[str]) -> dict[str, float]:
    weights: dict[str, float] = {}
    for text in queues:
        name, _, weight = text.partition("=")
        try:
            weights[name] = float(weight or 1)
        except ValueError as error:
            raise typer.BadParameter(f"--queue {text}: after the = comes a weight") from error
        if not 1e-6 <= weights[name] <= 1e6:
            raise typer.BadParameter(f"--queue {text}: a weight is between 0.000001 and 1000000")
    if len(weights) < len(queues):
        raise typer.BadParameter("a queue is named twice")
    return weights


def _load(app: str) -> "Worker":
    from service.worker import Worker

    module, _, name = app.partition(":")
    if not all(module.split(".")):  # importlib would speak of packages
        raise typer.BadParameter(f"{app}: it begins with a module's full name; tasks:worker is `worker` of tasks.py")
    sys.path.insert(0, os.getcwd())
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module and not module.startswith(f"{error.name}."):
            raise
        raise typer.BadParameter(
            f"there is no module {module!r}, in {os.getcwd()} or installed; tasks:worker is `worker` of tasks.py"
        ) from error
    found = getattr(loaded, name or "worker", None)
    if isinstance(found, Worker):
        return found
    wrong = "there is no such name" if found is None else f"{type(found).__name__}, not a Worker"
    workers = ", ".join(f"{module}:{each}" for each, value in vars(loaded).items() if isinstance(value, Worker))
    raise typer.BadParameter(f"{app}: {wrong}; Workers of that module: {workers or 'none'}")
