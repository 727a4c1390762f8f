"""Every knob, once: its name, type, bounds, default and meaning.

The environment spells `settings.dispatcher.lease_s` as `COATCHECK_DISPATCHER__LEASE=60s`, in any case of letters; a
TOML file, named by COATCHECK_CONFIG_FILE, as `lease = "60s"` under `[dispatcher]`. An attribute's `_s` or `_ms` is the
unit that the value is held in, and no part of the setting's name. Names that the environment cannot spell (queues with
capitals or `:`, tenants with `-`) go into the file, or into JSON: `COATCHECK_QUEUES='{"acme:mail": {"max_ready": 9}}'`.
What is more specific wins: the environment over the file, a variable over the JSON of the group that it belongs to.

How values are read and checked is in service/configuration/.
"""

import os
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, PrivateAttr, StringConstraints
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from service.configuration import sources
from service.configuration.backends import BackendSettings, configured
from service.configuration.checks import contradictions
from service.configuration.mistakes import Given, SettingsError, validated
from service.configuration.shape import Path, shape_of
from service.configuration.types import (
    Bytes,
    Frozen,
    HttpUrl,
    Integer,
    KeyPrefix,
    Ms,
    Number,
    QueueName,
    RedisUrl,
    Seconds,
    TenantName,
    between,
    is_tenant,
    name_of,
    setting,
)

Percent = Annotated[Number, between(0, 100)]
Share = Annotated[Number, between(0.01, 1)]
Positive = Annotated[Integer, between(1, 10**9)]
Count = Annotated[Integer, between(1, 1000)]
Filled = Annotated[str, StringConstraints(min_length=1, max_length=512)]
Pause = Annotated[Seconds, between("10ms", "1d")]
WhenUnavailable = Literal["inline", "refuse"]


class _Group(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, alias_generator=name_of, hide_input_in_errors=True
    )


class RedisSettings(_Group):
    url: RedisUrl = setting("redis://localhost:6379/0", "Where Redis is; `rediss://` is with TLS", secret=True)
    timeout_s: Annotated[Seconds, between("100ms", "5m")] = setting("5s", "How long one command may take")
    max_connections: Annotated[Integer, between(4, 10_000)] = setting(64, "Connections of one process at most")
    allow_eviction: bool = setting(False, "Start although Redis may evict keys, which loses jobs")


class HttpSettings(_Group):
    host: Filled = setting("127.0.0.1", "Address to listen on; the container image sets 0.0.0.0")
    port: Annotated[Integer, between(0, 65535)] = setting(8080, "Port to listen on; 0 takes a free one")


class LogSettings(_Group):
    level: Literal["debug", "info", "warning", "error"] = setting("info", "The least severe level that is written")
    format: Literal["json", "console"] = setting("json", "`json` for machines, `console` for people")


class RoutingSettings(_Group):
    offload_to: str = setting("", "The backend for payloads that are large or due late; empty: all stay in Redis")
    rollout_percent: Percent = setting(100, "Share of jobs that may be offloaded")
    offload_min_bytes: Bytes = setting(512, "Smaller payloads always stay in Redis")
    inline_max_bytes: Bytes = setting(16384, "Larger payloads are offloaded")
    inline_max_delay_ms: Ms = setting("15m", "Jobs that are due later are offloaded")
    when_unavailable: WhenUnavailable = setting("inline", "With the backend away: keep in Redis, or `refuse` (503)")
    fallback_max_bytes: Bytes = setting(65536, "The largest payload that Redis keeps for a backend that is away")


class RoutingOverrides(_Group):
    """The same names; what is None is left to the next: a tenant's value wins over a queue's, that over `routing`."""

    offload_to: str | None = setting(None, "As ROUTING__OFFLOAD_TO")
    rollout_percent: Percent | None = setting(None, "As ROUTING__ROLLOUT_PERCENT")
    offload_min_bytes: Bytes | None = setting(None, "As ROUTING__OFFLOAD_MIN_BYTES")
    inline_max_bytes: Bytes | None = setting(None, "As ROUTING__INLINE_MAX_BYTES")
    inline_max_delay_ms: Ms | None = setting(None, "As ROUTING__INLINE_MAX_DELAY")
    when_unavailable: WhenUnavailable | None = setting(None, "As ROUTING__WHEN_UNAVAILABLE")
    fallback_max_bytes: Bytes | None = setting(None, "As ROUTING__FALLBACK_MAX_BYTES")


