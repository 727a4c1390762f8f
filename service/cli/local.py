"""What settings alone can answer, without a running service: route, config."""

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from service.cli import show
from service.cli.exits import Exit
from service.cli.remote import Json

if TYPE_CHECKING:
    from service.router import Explanation
    from service.settings import Settings

T = TypeVar("T")


def settings(make: "Callable[[], Settings] | None" = None) -> "Settings":
    """What `make` makes, or the environment says; all mistakes are shown, and end the command."""
    from service.configuration.mistakes import SettingsError
    from service.settings import load

    try:
        return (make or load)()
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        raise typer.Exit(Exit.MISUSED) from error


def route(
    *,
    queue: Annotated[str, typer.Option(help="The job's queue.", show_default=False)],
    size: Annotated[str, typer.Option(help="Of the payload: 200, 16KiB, 1MiB.")] = "1KiB",
    delay: Annotated[str, typer.Option(help="250ms, 30s, 15m, 2h, 7d.")] = "0s",
    tenant: Annotated[str | None, typer.Option(help="On whose behalf.", show_default=False)] = None,
    uuid: Annotated[
        str | None, typer.Option(help="The job's own, if rollout_percent matters.", show_default=False)
    ] = None,
    without: Annotated[list[str] | None, typer.Option(help="A backend that is away.", show_default=False)] = None,
    redis_memory: Annotated[float, typer.Option(min=0, help="Redis's memory in use, as a share of maxmemory.")] = 0.0,
    as_json: Json = False,
) -> None:
    """Which backend a payload would go to, by which rule, and where each value comes from.

    Asks the settings here, which need not be those of the service.
    """
    from service.configuration.routing import origins, router_of
    from service.router import Facts
    from service.units import parse_duration_ms, parse_size_bytes
    from storage_backends.reference import check_queue, new_uuid

    chosen = settings()
    if tenant is not None and not chosen.tenant_known(tenant):
        raise typer.BadParameter(f"there is no tenant {tenant!r}")
    facts = Facts(
        payload_bytes=checked(parse_size_bytes, size),
        delay_ms=checked(parse_duration_ms, delay),
        tenant=tenant,
        queue=checked(check_queue, queue),
        uuid=uuid or new_uuid(),
        available=frozenset(chosen.backends) - set(without or ()),
        redis_memory_ratio=redis_memory,
    )
    explanation = router_of(chosen).explain(facts)
    _show_route(explanation, origins(chosen, explanation, facts), as_json)
    if explanation.decision is None:
        raise typer.Exit(Exit.FAILED)


def config(
    pattern: Annotated[str, typer.Argument(help="Only settings whose name holds this.", show_default=False)] = "",
    given: Annotated[bool, typer.Option("--given", help="Only what somebody set.")] = False,
    as_json: Json = False,
) -> None:
    """Every setting in effect and where its value comes from. Secrets are masked."""
    from service.configuration.report import effective

    rows = [
        {"name": each.name, "value": each.value, "source": each.source}
        for each in effective(settings())
        if pattern.upper() in each.name.upper() and not (given and each.source == "default")
    ]
    if as_json:
        show.as_json(rows)
    else:
        show.table(["name", "value", "source"], rows)


def _show_route(explanation: "Explanation", values: list[Mapping[str, Any]], as_json: bool) -> None:
    decision = explanation.decision
    answer = {
        "backend": decision.backend if decision else None,
        "reason": decision.reason if decision else "refused",
        "rule": explanation.rule,
    }
    if as_json:
        show.as_json(answer | {"settings": values})
        return
    show.fields(answer, machine=False)
    show.table(["name", "value", "set_for", "source", "setting"], values)


def checked(parse: Callable[[str], T], text: str) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
