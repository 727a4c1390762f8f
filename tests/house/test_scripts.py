"""A script's header is its contract, and what it says is what its body does: slots, names, types, flags, library."""

import re
from functools import cached_property
from pathlib import Path

import pytest

import service.acceptance
import service.keys
import service.ledger
import service.worker.ready
from service.scripts import Scripts

SCRIPTS = Path(service.ledger.__file__).parent / "scripts"
LIBRARY = SCRIPTS / "lib"

#: Commands by the type of key that they work on. Any other command of a script fails these tests.
COMMANDS = {
    "ZSET": {"ZADD", "ZCARD", "ZCOUNT", "ZRANGE", "ZREM", "ZREMRANGEBYRANK", "ZMSCORE", "ZSCORE"},
    "HASH": {"HDEL", "HEXISTS", "HGET", "HLEN", "HMGET", "HSET", "HSTRLEN"},
    "LIST": {"LLEN", "LMOVE", "LPUSH", "LRANGE", "LREM", "RPUSH"},
    "STRING": {"GET", "MGET", "SET", "SETNX"},
}
OF_ANY_TYPE = {"DEL", "EXISTS", "PEXPIRE", "TYPE"}
WITHOUT_KEY = {"INFO", "MEMORY", "PUBLISH", "TIME"}
WRITES = {"ZADD", "ZREM", "ZREMRANGEBYRANK", "HDEL", "HSET", "SET", "SETNX", "DEL", "PEXPIRE", "PUBLISH"}
WRITES |= {"LMOVE", "LPUSH", "LREM", "RPUSH", "XACK", "XADD", "XCLAIM", "XDEL", "XGROUP", "XREADGROUP"}


def code_of(text: str) -> str:
    """Without comments; no string of ours holds two dashes."""
    return re.sub(r"--.*", "", text)


def calls(code: str) -> list[tuple[str, str]]:
    """Command and first argument of each call."""
    return re.findall(r"\bcall\('([A-Z]+)'(?:, (?:'[A-Z]+', )?([\w.]+))?", code)


class Piece:
    """A file of `lib/`: what it defines, and its code."""

    def __init__(self, path: Path) -> None:
        self.name = path.stem
        self.code = code_of(path.read_text())
        self.defines = set(re.findall(r"^local (?:function )?(\w+)", self.code, re.MULTILINE))
        self.commands = {command for command, _ in calls(self.code)}


PIECES = [Piece(path) for path in sorted(LIBRARY.glob("*.lua"))]


class Source:
    """One script as its file has it."""

    def __init__(self, path: Path) -> None:
        self.name = path.stem
        self.text = path.read_text()
        self.lines = self.text.splitlines()
        self.header = "\n".join(line for line in self.lines if line.startswith("--"))
        self.code = code_of(self.text)

    def declared(self, table: str) -> tuple[list[int], bool]:
        """Numbers of the fixed slots, and whether some number of others follows."""
        slots = re.findall(rf"^-- {table}\[(\d+)((?:\+\w*)*)\]", self.header, re.MULTILINE)
        return [int(number) for number, more in slots if not more], any(more for _, more in slots)

    def used(self, table: str) -> tuple[list[int], bool]:
        every = re.findall(rf"\b{table}\[([^\]]+)\]", self.code)
        literal = [int(index) for index in every if index.isdigit()]
        return sorted(literal), len(literal) < len(every) or f"ipairs({table})" in self.code

    @cached_property
    def keys(self) -> dict[str, str]:
        """Name -> type of the keys that the header declares one by one."""
        return dict(re.findall(r"^-- KEYS\[\d+\]\s+(\w+)\s+([A-Z]+)\b", self.header, re.MULTILINE))

    @cached_property
    def named(self) -> dict[int, str]:
        """Slot -> local that the body gives it."""
        found: dict[int, str] = {}
        for names, values in re.findall(r"^local ([\w, ]+) = (.+)$", self.code, re.MULTILINE):
            pairs = zip(names.split(", "), re.split(r", (?![^(]*\))", values), strict=False)
            found |= {int(value[5:-1]): name for name, value in pairs if re.fullmatch(r"KEYS\[\d+\]", value.strip())}
        return found

    @cached_property
    def uses(self) -> list[str]:
        listed = re.search(r"^-- Uses\s+(.+)$", self.header, re.MULTILINE)
        assert listed is not None
        return [] if listed[1] == "nothing" else listed[1].split(", ")

    @cached_property
    def runs(self) -> str:
        said = re.search(r"^-- Runs\s+(plain|allow-oom|no-writes)", self.header, re.MULTILINE)
        assert said is not None
        return said[1]

    @property
    def commands(self) -> set[str]:
        """What it may call, its library included."""
        mine = {command for command, _ in calls(self.code)}
        return mine.union(*(piece.commands for piece in PIECES if piece.name in self.uses))