class TenantSettings(RoutingOverrides):
    pass


class QueueSettings(RoutingOverrides):
    ready_key: Filled | None = setting(
        None,
        "The key that consumers read, if not `<prefix>:{<queue>}:ready`; queues may share one, which may then outgrow "
        "MAX_READY by what the other queues have leased",  # claim knows the leases of its own queue alone
    )
    ready_kind: Literal["list", "stream"] = setting("list", "What the ready key is; a `stream` has consumer groups")
    ready_group: Filled = setting(
        "coatcheck", "Of a stream: the consumer group whose unread and unacknowledged entries count for MAX_READY"
    )
    max_ready: Positive = setting(10_000, "Entries in the ready queue above which due jobs wait")
    max_ready_bytes: Bytes = setting("256MiB", "Size of the ready queue above which due jobs wait")
    max_attempts: Count | None = setting(None, "As RETRY__MAX_ATTEMPTS")


class DispatcherSettings(_Group):
    interval_s: Annotated[Seconds, between("10ms", "1m")] = setting("1s", "The loop looks at least this often")
    # No script takes more than 1,000 members: one that does holds up every other user of Redis.
    batch: Annotated[Integer, between(1, 1000)] = setting(500, "Jobs claimed in one step at most")
    queue_concurrency: Annotated[Integer, between(1, 1000)] = setting(8, "Queues worked on at once")
    lease_s: Annotated[Seconds, between("1s", "1h")] = setting("60s", "After this, another may have a job claimed here")
    fetch_timeout_s: Annotated[Seconds, between("100ms", "30m")] = setting("15s", "For one payload, retries included")
    grace_s: Annotated[Seconds, between("0s", "1h")] = setting("20s", "Time to finish what is held when told to stop")
    overdraft_jobs: Annotated[Integer, between(0, 1000)] = setting(100, "Shorter ready queues are fed with Redis full")
    cool_down_s: Pause = setting("30s", "How long a queue rests whose ready key is of another type")


class RetrySettings(_Group):
    max_attempts: Count = setting(8, "Failures of its own after which a job is dead")
    backoff_min_s: Pause = setting("1s", "Pause after the first failure; it doubles")
    backoff_max_s: Pause = setting("10m", "The longest pause between attempts")
    max_expiries: Count = setting(20, "Lost leases after which a job is dead")


class BreakerSettings(_Group):
    failures: Count = setting(5, "Different jobs that fail, with no success between, open a backend's breaker")
    window_s: Pause = setting("30s", "The time within which these failures count")
    open_s: Pause = setting("30s", "How long a backend is left alone before it is probed")


class MemorySettings(_Group):
    fallback_watermark: Share = setting(0.8, "Share of maxmemory above which Redis stands in for no backend")
    accept_watermark: Share = setting(0.9, "Share of maxmemory above which no job is accepted")


class DeadSettings(_Group):
    max_age_s: Annotated[Seconds, between("1m", "3650d")] = setting("90d", "Dead jobs that are older are trimmed")
    max_count: Positive = setting(100_000, "Dead jobs kept per queue; the oldest are trimmed")


class SweeperSettings(_Group):
    grace_s: Annotated[Seconds, between("1m", "3650d")] = setting(
        "24h", "Younger payloads are never taken for orphans; a job must be accepted within half of it after its upload"
    )


class WorkerSettings(_Group):
    concurrency: Count = setting(10, "Jobs that one worker process runs at once")
    prefetch: Annotated[Integer, between(0, 10_000)] = setting(
        100, "Jobs taken ahead at most, of short ones: what waits here is 50 ms of work, not more"
    )
    grace_s: Annotated[Seconds, between("0s", "1h")] = setting("20s", "Time to finish running jobs when told to stop")
    heartbeat_s: Annotated[Seconds, between("100ms", "10m")] = setting("10s", "How often a worker says that it lives")
    patience_s: Annotated[Seconds, between("500ms", "1h")] = setting(
        "30s", "A worker that was not heard of for so long is taken for dead, and others get its jobs"
    )
    block_s: Annotated[Seconds, between("100ms", "1m")] = setting(
        "5s", "How long an idle worker sleeps in Redis at a stretch; longer with many queues"
    )
    max_retries: Annotated[Integer, between(0, 1000)] = setting(8, "Retries of payloads that do not say it themselves")
    backoff_min_s: Pause = setting("1s", "Longest pause before the first retry; it doubles. The pause is random below")
    backoff_max_s: Pause = setting("10m", "Longest pause between attempts")
    max_deaths: Annotated[Integer, between(2, 1000)] = setting(
        5, "So many workers may die with a job in hand; then it is dead"
    )


