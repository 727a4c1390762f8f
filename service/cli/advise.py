"""Is Redis full of delayed payloads: advise, which asks Redis itself, by reads alone."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from service.cli import show
from service.cli.asking import RedisUrl, asked
from service.cli.exits import Exit
from service.cli.local import checked, settings
from service.cli.remote import Json

if TYPE_CHECKING:
    from service.advisor.costs import Prices
    from service.advisor.report import Question, Report

_SETS: Final = 20  #: shown in the table; JSON has all
_TRIED: Final = 20  #: sizes at most, and delays: each pair of them is a row
_DEAREST: Final = 1_000_000.0  #: dollars; no price is more, or figures would be infinite
_LEAST_BYTES: Final = 2**20  #: with less no job might be read at all


def advise(
    *,
    redis: RedisUrl = None,
    sample: Annotated[
        int, typer.Option(min=100, max=1_000_000, help="Jobs to read; more narrow the intervals.")
    ] = 10_000,
    most_bytes: Annotated[
        str, typer.Option(help="What may be read of jobs that are their own payload, 1MiB or more.")
    ] = "64MiB",
    sizes: Annotated[str | None, typer.Option(help="inline_max_bytes to try: 4KiB,64KiB.", show_default=False)] = None,
    delays: Annotated[str | None, typer.Option(help="inline_max_delay to try: 15m,1d.", show_default=False)] = None,
    at_most: Annotated[
        str | None, typer.Option(help="What delayed jobs may take of Redis: 2GiB.", show_default=False)
    ] = None,
    offload_to: Annotated[
        str | None, typer.Option(help="The backend to name. Else ROUTING__OFFLOAD_TO, or s3.")
    ] = None,
    redis_gib: Annotated[float, typer.Option(min=0, max=_DEAREST, help="Dollars for a GiB of Redis, a month.")] = 11.5,
    s3_gib: Annotated[float, typer.Option(min=0, max=_DEAREST, help="Dollars for a GiB in S3, a month.")] = 0.023,
    put_thousand: Annotated[
        float, typer.Option(min=0, max=_DEAREST, help="Dollars for a thousand PUT requests.")
    ] = 0.005,
    get_thousand: Annotated[
        float, typer.Option(min=0, max=_DEAREST, help="Dollars for a thousand GET requests.")
    ] = 0.0004,
    delete_thousand: Annotated[
        float, typer.Option(min=0, max=_DEAREST, help="Dollars for a thousand deleted objects.")
    ] = 0.0,
    html: Annotated[Path | None, typer.Option(help="Write a picture into this file.", show_default=False)] = None,
    seed: Annotated[int | None, typer.Option(help="Draw the same sample again.", show_default=False)] = None,
    as_json: Json = False,
) -> None:
    """How much of Redis is delayed payload, and what moving it would save: Coatcheck's, Asynq's, BullMQ's,
    redis_task_queue's, Celery's, RQ's, Sidekiq's.

    Reads a random sample, asks Redis and no service, and changes nothing there. Works on a replica, and for a user who
    may only read (ops/redis/inspector.acl). In brackets stands what is 95% sure.
    """
    from service.advisor.costs import Prices
    from service.advisor.report import report
    from service.advisor.survey import Extent, survey
    from service.keys import Keys

    prices = Prices(redis_gib, s3_gib, put_thousand, get_thousand, delete_thousand)
    question = _question(sizes, delays, at_most, offload_to, prices)
    extent = Extent(sample, checked(_enough_bytes, most_bytes), seed)
    told = report(
        asked(lambda at, chosen: survey(at, Keys(chosen.key_prefix), extent), redis, as_json=as_json), question
    )
    _show(told, as_json=as_json)
    if html is not None:
        _write(told, html)


def _question(
    sizes: str | None, delays: str | None, at_most: str | None, offload_to: str | None, prices: "Prices"
) -> "Question":
    from service.advisor.grid import DELAYS_MS, SIZES_BYTES, Thresholds
    from service.advisor.report import Question
    from service.units import parse_size_bytes

    routing = settings().routing
    return Question(
        prices,
        _tried("--sizes", parse_size_bytes, sizes) if sizes else SIZES_BYTES,
        _tried("--delays", _delay_ms, delays) if delays else DELAYS_MS,
        Thresholds(routing.inline_max_bytes, routing.inline_max_delay_ms, routing.offload_min_bytes),
        checked(_target, offload_to) if offload_to else routing.offload_to or "s3",
        checked(parse_size_bytes, at_most) if at_most else None,
    )


def _tried(option: str, parse: Callable[[str], int], texts: str) -> list[int]:
    every = [checked(parse, text) for text in texts.split(",")]
    if len(every) > _TRIED:
        raise typer.BadParameter(f"{option}: {len(every):,} values, and each pair is a row; {_TRIED} at most")
    return every


def _target(name: str) -> str:
    """What is told to be pasted into a shell must be a name."""
    from storage_backends.reference import check_backend

    if check_backend(name) == "redis":
        raise ValueError("'redis' is where payloads are kept that are not offloaded")
    return name


def _enough_bytes(text: str) -> int:
    from service.units import parse_size_bytes

    size = parse_size_bytes(text)
    if size < _LEAST_BYTES:
        raise ValueError(f"--most-bytes: {text} is less than 1MiB")
    return size


def _delay_ms(text: str) -> int:
    from service.units import parse_duration_ms

    ms = parse_duration_ms(text)
    if ms < 0:
        raise ValueError(f"{text!r} is negative")
    return ms


def _write(report: "Report", path: Path) -> None:
    """After all was shown: what was read is not lost with the file. Said beside the result, which may be JSON."""
    from service.advisor.picture import page
    from service.inspector.payloads import text_cut

    try:
        path.write_text(page(report), encoding="utf-8")
    except OSError as error:
        show.problem({"title": "Not written", "detail": f"{text_cut(str(path))}: {error.strerror}"}, as_json=False)
        raise typer.Exit(Exit.FAILED) from error
    show.note(f"The picture is in {text_cut(str(path))}")


def _show(report: "Report", *, as_json: bool) -> None:
    from service.advisor import tables
    from service.advisor.report import plain

    if as_json:
        show.as_json(plain(report))
        return
    show.fields(tables.summary(report), machine=False)
    if report.survey.sets:
        for rows in (tables.sets(report, _SETS), tables.distribution(report), tables.grid(report)):
            if rows:
                show.table(list(rows[0]), rows)
        show.line(tables.advice(report))
    elif report.problems:
        show.line("No delayed job was found, but not all could be looked at.")
    else:
        show.line("There is no delayed job in any layout that is known here.")
    for line in report.problems:
        show.note(f"Note: {line}")
