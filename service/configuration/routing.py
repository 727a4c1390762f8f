"""The router that settings make, and where each of the values that it goes by comes from."""

from collections.abc import Mapping
from typing import Any

from service.configuration.shape import Path, in_environment
from service.configuration.types import name_of
from service.router import FIELDS, Explanation, Facts, Resolved, RoutingRules, StorageRouter
from service.settings import RoutingOverrides, Settings
from service.units import format_duration


def router_of(settings: Settings) -> StorageRouter:
    """As the service decides."""
    return StorageRouter(
        Resolved(**{name: getattr(settings.routing, name) for name in FIELDS}),
        tenants={name: _rules(tenant) for name, tenant in settings.tenants.items()},
        queues={name: _rules(queue) for name, queue in settings.queues.items()},
        memory_watermark=settings.memory.fallback_watermark,
    )


def origins(settings: Settings, explanation: Explanation, facts: Facts) -> list[Mapping[str, Any]]:
    """Each value in force: its name, the value as settings spell it, whether it is set for this tenant, this queue or
    by default, the setting that says so, and whether that stands in the environment, in the file, or nowhere.
    """
    layers: dict[str, Path] = {"default": ("routing",), "queue": ("queues", facts.queue)}
    layers["tenant"] = ("tenants", facts.tenant or "")
    lines: list[Mapping[str, Any]] = []
    for value in explanation.settings:
        path = (*layers[value.source], name_of(value.name))
        given = settings.origins.get(path)
        lines.append(
            {
                "name": name_of(value.name),
                "value": format_duration(int(value.value)) if value.name.endswith("_ms") else value.value,
                "set_for": value.source,
                "source": given.source if given else "default",
                "setting": given.name if given else in_environment(path),
            }
        )
    return lines


def _rules(overrides: RoutingOverrides) -> RoutingRules:
    return RoutingRules(**{name: getattr(overrides, name) for name in FIELDS})
