"""A file of jobs, a JSON object a line, sent in requests of bounded size."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import typer

from service.cli import show
from service.cli.exits import Exit
from service.cli.remote import Failed, Remote, exit_of

_LINES: Final = 1000  #: a request; the service takes 10,000, and a bar should move
_BYTES: Final = 4 * 2**20
_SHOWN: Final = 20  #: failures listed for people; --json has all


def enqueue_file(remote: Remote, queue: str, file: Path, *, as_json: bool) -> Exit:
    """Sends every line; one that fails stops no other. Shows what became of them, and says how to exit.

    With JSON: an object a line, as the service answers, numbered as in the file. Raises Failed if a request as a whole
    failed, after it was shown how many jobs had been accepted before.
    """
    total = None if str(file) == "-" else _opened_size(file)
    accepted, refused = 0, list[dict[str, Any]]()
    with _opened(file) as lines, show.progress("Sending", total, quiet=as_json, size=True) as advance:
        first = 1
        for chunk in _chunks(lines):
            try:
                answers = remote.enqueue_lines(queue, b"".join(chunk))
            except Failed:
                show.note(f"Jobs accepted: {accepted:,}; then, from line {first:,} on, a request failed")
                raise
            for answer in answers:
                answer["line"] += first - 1
                accepted += "problem" not in answer
                if "problem" in answer:
                    refused.append(answer)
                if as_json:
                    show.as_json(answer)
            first += len(chunk)
            advance(sum(map(len, chunk)))
    if not as_json:
        _summary(accepted, refused)
    return max((exit_of(answer["problem"]) for answer in refused), default=Exit.DONE, key=_gravity)


def _chunks(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    chunk: list[bytes] = []
    size = 0
    for line in lines:
        if chunk and (len(chunk) == _LINES or size + len(line) > _BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(line)
        size += len(line)
    if chunk:
        yield chunk


def _summary(accepted: int, refused: list[dict[str, Any]]) -> None:
    show.note(f"Jobs accepted: {accepted:,}, refused: {len(refused):,}")
    if refused:
        rows = [{"line": it["line"], **it["problem"]} for it in refused[:_SHOWN]]
        show.table(["line", "status", "type", "detail"], rows)
    if len(refused) > _SHOWN:
        show.note(f"… and {len(refused) - _SHOWN:,} more; --json shows all")


def _gravity(code: Exit) -> int:
    """Of several: what no repetition helps is said before what it does."""
    return (Exit.DONE, Exit.LATER, Exit.FAILED, Exit.MISUSED).index(code)


def _opened(file: Path) -> BinaryIO:
    if str(file) == "-":
        return sys.stdin.buffer
    return file.open("rb")


def _opened_size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError as error:
        show.note(f"coatcheck: {file}: {error.strerror}")
        raise typer.Exit(Exit.MISUSED) from error
