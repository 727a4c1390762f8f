"""Builds everything of one process, from settings alone, and closes it in reverse. Alone in knowing everybody.

Settings ─► pool ─► Transport ─► Ledger ─┬─► Producer ◄─ StorageRouter, Uploads ◄─ Backends: Guarded(Metered(…))
                                         ├─► Fetcher ◄─ Depots ◄──────────────────── the same
                                         ├─► Dispatcher ◄─ Agenda, Trash
                                         └─► Housekeeping, Gauges ◄─ Census
"""

import asyncio
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Final

import structlog

from service.agenda import Agenda
from service.backends import Backends
from service.catalogue import LATENESS_BUCKETS_MS
from service.census import Census
from service.clock import Clock, ServerClock, SystemClock
from service.configuration.routing import router_of
from service.dispatcher import Dispatcher, Pace
from service.errors import RetryLater
from service.fetcher import Depot, Fetcher
from service.gauges import Gauges
from service.housekeeping import INTERVAL_S as HOUSEKEEPING_S, Housekeeping
from service.intake import Intake
from service.keys import Keys
from service.ledger import Ledger
from service.loops import HANGS_AFTER_S, Loop, Loops
from service.memory import INTERVAL_S as MEMORY_S, RedisMemory
from service.metrics import Metrics
from service.overdue import Overdue
from service.preflight import Gated, wait_for_redis
from service.producer import Producer
from service.router import INLINE
from service.runner import TRIES, Runner
from service.scripts import Scripts
from service.services import Health, JobServices, Services
from service.settings import Settings
from service.transport import Transport, client, connect
from service.trash import Trash
from service.uploads import Uploads
from service.wake import Wake
from storage_backends.base import Context

Round = Callable[[], Awaitable[float | None]]
LOOPS: Final = (
    *("memory", "probe", "dispatch", "trash", "wake", "extend", "housekeeping", "ownership"),
    *("take", "listen", "heartbeat", "reap", "unload"),  # of workers
)
_PROBE_S: Final = 1.0  #: how often an open breaker's time is looked at
_OWNERSHIP_S: Final = 60.0  #: how often it is asked whose a backend's place is: one small read
_WORKERS_MEMORY_S: Final = 5.0  #: workers put back what was in Redis before
_PING_S: Final = 2.0  #: probes are usually given up after a few seconds
#: A stop is over so long after the grace period, whatever hangs: leases are given back, loops and backends closed. Who
#: starts the process must not kill it earlier (ops/kubernetes, ops/compose.yaml). It is up to 2 s more if all hangs at
#: once and nothing is left for the last parts, Python's own end included.
STOP_S: Final = 3.0
_SETTLE_S: Final = 1.5  #: for claims under way at a stop, also with a shorter grace: their leases are given back
_LOOPS_S: Final = 0.5  #: for the loops' last rounds; a claim is over by then, or has had all of the grace period
_BACKENDS_S: Final = 1.0  #: for uploads that nobody waits for any more: most arrive, and the sweeper finds the rest
_CLOSE_MIN_S: Final = 0.3  #: for each part, also when there is no time left: what does not hang needs no longer

log = structlog.get_logger(__name__)


