"""Running the service: serve, and dev, which brings all that it needs."""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from service.cli.exits import Exit
from service.cli.local import settings
from service.errors import CannotStart

if TYPE_CHECKING:
    from service.embedded import S3
    from service.settings import Settings


#: Of `dev`; people may set them otherwise.
_DEFAULTS: Final = {
    "COATCHECK_LOG__FORMAT": "console",
    "COATCHECK_LOG__LEVEL": "warning",
    "COATCHECK_ROUTING__OFFLOAD_TO": "s3",
}


class Role(StrEnum):
    ALL = "all"
    API = "api"
    DISPATCHER = "dispatcher"


def serve(role: Annotated[Role, typer.Option(help="What this process does.")] = Role.ALL) -> None:
    """Run the service: the HTTP API, the re-enqueue loop, or both. Settings come from the environment."""
    # Process 1 of a container has no default action: until the service listens for it, SIGTERM would be lost.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(Exit.DONE))
    chosen = configured()
    run(lambda: _serve(chosen, role))


def dev(
    demo: Annotated[bool, typer.Option("--demo", help="Send some jobs, show them arrive, and stop.")] = False,
    port: Annotated[int, typer.Option(help="Port of the HTTP API; if it is taken, another one.")] = 8080,
) -> None:
    """Run everything in one command, with an embedded Valkey and an embedded S3. Nothing is kept."""
    run(lambda: _dev(demo=demo, port=port))


async def _serve(settings: "Settings", role: Role) -> None:
    from service.api.app import create_app
    from service.serving import listen, serve as serve_until_told
    from service.wiring import Service

    service = Service(settings, role.value)
    await serve_until_told(service, create_app(service.services()), listen(settings.http.host, settings.http.port))


async def _dev(*, demo: bool, port: int) -> None:
    from rich.console import Console

    from service import embedded
    from service.api.app import create_app
    from service.demo import ENVIRONMENT, demo as show
    from service.serving import listen, serve as serve_until_told
    from service.settings import surrounded
    from service.wiring import Service

    console = Console()
    async with AsyncExitStack() as stack:
        redis_url = await stack.enter_async_context(embedded.valkey())
        store = await stack.enter_async_context(embedded.s3())
        decided = {**(ENVIRONMENT if demo else {}), **_decided(redis_url, store)}
        chosen = configured(lambda: surrounded(_DEFAULTS, decided))
        listener = _listen_near(listen, chosen.http.host, port)
        service = Service(chosen)
        url = f"http://{chosen.http.host}:{listener.getsockname()[1]}"

        async def demonstrate() -> None:
            await show(url, redis_url, console)

        async def stay() -> None:
            console.print(_told(url, redis_url), highlight=False, soft_wrap=True)
            await asyncio.Event().wait()

        await serve_until_told(
            service, create_app(service.services()), listener, meanwhile=demonstrate if demo else stay
        )


def _decided(redis_url: str, store: "S3") -> dict[str, str]:
    """Where `dev` has put what it brings."""
    return {
        "COATCHECK_REDIS__URL": redis_url,
        "COATCHECK_BACKENDS__S3__BUCKET": store.bucket,
        "COATCHECK_BACKENDS__S3__ENDPOINT_URL": store.endpoint_url,
        "COATCHECK_BACKENDS__S3__REGION": "us-east-1",
    }


def _listen_near(listen: Callable[[str, int], Any], host: str, port: int) -> Any:
    try:
        return listen(host, port)
    except CannotStart:
        return listen(host, 0)


def _told(url: str, redis_url: str) -> str:
    redis_cli = f"redis-cli -u {redis_url}"
    return f"""
[bold green]Coatcheck is running[/bold green] at {url}, with an embedded Valkey and S3. Ctrl-C stops everything.

A job that is due in 5 seconds:
  curl -X POST '{url}/v1/queues/emails/jobs?delay=5s' --data-binary 'hello'
A large one, whose payload goes to S3:
  head -c 100000 /dev/urandom | curl -X POST '{url}/v1/queues/emails/jobs?delay=10s' --data-binary @-
What the queue holds:
  curl {url}/v1/queues/emails
Consume:
  {redis_cli} BRPOP 'coatcheck:{{emails}}:ready' 0
Where both are, for .venv/bin/coatcheck (inspect, worker, …) and for Python, in another terminal:
  export COATCHECK_URL={url} COATCHECK_REDIS__URL={redis_url}
Metrics, and every call of the API:
  curl {url}/metrics
  {url}/docs
"""


def configured(make: "Callable[[], Settings] | None" = None) -> "Settings":
    """The settings, and logging as they say."""
    from service.logs import configure

    chosen = settings(make)
    configure(chosen.log.level, chosen.log.format)
    return chosen


def run(work: Callable[[], Coroutine[Any, Any, None] | Awaitable[None]]) -> None:
    import uvloop

    async def working() -> None:
        await work()

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(working())
    except CannotStart as error:
        print(f"coatcheck: {error}", file=sys.stderr)  # noqa: T201  the last word, for people
        raise typer.Exit(Exit.FAILED) from error
    except KeyboardInterrupt as error:  # before the signal handlers were there
        raise typer.Exit(Exit.INTERRUPTED) from error
