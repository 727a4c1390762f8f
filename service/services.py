"""What the surfaces need of a process. Wiring makes it; a role without `jobs` serves health and metrics only."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from service.census import Census
from service.ledger import Ledger
from service.metrics import Metrics
from service.producer import Producer
from storage_backends.base import StorageBackend


@dataclass(frozen=True, slots=True)
class Health:
    """An answer to a probe. `reasons` say why not; `details` are shown either way, as is a bucket that is not ours."""

    ok: bool
    reasons: Sequence[str] = ()
    details: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobServices:
    """For the calls about jobs and queues."""

    producer: Producer
    ledger: Ledger
    backends: Mapping[str, StorageBackend]  #: by name, `redis` included; asked for payloads that somebody wants to see
    max_payload_bytes: int
    census: Census
    body_budget_bytes: int = 256 * 2**20  #: of requests' bodies in memory at once; more wait


@dataclass(frozen=True, slots=True)
class Services:
    metrics: Metrics
    refresh: Callable[[], Awaitable[None]]  #: before a scrape: reads the gauges about Redis anew, unless they are fresh
    alive: Callable[[], Health]  #: asks nobody: a Redis that is away is no reason for a restart
    ready: Callable[[], Awaitable[Health]]
    jobs: JobServices | None
    version: str
