"""The configured backends of one process: built, metered, guarded, started together, and asked whose they are."""

import asyncio

import structlog

from service.breaker import Policy
from service.clock import Clock
from service.errors import CannotStart
from service.guarded import Guarded
from service.metrics import Metrics
from service.settings import Settings
from service.storage import Metered
from storage_backends import registry
from storage_backends.base import Context, Misconfigured, Ownership, StorageBackend

log = structlog.get_logger(__name__)


class Backends:
    """`every` backend by name; of these, `offloading` keep payloads outside Redis and can be away."""

    def __init__(self, settings: Settings, context: Context, metrics: Metrics, clock: Clock) -> None:
        """Opens nothing. Raises CannotStart for one that cannot be built."""
        self._settings = settings
        self._metrics = metrics
        self._clock = clock
        self.every: dict[str, StorageBackend] = {}
        self.offloading: dict[str, Guarded] = {}
        for name, chosen in settings.backends.items():
            try:
                built = registry.build(name, chosen.kind, chosen.options, context)
            except Misconfigured as error:
                raise CannotStart(str(error)) from error
            self.every[name] = metered = Metered(built, metrics, clock)
            if not built.inline:
                self.every[name] = self.offloading[name] = self._guarded(metered)

    async def start(self, installation: str) -> None:
        """All at once, each for as long as service.guarded.START_PATIENCE_S. Raises CannotStart for one that can never
        work; one that is away starts behind an open breaker."""
        starts = (backend.start(installation) for backend in self.offloading.values())
        for fault in await asyncio.gather(*starts, return_exceptions=True):
            if isinstance(fault, Misconfigured):
                raise CannotStart(str(fault)) from fault
            if isinstance(fault, BaseException):
                raise fault

    async def probe(self) -> None:
        """A loop's round: an outage comes to its end without traffic, too."""
        await asyncio.gather(*(backend.probe_if_due() for backend in self.offloading.values()))

    async def read_ownership(self) -> None:
        """A loop's round. What fails is no reason to end the process, a bucket that is gone included: its jobs tell."""
        backends = self.offloading.values()
        faults = await asyncio.gather(*(each.read_ownership() for each in backends), return_exceptions=True)
        for backend, fault in zip(backends, faults, strict=True):
            if isinstance(fault, Exception):
                log.warning("ownership not read", backend=backend.name, error=type(fault).__name__)

    def states(self) -> dict[str, str]:
        """Of those outside Redis: `ok`, or what is wrong."""
        return {name: _state_of(backend) for name, backend in self.offloading.items()}

    async def aclose(self) -> None:
        await asyncio.gather(*(backend.aclose() for backend in self.every.values()))

    def _guarded(self, backend: StorageBackend) -> Guarded:
        chosen = self._settings.breaker
        self._metrics.breaker(backend.name, "closed")
        return Guarded(
            backend,
            self._clock,
            policy=Policy(chosen.failures, chosen.window_s, chosen.open_s),
            fetch_timeout_s=self._settings.dispatcher.fetch_timeout_s,
            on_change=self._breaker_changed,
            on_ownership=self._ownership_changed,
        )

    def _breaker_changed(self, backend: str, state: str, cause: Exception | None) -> None:
        self._metrics.breaker(backend, state)
        log.warning("breaker changed", backend=backend, state=state, cause=type(cause).__name__ if cause else None)

    def _ownership_changed(self, backend: str, ownership: Ownership) -> None:
        foreign = _is_foreign(ownership)
        self._metrics.ownership(backend, ours=not foreign)
        if foreign:
            log.error("another installation owns this backend's place", backend=backend, owner=ownership.owner)
        else:
            log.info("whose this backend's place is", backend=backend, owner=ownership.owner)


def _is_foreign(ownership: Ownership) -> bool:
    return ownership.owner is not None and not ownership.ours


def _state_of(backend: Guarded) -> str:
    if _is_foreign(backend.ownership):
        return f"owned by another installation: {backend.ownership.owner}"
    return "ok" if backend.state == "closed" else f"breaker {backend.state}"
