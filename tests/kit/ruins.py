"""Keys of every layout with any type and any contents, drawn by a seed: queues as nobody should leave them."""

import json
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final

from redis.asyncio import Redis

from service.keys import Keys
from storage_backends.reference import Reference

NOW_MS: Final = 1_764_547_200_000
QUEUE: Final = "q"
UUID: Final = "0193f2a4-7c1e-7b3a-9d57-6f0a1c2b3d4e"
REFERENCES: Final = [str(Reference(backend, QUEUE, NOW_MS, UUID)) for backend in ("redis", "s3")]

_OF: Final = Keys().queue(QUEUE)
_ENVELOPE: Final = {"id": UUID, "task": {"type": "t", "payload": {}}, "queue": QUEUE, "max_retries": 3, "attempt": 0}


def _keys(start: str, **kinds: str) -> dict[str, str]:
    return {f"{start}{name}": kind for kind, names in kinds.items() for name in names.split()}


#: Every key that a layout reads for a queue `q`, a job UUID and a job 1, and the type that it should have.
KEYS: Final[Mapping[str, Mapping[str, str]]] = {
    "coatcheck": {
        **dict.fromkeys((Keys().queues, _OF.delayed, _OF.leases, _OF.dead, _OF.trash), "zset"),
        **dict.fromkeys((_OF.workers, _OF.departed), "zset"),
        **dict.fromkeys((_OF.bodies, _OF.trouble, _OF.moved), "hash"),
        **dict.fromkeys((_OF.ready, _OF.suspects, *map(_OF.inflight, REFERENCES)), "list"),
        _OF.paused: "string",
        _OF.cancelled(UUID): "string",
    },
    "asynq": {
        **_keys("asynq:", set="queues", zset="servers workers"),
        **_keys("asynq:{q}:", list="pending active", zset="lease scheduled retry archived completed aggregation_sets"),
        **_keys("asynq:{q}:", zset="g:team", set="groups", string="paused processed failed", hash=f"t:1 t:{UUID}"),
    },
    "bullmq": {
        **_keys("bull:q:", list="wait active paused", zset="delayed prioritized completed failed waiting-children"),
        **_keys("bull:q:", zset="marker repeat", set="stalled", string="id", hash=f"meta 1 {UUID}", stream="events"),
        **_keys("bull:q:1:", string="lock", list="logs", set="dependencies", hash="processed"),
    },
    "rtq": _keys("rtq:", list="queue:q inflight:worker dead", zset="queue:q:delayed"),
}
#: Names that records have.
FIELDS: Final[Mapping[str, Sequence[str]]] = {
    "coatcheck": ("largest", UUID),
    "asynq": ("msg", "state", "pending_since", "unique_key", "group", "result"),
    "bullmq": (
        *("name", "data", "opts", "timestamp", "delay", "priority", "atm", "ats", "stc", "processedOn", "finishedOn"),
        *("failedReason", "stacktrace", "returnvalue", "progress", "parentKey", "parent", "rjk", "deid"),
        *("paused", "version", "concurrency"),
    ),
    "rtq": ("f",),
}

_NUMBERS: Final = (
    *(0, 1, -1, NOW_MS, NOW_MS // 1000, NOW_MS * 4096, NOW_MS * 1_000_000, 2**53, 1e308, 0.5),
    *(float("inf"), float("-inf")),
)
_ENVELOPES: Final = (
    _ENVELOPE,
    {**_ENVELOPE, "task": None},
    {"envelope": _ENVELOPE, "error": "no", "dead_at": NOW_MS},
    {"envelope": [], "error": {}, "dead_at": "soon"},
)
_IDS: Final[Mapping[str, Sequence[str]]] = {
    "coatcheck": REFERENCES,
    "asynq": [UUID, "1", "q", "team"],
    "bullmq": [UUID, "1", "0:7"],
    "rtq": list(map(json.dumps, _ENVELOPES)),
}
_VALUES: Final = (
    *(b"", b"active", b"pending", b"null", b"[]", b"{}", b"1", b"\x1b[2J", b"NaN", b'{"id":"\\udc00"}', b"\xff\xfe"),
    *(b'{"attempts":', b'{"reason":1}', b'{"at":1e999}', b"[" * 2000, b"9" * 400, b"x" * 5000, b"asynq:{q}:g:team:1"),
    *(str(NOW_MS).encode(), str(NOW_MS * 10**6).encode(), b"\x0a\x04mail\x12\x02{}\x1a\x011\x22\x01q", b"\x0a\xff"),
)
_TYPES: Final = ("string", "list", "set", "zset", "hash", "stream")

Ruin = Mapping[str, tuple[str, Any]]


def ruin(layout: str, seed: int) -> Ruin:
    """Some keys of this layout, most of the right type, with entries and values of which many are nearly right."""
    random = Random(seed)
    there = random.choice((0.2, 0.5, 0.9))
    right = random.choice((0.5, 0.9, 1.0))
    keys = {}
    for name, kind in KEYS[layout].items():
        if random.random() < there:
            chosen = kind if random.random() < right else random.choice(_TYPES)
            keys[name] = chosen, _contents(random, layout, chosen)
    return keys


def _contents(random: Random, layout: str, kind: str) -> Any:
    def value() -> bytes:
        return random.choice(_VALUES) if random.random() < 0.8 else random.randbytes(random.randrange(40))

    def entry() -> bytes:
        return random.choice(_IDS[layout]).encode() if random.random() < 0.7 else value()

    def field() -> bytes:
        return random.choice(FIELDS[layout]).encode() if random.random() < 0.8 else value() or b"f"

    entries = [entry() for _ in range(random.randrange(1, 5))]
    match kind:
        case "string":
            return value()
        case "zset":
            return {each: random.choice(_NUMBERS) for each in entries}
        case "hash" | "stream":
            return {field(): value() for _ in range(random.randrange(1, 9))}
        case _:
            return entries


async def lay(redis: Redis, keys: Ruin) -> None:
    """Into an empty database."""
    await redis.flushall()
    for key, (kind, contents) in keys.items():
        await put(redis, key, kind, contents)


async def put(redis: Redis, key: str, kind: str, contents: Any) -> None:
    """A key of this type with these contents."""
    match kind:
        case "string":
            await redis.set(key, contents)
        case "list":
            await redis.rpush(key, *contents)
        case "set":
            await redis.sadd(key, *contents)
        case "zset":
            await redis.zadd(key, contents)
        case "hash":
            await redis.hset(key, mapping=contents)
        case "stream":
            await redis.xadd(key, contents)
