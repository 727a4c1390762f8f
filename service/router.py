"""StorageRouter: where a payload goes. Pure: health and memory come in as facts.

    offload_to is empty, or the job is outside rollout_percent  -> Redis     disabled
    payload smaller than offload_min_bytes                      -> Redis     tiny
    payload larger than inline_max_bytes                        -> offload   large
    delay over inline_max_delay_ms                              -> offload   long
    anything else                                               -> Redis     small_and_short

The first line that fits decides. If it says offload and that backend is unavailable:

    when_unavailable is inline, payload at most fallback_max_bytes,
    Redis below the memory watermark                            -> Redis     fallback
    anything else                                               -> refused   BackendUnavailable

Each field is settable for a tenant, a queue and overall, and the most specific wins field by field, in this order: a
tenant's contract beats a queue's tuning. Readers never come here: a reference says itself which backend to ask.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from hashlib import blake2b
from typing import Final, Literal, get_args

from service.errors import BackendUnavailable

INLINE: Final = "redis"  #: the one inline backend; no other may have this name
Reason = Literal["disabled", "tiny", "large", "long", "small_and_short", "fallback"]
Source = Literal["tenant", "queue", "default"]
WhenUnavailable = Literal["inline", "refuse"]

_HASH_BYTES = 8
_HASHES = 1 << 8 * _HASH_BYTES
_CACHED = 4096  #: pairs of configured tenant and configured queue; beyond that, resolving anew costs about 5 us


@dataclass(frozen=True, slots=True)
class RoutingRules:
    """What a tenant or a queue sets for itself; None: not set here. Raises ValueError for a value that cannot be."""

    offload_to: str | None = None  #: a backend's name, "" = offloading is off
    rollout_percent: float | None = None  #: of the jobs; raising it only adds jobs
    offload_min_bytes: int | None = None
    inline_max_bytes: int | None = None
    inline_max_delay_ms: int | None = None
    when_unavailable: WhenUnavailable | None = None
    fallback_max_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.offload_to == INLINE:
            raise ValueError(f"offload_to is {INLINE!r}: leave it empty to keep payloads in Redis")
        if self.rollout_percent is not None and not 0 <= self.rollout_percent <= 100:
            raise ValueError(f"rollout_percent is {self.rollout_percent}, not within 0 and 100")
        if self.when_unavailable not in (None, *get_args(WhenUnavailable)):
            raise ValueError(f"when_unavailable is {self.when_unavailable!r}, not one of {get_args(WhenUnavailable)}")
        for name in ("offload_min_bytes", "inline_max_bytes", "inline_max_delay_ms", "fallback_max_bytes"):
            if (getattr(self, name) or 0) < 0:
                raise ValueError(f"{name} is negative")


@dataclass(frozen=True, slots=True)
class Resolved:
    """The rules in force: every field set. The defaults are those of the settings."""

    offload_to: str = ""
    rollout_percent: float = 100.0
    offload_min_bytes: int = 512  #: a reference alone costs Redis 176 bytes
    inline_max_bytes: int = 16_384
    inline_max_delay_ms: int = 900_000
    when_unavailable: WhenUnavailable = "inline"
    fallback_max_bytes: int = 65_536

    def __post_init__(self) -> None:
        RoutingRules(**{name: getattr(self, name) for name in FIELDS})  # the same limits hold


FIELDS: Final = tuple(field.name for field in fields(RoutingRules))


@dataclass(frozen=True, slots=True)
class Facts:
    """What a decision depends on. Sizes are bytes as stored."""

    payload_bytes: int
    delay_ms: int  #: zero or less: due now
    tenant: str | None
    queue: str
    uuid: str
    available: Container[str]  #: names of the backends that can be written to now
    redis_memory_ratio: float = 0.0  #: used / maxmemory; 0 without a maxmemory


@dataclass(frozen=True, slots=True)
class Decision:
    """Which backend takes the payload, and by which rule."""

    backend: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Setting:
    """One field in force, and who set it."""

    name: str
    value: str | float
    source: Source


@dataclass(frozen=True, slots=True)
class Explanation:
    """What `decide` answers to the same facts, and why. `decision` is None if it refuses; `rule` says what decided."""

    settings: tuple[Setting, ...]
    preferred: Decision  #: before availability is asked
    decision: Decision | None
    rule: str


class StorageRouter:
    """Decides for accepted jobs. Immutable; `tenants` and `queues` are read once.

    `memory_watermark`: share of maxmemory from which on Redis no longer stands in for an unavailable backend.
    `retry_after_s`: what a refused caller is told; health is asked anew at every job, so it need not be exact.
    """

    def __init__(
        self,
        defaults: Resolved,
        *,
        tenants: Mapping[str, RoutingRules] | None = None,
        queues: Mapping[str, RoutingRules] | None = None,
        memory_watermark: float = 0.8,
        retry_after_s: float = 5.0,
    ) -> None:
        self._defaults = defaults
        self._tenants = dict(tenants or {})
        self._queues = dict(queues or {})
        self._memory_watermark = memory_watermark
        self._retry_after_s = retry_after_s
        self._cached = lru_cache(maxsize=_CACHED)(self._resolve)

    def decide(self, facts: Facts) -> Decision:
        """Where this job's payload goes. Raises BackendUnavailable if it may go nowhere now."""
        rules = self.resolved(facts.tenant, facts.queue)
        preferred = _preferred(rules, facts)
        backend = preferred.backend
        if backend == INLINE or backend in facts.available:
            return preferred
        obstacle = self._obstacle(rules, facts)
        if obstacle:
            raise BackendUnavailable(f"{backend} is unavailable, and {obstacle}", retry_after_s=self._retry_after_s)
        return _FALLBACK

    def explain(self, facts: Facts) -> Explanation:
        """`decide`, with its reasons: for people, not for the path of every job."""
        rules = self.resolved(facts.tenant, facts.queue)
        preferred = _preferred(rules, facts)
        settings = tuple(self._setting(name, facts.tenant, facts.queue) for name in FIELDS)
        try:
            decision = self.decide(facts)
        except BackendUnavailable as refusal:
            return Explanation(settings, preferred, None, f"{_rule(preferred.reason, rules, facts)}; {refusal}")
        rule = _rule(preferred.reason, rules, facts)
        if decision != preferred:
            rule += f"; {preferred.backend} is unavailable, and when_unavailable is inline"
        return Explanation(settings, preferred, decision, rule)

    def resolved(self, tenant: str | None, queue: str) -> Resolved:
        """The rules in force for this pair. All names without rules of their own share one entry."""
        return self._cached(tenant if tenant in self._tenants else None, queue if queue in self._queues else None)

    def _resolve(self, tenant: str | None, queue: str | None) -> Resolved:
        return Resolved(**{name: self._setting(name, tenant, queue).value for name in FIELDS})  # type: ignore[arg-type]  # by name

    def _setting(self, name: str, tenant: str | None, queue: str | None) -> Setting:
        of_tenant = self._tenants.get(tenant) if tenant is not None else None
        of_queue = self._queues.get(queue) if queue is not None else None
        layers: tuple[tuple[Source, RoutingRules | None], ...] = (("tenant", of_tenant), ("queue", of_queue))
        for source, rules in layers:
            value = getattr(rules, name, None)
            if value is not None:
                return Setting(name, value, source)
        return Setting(name, getattr(self._defaults, name), "default")

    def _obstacle(self, rules: Resolved, facts: Facts) -> str:
        """Why Redis may not stand in; empty if it may."""
        if rules.when_unavailable == "refuse":
            return "when_unavailable is refuse"
        if facts.payload_bytes > rules.fallback_max_bytes:
            return f"{facts.payload_bytes} bytes are over fallback_max_bytes {rules.fallback_max_bytes}"
        if facts.redis_memory_ratio >= self._memory_watermark:
            return f"Redis is at its memory watermark {self._memory_watermark}"
        return ""