class Service:
    """One process's parts. `start` may take for ever: it waits for Redis; the parts answer RetryLater meanwhile.

    For one event loop, to be built within it.
    """

    def __init__(self, settings: Settings, role: str = "all", clock: Clock | None = None) -> None:
        """Opens nothing. Raises CannotStart for a backend that cannot be built."""
        self.settings = settings
        self.role = role
        self.clock = clock = clock or SystemClock()
        self.metrics = _metrics(settings)
        self.keys = Keys(settings.key_prefix, settings.ready_keys(), settings.streams())
        self.pool = connect(
            settings.redis.url, timeout_s=settings.redis.timeout_s, max_connections=settings.redis.max_connections
        )
        self.transport, self._gate = Transport(self.pool), Gated(self.pool)
        self.ledger = _ledger(settings, self._gate, self.keys, ServerClock(clock), self.metrics)
        self.runner = Runner(self._gate, self.keys, Scripts(), self.metrics.script)
        self.census = Census(self.transport, self.keys, self.ledger.clock)
        self.memory = RedisMemory(self.census)
        context = Context(redis=client(self.pool), bodies_key=lambda queue: self.keys.queue(queue).bodies)
        self._backends = Backends(settings, context, self.metrics, clock)
        self.backends, self.offloading = self._backends.every, self._backends.offloading
        self.router = router_of(settings)
        self.producer = self._producer()
        overdue = Overdue()
        self.gauges = Gauges(
            self.census,
            overdue,
            self.metrics,
            clock,
            configured=list(settings.queues),
            limit=settings.label_limit,
        )
        self._fetcher, self._dispatcher, self._trash = self._dispatching(overdue)
        self._wake = Wake(self.pool, self.keys.wake, self._dispatcher.woken)
        self._loops = Loops(self._the_loops())
        self._started = False
        self._stopping = False
        self._grace_ends_s: float | None = None  # known once it is told to stop

    async def start(self, redis_within_s: float | None = None) -> None:
        """Waits for Redis, looks whether it will do, starts the backends and the loops. Raises CannotStart.

        Raises RedisUnavailable if Redis is not there `redis_within_s`. Backends are waited for as long as
        service.guarded.START_PATIENCE_S, all at once.
        """
        allow_eviction = self.settings.redis.allow_eviction
        installation = await wait_for_redis(
            self.transport, self.census, self.keys, allow_eviction=allow_eviction, within_s=redis_within_s
        )
        await self._backends.start(installation)
        self._gate.opened = True
        self._loops.start()
        self._started = True
        log.info("started", role=self.role, installation=installation, backends=sorted(self.backends))

    async def stop_dispatching(self) -> None:
        """No more claims; what is held is finished within the grace period or then given back. `close` must follow."""
        self._stopping = True
        self._dispatcher.stop()
        self._dispatch_loop.stop()
        grace_ends_s = self._grace_ends()
        await self._loops.settled(self._dispatch_loop, max(_SETTLE_S, self.settings.dispatcher.grace_s))
        await self._fetcher.drain(max(0.0, grace_ends_s - _now_s()))

    async def close(self) -> None:
        """Closes everything, in reverse. Idempotent. No call to any part is under way or follows.

        Over at most STOP_S after the grace period, which begins with the first call to stop anything.
        """
        grace_ends_s = self._grace_ends()
        ends_s = grace_ends_s + STOP_S
        await self._loops.stop(_LOOPS_S)
        await _by(max(grace_ends_s, _now_s() + _CLOSE_MIN_S), "producer", self.producer.aclose())
        await _by(ends_s, "wake-up channel", self._wake.aclose())
        await _by(min(ends_s, _now_s() + _BACKENDS_S), "backends", self._backends.aclose())
        await _by(ends_s, "Redis", self.pool.disconnect())
        log.info("stopped")

    def _grace_ends(self) -> float:
        """When the grace period is over, by the event loop's clock."""
        if self._grace_ends_s is None:
            self._grace_ends_s = _now_s() + self.settings.dispatcher.grace_s
        return self._grace_ends_s

    @property
    def started(self) -> bool:
        return self._started

    def services(self) -> Services:
        """What the HTTP application of this role needs."""
        jobs = JobServices(self.producer, self.ledger, self.backends, self.settings.max_payload_bytes, self.census)
        return Services(
            metrics=self.metrics,
            refresh=self.gauges.refresh,
            alive=self.alive,
            ready=self.ready,
            jobs=None if self.role in ("dispatcher", "worker") else jobs,
            version=version("coatcheck"),
        )

    def alive(self) -> Health:
        """Not, if a loop is dead or hangs: then a restart is needed."""
        sick = self._loops.sick()
        return Health(not sick, [f"loop {name} is dead or hangs" for name in sick])

    async def ready(self) -> Health:
        """Asks Redis. A backend that is away is shown, and is no reason to take no jobs; nor is a foreign owner."""
        reasons = [*self.alive().reasons, *await self._redis_faults()]
        if not self._started:
            reasons.append("starting: waiting for Redis, or for backends to answer")
        if self._stopping:
            reasons.append("stopping")
        return Health(not reasons, reasons, {"backends": self._backends.states()})

    # ---- parts -----------------------------------------------------------------------------------------------------

    def _producer(self) -> Producer:
        intake = Intake(self.keys, self.settings.tenant_known, self.settings.max_payload_bytes)
        return Producer(
            self.ledger,
            intake,
            self.router,
            Uploads(self.ledger, self.offloading, self.metrics),
            metrics=self.metrics,
            clock=self.clock,
            memory_ratio=lambda: self.memory.ratio,
            accept_watermark=self.settings.memory.accept_watermark,
        )

    def _dispatching(self, overdue: Overdue) -> tuple[Fetcher, Dispatcher, Trash]:
        chosen, lease_ms = self.settings.dispatcher, round(self.settings.dispatcher.lease_s * 1000)
        trash = Trash(self.ledger, self.offloading, self.metrics, self.clock)
        fetcher = Fetcher(
            self.ledger,
            {name: Depot(backend) for name, backend in self.offloading.items()},
            self.metrics,
            self.clock,
            lease_ms=lease_ms,
            max_attempts=self.settings.max_attempts,
        )
        dispatcher = Dispatcher(
            self.ledger,
            fetcher,
            trash,
            agenda=Agenda(longest_wait_s=chosen.interval_s, cool_down_s=chosen.cool_down_s),
            overdue=overdue,
            metrics=self.metrics,
            clock=self.clock,
            inline=INLINE,
            policy=self.settings.queue,
            pace=Pace(chosen.batch, chosen.queue_concurrency, lease_ms),
        )
        return fetcher, dispatcher, trash

    def _the_loops(self) -> list[Loop]:
        def loop(name: str, round_: Round, interval_s: float, *, interruptible: bool = True) -> Loop:
            return Loop(
                name,
                round_,
                interval_s=interval_s,
                clock=self.clock,
                metrics=self.metrics,
                interruptible=interruptible,
                hangs_after_s=hangs_after_s(self.settings.redis.timeout_s),
            )

        chosen = self.settings.dispatcher
        self._dispatch_loop = loop("dispatch", self._dispatcher.round, chosen.interval_s, interruptible=False)
        loops = [
            loop("memory", self.memory.round, _WORKERS_MEMORY_S if self.role == "worker" else MEMORY_S),
            loop("probe", self._backends.probe, _PROBE_S),
            loop("ownership", self._backends.read_ownership, _OWNERSHIP_S),
        ]
        if self.role not in ("api", "worker"):
            trash = loop("trash", self._trash.round, HOUSEKEEPING_S)
            keeping = Housekeeping(
                self.ledger,
                self.census,
                self.metrics,
                dead_max_age_ms=round(self.settings.dead.max_age_s * 1000),
                dead_max_count=self.settings.dead.max_count,
            )
            self._dispatcher.wake, self._trash.wake = self._dispatch_loop.wake, trash.wake
            loops += [
                self._dispatch_loop,
                trash,
                loop("wake", self._wake.round, chosen.interval_s),
                loop("extend", self._fetcher.extend, chosen.lease_s / 6),
                loop("housekeeping", keeping.round, HOUSEKEEPING_S),
            ]
        return loops

    async def _redis_faults(self) -> list[str]:
        try:
            async with asyncio.timeout(_PING_S):
                await self.transport.send([("PING",)])
        except RetryLater as error:
            return [str(error)]
        except TimeoutError:
            return [f"Redis did not answer within {_PING_S:g} s"]
        return []