class Settings(BaseSettings):
    """All knobs, checked; immutable. Made by `load`; in tests too: `load({"COATCHECK_DISPATCHER__BATCH": "10"})`."""

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", validate_default=True, alias_generator=name_of, hide_input_in_errors=True
    )
    _origins: Mapping[Path, Given] = PrivateAttr(default_factory=dict)

    config_file: str = setting("", "A TOML file with settings; named by the environment alone")
    url: HttpUrl = setting("http://127.0.0.1:8080", "Where clients, `coatcheck enqueue` among them, find the service")
    key_prefix: KeyPrefix = setting("coatcheck", "What every key in Redis begins with")
    max_payload_bytes: Annotated[Bytes, between(1, 2**29)] = setting(16777216, "Larger payloads are refused")
    idempotency_ttl_s: Annotated[Seconds, between("1s", "365d")] = setting("24h", "How long an Idempotency-Key holds")
    label_limit: Annotated[Integer, between(1, 10_000)] = setting(200, "Queues and tenants with metrics of their own")
    redis: RedisSettings = RedisSettings()
    http: HttpSettings = HttpSettings()
    log: LogSettings = LogSettings()
    routing: RoutingSettings = RoutingSettings()
    dispatcher: DispatcherSettings = DispatcherSettings()
    retry: RetrySettings = RetrySettings()
    breaker: BreakerSettings = BreakerSettings()
    memory: MemorySettings = MemorySettings()
    dead: DeadSettings = DeadSettings()
    sweeper: SweeperSettings = SweeperSettings()
    worker: WorkerSettings = WorkerSettings()
    backends: Annotated[Mapping[str, BackendSettings], Frozen] = setting({}, "Payload stores; `redis` is always one")
    tenants: Annotated[Mapping[TenantName, TenantSettings], Frozen] = setting({}, "The tenants there are; none: any")
    queues: Annotated[Mapping[QueueName, QueueSettings], Frozen] = setting({}, "Queues that differ from the others")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Ours alone: pydantic-settings' own sources pass over a misspelt name, and stop at the first bad JSON."""
        return (init_settings,)

    @property
    def origins(self) -> Mapping[Path, Given]:
        """What was typed, and where; a setting that is not here has its default."""
        return self._origins

    def queue(self, name: str) -> QueueSettings:
        """What holds for this queue, configured or not."""
        return self.queues.get(name, _ANY_QUEUE)

    def max_attempts(self, queue: str) -> int:
        """Failures of its own after which a job of this queue is dead."""
        own = self.queue(queue).max_attempts
        return self.retry.max_attempts if own is None else own

    def ready_keys(self) -> dict[str, str]:
        """queue -> ready key, of the queues whose ready key has a name of its own."""
        return {name: queue.ready_key for name, queue in self.queues.items() if queue.ready_key is not None}

    def streams(self) -> dict[str, str]:
        """queue -> consumer group, of the queues whose ready key is a stream."""
        return {name: queue.ready_group for name, queue in self.queues.items() if queue.ready_kind == "stream"}

    def tenant_known(self, name: str) -> bool:
        """May jobs be accepted on behalf of `name`? Those who list their tenants mean the list; with none listed, any
        well-formed name is one."""
        return name in self.tenants if self.tenants else is_tenant(name)


_ANY_QUEUE = QueueSettings()


def surrounded(defaults: Mapping[str, str], decided: Mapping[str, str]) -> Settings:
    """As `load`, with `defaults` where the environment says nothing, and `decided` whatever it says."""
    return load({**defaults, **os.environ, **decided})


def load(environ: Mapping[str, str] = os.environ) -> Settings:
    """The settings that `environ` and the file that it names make. The only place that reads the environment.

    Raises SettingsError with all mistakes, each under the name that was typed; no message holds a secret's value.
    """
    reading = sources.read(environ, shape_of(Settings))
    backends, backend_mistakes = configured(reading.given)
    settings, value_mistakes = validated(Settings, reading.given, backends=backends)
    mistakes = [*reading.mistakes, *backend_mistakes, *value_mistakes]
    mistakes += contradictions(settings, reading.given, mistakes)
    if mistakes:
        raise SettingsError(mistakes)
    settings._origins = reading.given
    return settings
