"""What settings demand of each other."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from service.configuration.mistakes import Given, Mistake, typed
from service.configuration.shape import Path
from service.units import format_duration
from storage_backends.registry import INLINE_NAME

if TYPE_CHECKING:
    from service.settings import Settings

#: The settings that contradict each other, the one to blame first, and why.
Found = Iterator[tuple[tuple[Path, ...], str]]


def contradictions(
    settings: "Settings", given: Mapping[Path, Given], known: Iterable[Mistake] = ()
) -> Iterator[Mistake]:
    """The mistakes that no setting shows alone.

    Says nothing about what is a known mistake itself, nor about anything where the file could not be read: what is
    missing may be in there.
    """
    bad = [mistake.path for mistake in known]
    if ("config_file",) in bad:
        return
    for check in (_times, _watermarks, _offloading, _ready_keys, _room_for_payloads):
        for paths, text in check(settings):
            if not any(_within(path, at) or _within(at, path) for at in bad for path in paths):
                blamed = next((path for path in paths if path in given), paths[0])
                yield Mistake(blamed, typed(given, blamed), text)


def _times(settings: "Settings") -> Found:
    dispatcher, retry, worker = settings.dispatcher, settings.retry, settings.worker
    if dispatcher.lease_s < 2 * dispatcher.fetch_timeout_s:
        # A lease is extended when half of it is over: a longer fetch would lose its job to another dispatcher.
        yield (
            (("dispatcher", "lease"), ("dispatcher", "fetch_timeout")),
            (
                f"LEASE ({_shown(dispatcher.lease_s)}) must be at least twice FETCH_TIMEOUT "
                f"({_shown(dispatcher.fetch_timeout_s)})"
            ),
        )
    for group, of in (("retry", retry), ("worker", worker)):
        if of.backoff_min_s > of.backoff_max_s:
            yield (
                ((group, "backoff_min"), (group, "backoff_max")),
                f"BACKOFF_MIN ({_shown(of.backoff_min_s)}) must not be above BACKOFF_MAX ({_shown(of.backoff_max_s)})",
            )
    if worker.patience_s < 3 * worker.heartbeat_s:
        # One heartbeat may be lost and the next one late, and nobody is taken for dead.
        yield (
            (("worker", "patience"), ("worker", "heartbeat")),
            (
                f"PATIENCE ({_shown(worker.patience_s)}) must be at least three times HEARTBEAT "
                f"({_shown(worker.heartbeat_s)})"
            ),
        )


def _watermarks(settings: "Settings") -> Found:
    memory = settings.memory
    if memory.accept_watermark < memory.fallback_watermark:
        yield (
            (("memory", "accept_watermark"), ("memory", "fallback_watermark")),
            (
                f"ACCEPT_WATERMARK ({memory.accept_watermark}) must not be below FALLBACK_WATERMARK "
                f"({memory.fallback_watermark}): what stands in for a backend is given up first"
            ),
        )


def _offloading(settings: "Settings") -> Found:
    wanted: dict[Path, str | None] = {("routing", "offload_to"): settings.routing.offload_to}
    wanted |= {("tenants", name, "offload_to"): one.offload_to for name, one in settings.tenants.items()}
    wanted |= {("queues", name, "offload_to"): one.offload_to for name, one in settings.queues.items()}
    for path, backend in wanted.items():
        if backend == INLINE_NAME:
            yield (path,), f"{INLINE_NAME!r} is where payloads stay anyway: leave this empty to offload nothing"
        elif backend and backend not in settings.backends:
            there_are = ", ".join(sorted(set(settings.backends) - {INLINE_NAME})) or "none"
            yield (path, ("backends", backend)), f"{backend!r} is no configured backend; configured: {there_are}"


def _ready_keys(settings: "Settings") -> Found:
    """Queues may share one: a consumer of several kinds of jobs then reads one. Our own keys are nobody's."""
    owners: dict[str, str] = {}
    for name, key in settings.ready_keys().items():
        owner = owners.setdefault(key, name)
        if settings.queue(name).ready_kind != settings.queue(owner).ready_kind:
            yield (
                (("queues", name, "ready_kind"), ("queues", name, "ready_key")),
                f"{key!r} is queue {owner!r}'s ready key, too, which is a {settings.queue(owner).ready_kind}",
            )
        if key.startswith(f"{settings.key_prefix}:"):
            yield (
                (("queues", name, "ready_key"), ("key_prefix",)),
                f"{key!r} is among Coatcheck's own keys ({settings.key_prefix}:…)",
            )


def _room_for_payloads(settings: "Settings") -> Found:
    for name, backend in settings.backends.items():
        room = getattr(backend.options, "inflight_bytes", None)
        if isinstance(room, int) and room < settings.max_payload_bytes:
            yield (
                (("backends", name, "inflight_bytes"), ("max_payload_bytes",)),
                (
                    f"INFLIGHT_BYTES ({room}) must not be below MAX_PAYLOAD_BYTES ({settings.max_payload_bytes}): "
                    "the largest payloads could never be fetched"
                ),
            )


def _within(path: Path, group: Path) -> bool:
    return path[: len(group)] == group


def _shown(value_s: float) -> str:
    return format_duration(round(value_s * 1000))
