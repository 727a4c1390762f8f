"""The `coatcheck` command. One file a noun; each command imports what it needs when it runs.

exits.py    exit codes, the only home that they have
run.py      serve, dev
worker.py   worker: an application's handlers on ready queues
jobs.py     enqueue, job, cancel, reschedule
batch.py    enqueue --batch: a file of jobs
queues.py   queues, jobs, pause, resume
dead.py     dead list, dead revive, dead purge
local.py    route, config: from settings alone, without a running service
inspect.py  inspect: asks Redis itself, by reads alone; inspected.py shows what it tells
advise.py   advise: samples Redis itself, by reads alone
asking.py   how these two reach Redis
remote.py   how the others reach the service
show.py     tables and bars for people, JSON for machines
"""

import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from service.cli import advise, dead, inspect, jobs, local, queues, run, worker
from service.cli.exits import CODES
from service.cli.run import Role

__all__ = ["Role", "app", "main"]

app = typer.Typer(
    name="coatcheck",
    help="A delayed-job service: Redis keeps the order, S3 keeps the bytes.\n\n"
    "What asks a running service finds it at --url, or at COATCHECK_URL.",
    epilog=CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"coatcheck {version('coatcheck')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[  # its callback answers
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options of the command itself; its help is above."""


for command in (
    *(run.serve, run.dev, worker.worker),
    *(jobs.enqueue, jobs.job, jobs.cancel, jobs.reschedule),
    *(queues.queues, queues.jobs, queues.pause, queues.resume),
    *(local.route, local.config),
    inspect.inspect,
    advise.advise,
):
    app.command()(command)
app.add_typer(dead.app, name="dead")


def main() -> None:
    """The console script. What a terminal's encoding lacks is spelt there, as `\\xb7`, and ends no command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    app()
