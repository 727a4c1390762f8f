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
    text = _text(data, whole=len(data) == size)
    if text is None:
        return Payload(size, "binary", data[: max_bytes // 2].hex(), cut=size > max_bytes // 2)
    kind = "json" if len(data) == size and _is_json(text) else "text"
    shown = data[:max_bytes].decode("utf-8", "ignore")
    return Payload(size, kind, shown, cut=len(shown.encode()) < size)


def unread(size_bytes: int) -> Payload:
    """What is too large to be read at all."""
    return Payload(size_bytes, "unread", "", cut=True)


def json_of(data: bytes | str) -> Any:
    """What `data` says. Raises ValueError for what is no JSON, as JSON has it: no NaN, and not nested without end."""
    try:
        return json.loads(data, parse_constant=_refused)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def text_cut(data: bytes | str, max_chars: int = 200) -> str:
    """A short text for a table or a problem's detail, of any bytes. What is no UTF-8 is spelt `\\xff`."""
    text = data.decode("utf-8", "backslashreplace") if isinstance(data, bytes) else data
    return text if len(text) <= max_chars else text[: max_chars - 1] + "…"


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _text(data: bytes, *, whole: bool) -> str | None:
    """None for what people cannot read."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        if whole or error.start < len(data) - 3:  # the end may have been cut within a character
            return None
        text = data[: error.start].decode("utf-8")
    return text if all(char.isprintable() or char in _PRINTABLE for char in text) else None


def _is_json(text: str) -> bool:
    try:
        json_of(text)
    except ValueError:
        return False
    return True
