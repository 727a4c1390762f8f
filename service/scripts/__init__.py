"""The Lua scripts, one a transition, and their loader.

A script's header is its contract, and the loader reads it: `Runs` gives the script's flags, `Uses` the pieces of `lib/`
that go before its body, `KEYS[n]` the names and types of the keys that the ledger hands in. tests/house/test_scripts.py
holds headers to bodies.

A script is not rolled back: an error after its first write leaves half a transition, and a job in no set. So every
script that writes begins, by the loader, with a read of each sorted set and hash that its header names: where a hand
put another type, it ends there, before any write, and the queue stands still until that key is mended. The ready key
is somebody else's: scripts that push ask its type themselves, and answer `unusable`.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).parent
_KEY = re.compile(r"^-- KEYS\[(\d+)\]\s+(\w+)\s+(\w+)", re.MULTILINE)
_RUNS = re.compile(r"^-- Runs\s+(plain, then allow-oom|plain|allow-oom|no-writes)", re.MULTILINE)
_USES = re.compile(r"^-- Uses\s+(\w+(?:, \w+)*)$", re.MULTILINE)

#: By type, what fails on a key of another type and costs nothing on a key of this one.
_ASKS = {"ZSET": "ZCARD", "HASH": "HLEN"}

#: Redis refuses a `plain` script as a whole, before its first command, when it is at maxmemory.
_SHEBANG = {"plain": "#!lua", "allow-oom": "#!lua flags=allow-oom", "no-writes": "#!lua flags=no-writes"}


@dataclass(frozen=True, slots=True)
class Script:
    """One script as it is sent to Redis."""

    name: str
    source: bytes
    sha: str  #: SHA-1 in hex, by which EVALSHA calls it
    keys: tuple[str, ...]  #: names of its fixed keys, in order: attributes of keys.Keys or keys.QueueKeys, or handed in


class Scripts:
    """All scripts by name; `deliver_overdraft` is `deliver` allowed to run when Redis is full."""

    def __init__(self, directory: Path = _HERE) -> None:
        self._by_name = {script.name: script for path in sorted(directory.glob("*.lua")) for script in _variants(path)}

    def __getitem__(self, name: str) -> Script:
        return self._by_name[name]

    def __iter__(self) -> Iterator[Script]:
        return iter(self._by_name.values())


def _variants(path: Path) -> Iterator[Script]:
    text = path.read_text(encoding="utf-8")
    runs, uses = _RUNS.search(text), _USES.search(text)
    if runs is None or uses is None:
        raise ValueError(f"{path.name}: the header lacks Runs or Uses")
    names = [] if uses[1] == "nothing" else uses[1].split(", ")
    library = "".join((path.parent / "lib" / f"{name}.lua").read_text(encoding="utf-8") for name in names)
    keys = tuple(name for _, name, _ in _keys(text))
    for kind in runs[1].split(", then "):
        asked = "" if kind == "no-writes" else _asked(text)
        source = f"{_SHEBANG[kind]}\n{asked}\n{library}{text}".encode()
        name = f"{path.stem}_overdraft" if "then" in runs[1] and kind == "allow-oom" else path.stem
        yield Script(name, source, hashlib.sha1(source, usedforsecurity=False).hexdigest(), keys)


def _keys(text: str) -> list[tuple[int, str, str]]:
    """Slot, name and type of each fixed key, in order."""
    return sorted((int(number), name, kind) for number, name, kind in _KEY.findall(text))


def _asked(text: str) -> str:
    return " ".join(f"redis.call('{_ASKS[kind]}', KEYS[{slot}])" for slot, _, kind in _keys(text) if kind in _ASKS)