def _now_s() -> float:
    return asyncio.get_running_loop().time()


async def _by(ends_s: float, part: str, closing: Awaitable[object]) -> None:
    """Waits for `closing` until then, but for _CLOSE_MIN_S at least, and then gives it up."""
    try:
        async with asyncio.timeout_at(max(ends_s, _now_s() + _CLOSE_MIN_S)):
            await closing
    except TimeoutError:
        log.warning("closing was given up", part=part)


def hangs_after_s(redis_timeout_s: float) -> float:
    """When a loop's round hangs. One in which Redis falls silent has up to four requests that end by their timeouts,
    one after another, each with all its tries; what it asks backends is bounded far below HANGS_AFTER_S."""
    return max(HANGS_AFTER_S, 4 * TRIES * redis_timeout_s)


def _metrics(settings: Settings) -> Metrics:
    return Metrics(
        version("coatcheck"),
        backends=settings.backends,
        queues=settings.queues,
        tenants=settings.tenants,
        scripts=[script.name for script in Scripts()],
        loops=LOOPS,
        label_limit=settings.label_limit,
    )


def _ledger(settings: Settings, transport: Transport, keys: Keys, clock: ServerClock, metrics: Metrics) -> Ledger:
    return Ledger(
        transport,
        keys,
        Scripts(),
        clock,
        inline=INLINE,
        lateness_bounds_ms=LATENESS_BUCKETS_MS,
        idempotency_ttl_ms=round(settings.idempotency_ttl_s * 1000),
        stale_after_ms=round(settings.sweeper.grace_s * 1000 / 2),
        max_expiries=settings.retry.max_expiries,
        backoff_min_ms=round(settings.retry.backoff_min_s * 1000),
        backoff_max_ms=round(settings.retry.backoff_max_s * 1000),
        overdraft_jobs=settings.dispatcher.overdraft_jobs,
        on_script=metrics.script,
        on_overdraft=metrics.overdraft,
    )
