"""Reads, and nothing else, within bounds: what every layout asks Redis through.

A command that is not in READS, or one that could touch a whole large structure, is refused before it is sent. The ACL
user of ops/redis/inspector.acl may run exactly READS, so that the server refuses the same.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from service.transport import Encodable, Transport

PAGE: Final = 1000  #: entries a command at most: about 0.2 ms of Redis
#: Keys that one SCAN passes at most. Each is somewhere else in memory: 1,000 took over 5 ms on a busy machine.
SCANNED: Final = 500
SEEK: Final = 100_000  #: list entries that one LPOS compares at most: 1.5 ms of Redis
_SPAN_BYTES: Final = 2**20  #: of one string
_SAMPLES: Final = 50  #: of MEMORY USAGE
_AT_ONCE: Final = 250  #: commands in one write: with more, one look would be Redis's only work for milliseconds

Command = tuple[Encodable, ...]


class NotAllowed(Exception):
    """A command that is no bounded read. Nothing was sent. A bug of the layout that asked."""


class OverBudget(Exception):
    """This look has read as much as it may. What was read so far stands."""


@dataclass(slots=True)
class Budget:
    """What one look may cost: one summary, one detail, one job, one queue's problems."""

    commands: int = 3_000
    reply_bytes: int = 16 * 2**20

    def spend(self, commands: int) -> None:
        """Raises OverBudget if so many are not left, or if the replies so far were too large."""
        if commands > self.commands or self.reply_bytes <= 0:
            raise OverBudget("this look has read as much as it may")
        self.commands -= commands

    def received(self, reply: Any) -> None:
        self.reply_bytes -= _size(reply)


class ReadOnly:
    """Sends reads. Raises NotAllowed, OverBudget, and what Transport raises. Things move between two reads."""

    def __init__(self, transport: Transport, budget: Budget | None = None) -> None:
        self._transport = transport
        self.budget = budget or Budget()

    def fresh(self, budget: Budget | None = None) -> "ReadOnly":
        """For another look, with a budget of its own."""
        return ReadOnly(self._transport, budget)

    async def send(self, commands: Sequence[Command], *, raising: bool = False) -> list[Any]:
        """The replies, in order. Unless `raising`, an error reply (WRONGTYPE, mostly) stands in its place."""
        for command in commands:
            check(command)
        self.budget.spend(len(commands))
        replies: list[Any] = []
        for at in range(0, len(commands), _AT_ONCE):
            self.budget.spend(0)  # the replies so far may have been larger than anybody could know
            some = await self._transport.send(commands[at : at + _AT_ONCE], raising=raising)
            self.budget.received(some)
            replies += some
        return replies

    async def ask(self, *command: Encodable) -> Any:
        """The reply to one command. Raises its error reply (redis-py's ResponseError)."""
        return (await self.send([command], raising=True))[0]


def check(command: Command) -> None:
    """Raises NotAllowed for what is no read, and for a read that nothing bounds."""
    name, arguments = _split(command)
    if name not in READS:
        raise NotAllowed(f"{name} is not among the inspector's reads")
    bound = READS[name]
    try:
        bounded = bound is None or bound(arguments)
    except (ValueError, IndexError):
        bounded = False
    if not bounded:
        raise NotAllowed(f"{name} needs a bound here: its arguments let it read a whole structure")


def _split(command: Command) -> tuple[str, list[str]]:
    words = [_word(word) for word in command]
    name, arguments = words[0].upper(), words[1:]
    return (f"{name}|{arguments[0].upper()}", arguments[1:]) if name in _CONTAINERS and arguments else (name, arguments)


def _word(value: Encodable) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _by_index(arguments: Sequence[str]) -> bool:
    first, last = int(arguments[1]), int(arguments[2])
    return (first < 0) == (last < 0) and last - first < PAGE


def _zrange(arguments: Sequence[str]) -> bool:
    options = [word.upper() for word in arguments[3:]]
    if "BYSCORE" not in options and "BYLEX" not in options:
        return _by_index(arguments)
    at = options.index("LIMIT")
    return 0 <= int(options[at + 1]) <= PAGE and 0 <= int(options[at + 2]) <= PAGE


def _option(name: str, most: int) -> Callable[[Sequence[str]], bool]:
    """That this option is given, and is at most so large."""

    def bounded(arguments: Sequence[str]) -> bool:
        options = [word.upper() for word in arguments[1:]]
        return 0 < int(options[options.index(name) + 1]) <= most

    return bounded


def _few(arguments: Sequence[str]) -> bool:
    return len(arguments) <= PAGE + 1


def _some(arguments: Sequence[str]) -> bool:
    return len(arguments) == 1 or abs(int(arguments[1])) <= PAGE


def _span(arguments: Sequence[str]) -> bool:
    first, last = int(arguments[1]), int(arguments[2])
    return (first < 0) == (last < 0) and last - first < _SPAN_BYTES


def _pending(arguments: Sequence[str]) -> bool:
    """The summary, an entry a consumer; or a page."""
    return len(arguments) == 2 or 0 < int(arguments[4]) <= PAGE


#: Every command that an inspector may send, and what bounds it. `X|Y` is a subcommand, as ACL rules spell it.
READS: Final[Mapping[str, Callable[[Sequence[str]], bool] | None]] = {
    "DBSIZE": None,
    "EXISTS": _few,
    "GETRANGE": _span,
    "HEXISTS": None,
    "HGET": None,
    "HLEN": None,
    "HMGET": _few,
    "HRANDFIELD": _some,
    "HSCAN": _option("COUNT", PAGE),
    "HSTRLEN": None,
    "INFO": None,
    "LINDEX": None,
    "LLEN": None,
    "LPOS": _option("MAXLEN", SEEK),
    "LRANGE": _by_index,
    "MEMORY|USAGE": _option("SAMPLES", _SAMPLES),
    "PTTL": None,
    "SCAN": _option("COUNT", SCANNED),
    "SCARD": None,
    "SISMEMBER": None,
    "SMISMEMBER": _few,
    "SRANDMEMBER": _some,
    "SSCAN": _option("COUNT", PAGE),
    "STRLEN": None,
    "TIME": None,
    "TTL": None,
    "TYPE": None,
    "XINFO|GROUPS": None,
    "XLEN": None,
    "XPENDING": _pending,
    "XRANGE": _option("COUNT", PAGE),
    "XREVRANGE": _option("COUNT", PAGE),
    "ZCARD": None,
    "ZCOUNT": None,
    "ZMSCORE": _few,
    "ZRANDMEMBER": _some,
    "ZRANGE": _zrange,
    "ZSCAN": _option("COUNT", PAGE),
    "ZSCORE": None,
}
_CONTAINERS: Final = frozenset(name.partition("|")[0] for name in READS if "|" in name)


def _size(reply: Any) -> int:
    if isinstance(reply, bytes | str):
        return len(reply)
    return sum(map(_size, reply)) if isinstance(reply, list | tuple) else 8
