"""Other people's bytes, shown without harm: capped, as JSON, as text, or as what they are: binary."""

import json
from dataclasses import dataclass
from typing import Any, Final

MAX_BYTES: Final = 512  #: shown of a payload unless asked otherwise
#: Read of a payload at most, whatever is shown: JSON is recognised only if it is whole.
READ_BYTES: Final = 2**20
_PRINTABLE: Final = {"\n", "\r", "\t"}


@dataclass(frozen=True, slots=True)
class Payload:
    """One payload as people may see it."""

    size_bytes: int
    kind: str  #: json, text, binary, empty, or unread: larger than one look may read
    shown: str  #: at most `max_bytes` of it, UTF-8; binary as hexadecimal digits of its first half as many bytes
    cut: bool  #: whether `shown` is not all of it


def rendered(data: bytes, max_bytes: int = MAX_BYTES, size_bytes: int | None = None) -> Payload:
    """`data`, or the beginning of what has `size_bytes`."""
    size = len(data) if size_bytes is None else size_bytes
    if not size:
        return Payload(0, "empty", "", cut=False)
    if len(data) == size and (spelt := _as_json(data)) is not None:
        shown = spelt.encode()[:max_bytes].decode("utf-8", "ignore")
        return Payload(size, "json", shown, cut=len(shown) < len(spelt))
    if _text(data, whole=len(data) == size) is None:
        digits = data[: max_bytes // 2].hex()
        return Payload(size, "binary", digits, cut=len(digits) < 2 * size)
    shown = data[:max_bytes].decode("utf-8", "ignore")
    return Payload(size, "text", shown, cut=len(shown.encode()) < size)


def unread(size_bytes: int) -> Payload:
    """What is too large to be read at all."""
    return Payload(size_bytes, "unread", "", cut=True)


def json_of(data: bytes | str) -> Any:
    """What `data` says. Raises ValueError for what is no JSON, as JSON has it: no NaN, and not nested without end."""
    try:
        return json.loads(data, parse_constant=_refused)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def text_cut(text: bytes | str, max_chars: int = 300) -> str:
    """A short text for a table or a problem's detail, of any bytes: what cannot be printed is spelt `\\x1b`."""
    beginning = text[: 4 * max_chars]
    data = beginning if isinstance(beginning, bytes) else _bytes(beginning)
    shown = data.decode("utf-8", "backslashreplace")
    if not shown.isprintable():
        shown = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in shown)
    return shown if len(shown) <= max_chars else shown[: max_chars - 1] + "…"


def _bytes(text: str) -> bytes:
    """JSON can spell lone surrogates that stand for no byte."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace")


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _text(data: bytes, *, whole: bool) -> str | None:
    """None for what people cannot read."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        if whole or error.reason != "unexpected end of data":  # cut within a character
            return None
        text = data[: error.start].decode("utf-8")
    return text if all(char.isprintable() or char in _PRINTABLE for char in text) else None


def _as_json(data: bytes) -> str | None:
    """The text that says the same and is safe to print: what cannot be printed is spelt `\\u200d`. None for no JSON."""
    try:
        text = data.decode()
        json_of(text)
    except ValueError:
        return None
    return text if text.isprintable() else "".join(map(_spelt, text))


def _spelt(char: str) -> str:
    """Outside of its texts, JSON has no other characters than these; inside, it allows this spelling."""
    if char.isprintable() or char in _PRINTABLE:
        return char
    return json.dumps(char)[1:-1]
