"""Tables and bars for people, JSON for machines. Results go to standard output, everything else to standard error."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_FOLDED: Final = 16  #: characters: longer cells of a table may be folded to that, and are read all the same
_PADDING: Final = 3  #: of each column
_WIDE: Final = 10_000  #: characters: what reads from a pipe wants each row on one line


def as_json(value: object) -> None:
    """One line, in ASCII."""
    sys.stdout.write(json.dumps(value) + "\n")


def fields(values: Mapping[str, Any], *, machine: bool) -> None:
    """One thing."""
    if machine:
        as_json(values)
    else:
        _record({name: _cell(value) for name, value in values.items()}, _console())


def table(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Many things, for people. A column is a name in the rows; numbers stand at the right.

    Where a terminal is too narrow for that, one thing below another.
    """
    from rich import box
    from rich.table import Table

    every, console = list(rows), _console()
    cells = [{name: _cell(row.get(name)) for name in columns} for row in every]
    widths = [max(len(name), *(row[name].cell_len for row in cells), 0) for name in columns]
    if sum(min(width, _FOLDED) + _PADDING for width in widths) > console.width:
        for record in cells:
            _record({name: cell for name, cell in record.items() if cell}, console)
            console.print()
        return
    shown = Table(box=box.SIMPLE_HEAD)
    for name in columns:
        number = any(isinstance(row.get(name), int) and not isinstance(row.get(name), bool) for row in every)
        shown.add_column(name.replace("_", " "), justify="right" if number else "left", overflow="fold")
    for record in cells:
        shown.add_row(*record.values())
    console.print(shown)


def line(text: str) -> None:
    """A part of the result in words."""
    sys.stdout.write(text + "\n")


def clear() -> None:
    """For what is drawn again and again, where people look at a terminal."""
    if sys.stdout.isatty():
        sys.stdout.write("\x1b[H\x1b[2J")


def note(text: str) -> None:
    """For people, beside the result."""
    sys.stderr.write(text + "\n")


def problem(told: Mapping[str, Any], *, as_json: bool) -> None:
    """Why there is no result."""
    if as_json:
        sys.stdout.write(json.dumps(told) + "\n")
        return
    retry = f" Try again in {told['retry_after_s']} s." if "retry_after_s" in told else ""
    name = f" ({told['type']})" if str(told.get("type", "")).startswith("urn:") else ""
    note(f"coatcheck: {told['title']}: {told.get('detail', 'no more is known')}{name}.{retry}")


@contextmanager
def progress(
    what: str, total: int | None, *, quiet: bool = False, size: bool = False
) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, for people who wait there; gives a function that says how much was done more."""
    if quiet or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    amount = DownloadColumn() if size else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), amount, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda more: bar.advance(task, more)


def _record(cells: "Mapping[str, Text]", console: "Console") -> None:
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, cell in cells.items():
        grid.add_row(name.replace("_", " "), cell)
    console.print(grid)


def _console() -> "Console":
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else _WIDE, markup=False, highlight=False)


def _cell(value: Any) -> "Text":
    """As text that is not read as markup: names are other people's."""
    from rich.text import Text

    if isinstance(value, bool):
        return Text("yes" if value else "no")
    if isinstance(value, int):
        return Text(f"{value:,}")
    if isinstance(value, float):
        return Text(f"{value:g}")
    return Text("" if value is None else str(value).encode("utf-8", "backslashreplace").decode())