_INLINE: Final[Mapping[Reason, Decision]] = {
    reason: Decision(INLINE, reason) for reason in ("disabled", "tiny", "small_and_short", "fallback")
}
_FALLBACK: Final = _INLINE["fallback"]


def _preferred(rules: Resolved, facts: Facts) -> Decision:
    """The table above, without its lower half."""
    if not rules.offload_to or not in_rollout(facts.uuid, rules.rollout_percent):
        return _INLINE["disabled"]
    if facts.payload_bytes < rules.offload_min_bytes:
        return _INLINE["tiny"]
    if facts.payload_bytes > rules.inline_max_bytes:
        return Decision(rules.offload_to, "large")
    if facts.delay_ms > rules.inline_max_delay_ms:
        return Decision(rules.offload_to, "long")
    return _INLINE["small_and_short"]


def in_rollout(uuid: str, percent: float) -> bool:
    """Whether this job is among the first `percent` of all. The same answer in every process and release; a job that is
    in at some percentage is in at every higher one."""
    if percent >= 100:
        return True
    hashed = int.from_bytes(blake2b(uuid.encode(), digest_size=_HASH_BYTES).digest())
    return hashed < percent / 100 * _HASHES


def _rule(reason: Reason, rules: Resolved, facts: Facts) -> str:
    match reason:
        case "disabled" if not rules.offload_to:
            return "offload_to is empty"
        case "disabled":
            return f"the job's uuid is outside rollout_percent {rules.rollout_percent:g}"
        case "tiny":
            return f"{facts.payload_bytes} bytes are less than offload_min_bytes {rules.offload_min_bytes}"
        case "large":
            return f"{facts.payload_bytes} bytes are more than inline_max_bytes {rules.inline_max_bytes}"
        case "long":
            return f"a delay of {facts.delay_ms} ms is over inline_max_delay_ms {rules.inline_max_delay_ms}"
        case _:
            return "neither large nor long"
