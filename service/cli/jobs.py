"""One job: enqueue, job, cancel, reschedule."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from service.cli import show
from service.cli.exits import Exit
from service.cli.remote import Json, Remote, Url, service_at

Reference = Annotated[str, typer.Argument(help="As it was answered when the job was accepted.", show_default=False)]
Delay = Annotated[str | None, typer.Option(help="From now: 250ms, 30s, 15m, 2h, 7d.", show_default=False)]
Due = Annotated[
    str | None, typer.Option(help="2030-01-01T00:00:00Z, or milliseconds since the epoch.", show_default=False)
]
File = Annotated[Path, typer.Argument(help="The payload; - is standard input.", allow_dash=True, dir_okay=False)]
_STDIN = Path("-")


def enqueue(
    file: File = _STDIN,
    *,
    queue: Annotated[str, typer.Option(help="Where the job goes when it is due.", show_default=False)],
    delay: Delay = None,
    due: Due = None,
    tenant: Annotated[str | None, typer.Option(help="On whose behalf.", show_default=False)] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(help="The same key and request get the first answer again.", show_default=False)
    ] = None,
    batch: Annotated[
        bool,
        typer.Option("--batch", help="FILE holds many jobs, a JSON object a line, each with its own delay or due."),
    ] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Accept a job, or, with --batch, many.

    A line of a batch: {"payload": "hello", "delay": "30s"}, or payload_base64, due, tenant, idempotency_key.
    """
    if batch:
        if any(value is not None for value in (delay, due, tenant, idempotency_key)):
            raise typer.BadParameter("--batch: each line says its own delay or due, tenant and idempotency_key")
        from service.cli.batch import enqueue_file

        with service_at(url, as_json=as_json) as remote:
            code = enqueue_file(remote, queue, file, as_json=as_json)
        raise typer.Exit(code)
    payload = _payload(file)
    with service_at(url, as_json=as_json) as remote:
        headers = {"Coatcheck-Tenant": _header(tenant), "Idempotency-Key": _header(idempotency_key)}
        times = {"delay": delay, "due": due}
        show.fields(remote.enqueue(queue, payload, times, headers), machine=as_json)


def job(
    reference: Reference,
    payload: Annotated[bool, typer.Option("--payload", help="Write its payload to standard output instead.")] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Where a job is, and what troubled it."""
    with service_at(url, as_json=as_json) as remote:
        if payload:
            body = remote.fetch("jobs", reference, "payload")
            sys.stdout.buffer.write(body)
            sys.stdout.flush()
        else:
            show.fields(remote.get("jobs", reference), machine=as_json)


def cancel(reference: Reference, url: Url = None, as_json: Json = False) -> None:
    """Take a job back: once it is cancelled, it is never delivered."""
    with service_at(url, as_json=as_json) as remote:
        show.fields(remote.delete("jobs", reference), machine=as_json)


def reschedule(
    reference: Reference, delay: Delay = None, due: Due = None, url: Url = None, as_json: Json = False
) -> None:
    """Give a job another due time; --delay 0s runs it now."""
    with service_at(url, as_json=as_json) as remote:
        show.fields(_rescheduled(remote, reference, delay, due), machine=as_json)


def _rescheduled(remote: Remote, reference: str, delay: str | None, due: str | None) -> dict[str, object]:
    """Digits are sent as a number: JSON tells the two apart, the command line does not."""
    return remote.patch("jobs", reference, delay=delay, due=int(due) if due is not None and due.isdigit() else due)


def _payload(file: Path) -> bytes:
    if file == _STDIN:
        if sys.stdin.isatty():
            show.note("Reading the payload from standard input; Ctrl-D ends it.")
        return sys.stdin.buffer.read()
    try:
        return file.read_bytes()
    except OSError as error:
        show.note(f"coatcheck: {file}: {error.strerror}")
        raise typer.Exit(Exit.MISUSED) from error


def _header(value: str | None) -> bytes | None:
    """As it was typed: the service says what is wrong with it."""
    return None if value is None else value.encode("utf-8", "surrogateescape")