SOURCES = [Source(path) for path in sorted(SCRIPTS.glob("*.lua"))]
each_script = pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)


@each_script
@pytest.mark.parametrize("table", ["KEYS", "ARGV"])
def test_a_body_uses_the_slots_that_its_header_declares(source, table):
    """A slot too many is a key that the ledger hands in for nothing; one too few is read as somebody else's."""
    assert source.used(table) == source.declared(table)


@each_script
def test_a_header_numbers_its_slots_without_a_gap(source):
    for table in ("KEYS", "ARGV"):
        fixed, _ = source.declared(table)
        assert fixed == list(range(1, len(fixed) + 1))


@each_script
def test_a_body_calls_its_keys_what_its_header_calls_them(source):
    """The loader hands in keys by the names of the header: another name in the body would be another key."""
    fixed, _ = source.declared("KEYS")
    assert source.named == dict(zip(fixed, source.keys, strict=True))


@each_script
def test_a_header_gives_each_key_the_type_that_keys_py_gives_it(source):
    table = dict(re.findall(r"<prefix>:(?:\{q\}:)?(\w+)\S*\s+([A-Z]+)\b", service.keys.__doc__ or ""))
    assert {name: table.get(name) for name in source.keys} == source.keys


@each_script
def test_a_body_treats_each_key_as_its_type(source):
    """A command on the wrong type fails in the middle of a script, and nothing rolls it back."""
    for command, key in calls(source.code):
        if command in OF_ANY_TYPE | WITHOUT_KEY:
            continue
        kinds = [kind for kind, commands in COMMANDS.items() if command in commands]
        assert kinds, f"{command} is not known to this test"
        if key in source.keys:
            assert [source.keys[key]] == kinds, f"{command} {key}"


@each_script
def test_a_script_carries_exactly_the_library_that_it_uses(source):
    """A piece that is missing fails only when it is called, in the middle of the script."""
    words = set(re.findall(r"\w+", source.code))
    assert sorted(source.uses) == sorted(piece.name for piece in PIECES if piece.defines & words)


@each_script
def test_a_script_that_only_reads_says_so(source):
    """Redis holds it to that, and lets it run where nothing may be written."""
    assert (source.runs == "no-writes") == (not source.commands & WRITES)


@each_script
def test_only_what_brings_payloads_in_is_refused_when_redis_is_full(source):
    """Everything else moves or frees: due jobs flow, and owners can cancel, when Redis is full."""
    fields = re.findall(r"^-- ARGV\[\S+\]\s+\w+ a job: (.+)$", source.header, re.MULTILINE)
    brings_bytes = any({"body", "payload"} & set(re.split(r"\W+", listed)) for listed in fields)
    assert (source.runs == "plain") == brings_bytes


@each_script
def test_lines_are_at_most_120_wide(source):
    assert [line for line in source.lines if len(line) > 120] == []


@pytest.mark.parametrize("path", sorted(LIBRARY.glob("*.lua")), ids=lambda path: path.stem)
def test_lines_of_the_library_are_at_most_120_wide(path):
    assert [line for line in path.read_text().splitlines() if len(line) > 120] == []


@each_script
def test_a_script_that_writes_first_asks_the_type_of_its_sets_and_hashes(source):
    """The loader sees to it by the header: nothing rolls back what was written before an error."""
    asks = {"ZSET": "ZCARD", "HASH": "HLEN"}
    asked = [
        f"redis.call('{asks[kind]}', KEYS[{slot}])" for slot, kind in enumerate(source.keys.values(), 1) if kind in asks
    ]
    first = Scripts()[source.name].source.decode().splitlines()[1]
    assert first == ("" if source.runs == "no-writes" else " ".join(asked))


RUNNERS = (service.ledger, service.acceptance, service.worker.ready)


def test_every_script_is_run_by_the_ledger_or_by_workers():
    """A transition that nobody can start is one that nobody maintains."""
    sources = "".join(Path(module.__file__).read_text() for module in RUNNERS)
    called = set(re.findall(r'_run(?:ner\.run)?\(\s*"(\w+)"', sources))
    assert called == {script.name for script in Scripts()}
