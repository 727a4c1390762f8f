"""The `coatcheck` command.

exit 0   done
exit 1   could not start, or could not finish
exit 2   misused: a wrong argument, or a setting that cannot be
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.console import Console

from service.configuration.mistakes import SettingsError
from service.errors import CannotStart
from service.settings import Settings, load

app = typer.Typer(
    name="coatcheck",
    help="A delayed-job service: Redis keeps the order, S3 keeps the bytes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
_console = Console()


class Role(StrEnum):
    ALL = "all"
    API = "api"
    DISPATCHER = "dispatcher"


@app.command()
def serve(role: Annotated[Role, typer.Option(help="What this process does.")] = Role.ALL) -> None:
    """Run the service: the HTTP API, the re-enqueue loop, or both. Settings come from the environment."""
    settings = _settings(os.environ)
    _run(lambda: _serve(settings, role))


@app.command()
def dev(
    demo: Annotated[bool, typer.Option("--demo", help="Send some jobs, show them arrive, and stop.")] = False,
    port: Annotated[int, typer.Option(help="Port of the HTTP API; if it is taken, another one.")] = 8080,
) -> None:
    """Run everything in one command, with an embedded Valkey and an embedded S3. Nothing is kept."""
    _run(lambda: _dev(demo=demo, port=port))


def main() -> None:
    """The console script."""
    app()


async def _serve(settings: Settings, role: Role) -> None:
    from service.api.app import create_app
    from service.serving import listen, serve as serve_until_told
    from service.wiring import Service

    service = Service(settings, role.value)
    await serve_until_told(service, create_app(service.services()), listen(settings.http.host, settings.http.port))


async def _dev(*, demo: bool, port: int) -> None:
    from service import embedded
    from service.api.app import create_app
    from service.demo import ENVIRONMENT, demo as show
    from service.serving import listen, serve as serve_until_told
    from service.wiring import Service

    async with AsyncExitStack() as stack:
        redis_url = await stack.enter_async_context(embedded.valkey())
        store = await stack.enter_async_context(embedded.s3())
        settings = _settings(_dev_environment(redis_url, store, ENVIRONMENT if demo else {}))
        listener = _listen_near(listen, settings.http.host, port)
        service = Service(settings)
        url = f"http://{settings.http.host}:{listener.getsockname()[1]}"

        async def demonstrate() -> None:
            await show(url, redis_url, _console)

        async def stay() -> None:
            _tell(url, redis_url)
            await asyncio.Event().wait()

        await serve_until_told(
            service, create_app(service.services()), listener, meanwhile=demonstrate if demo else stay
        )


def _dev_environment(redis_url: str, store: Any, more: Mapping[str, str]) -> dict[str, str]:
    """What `dev` decides, over defaults that people may set otherwise."""
    defaults = {
        "COATCHECK_LOG__FORMAT": "console",
        "COATCHECK_LOG__LEVEL": "warning",
        "COATCHECK_ROUTING__OFFLOAD_TO": "s3",
    }
    decided = {
        "COATCHECK_REDIS__URL": redis_url,
        "COATCHECK_BACKENDS__S3__BUCKET": store.bucket,
        "COATCHECK_BACKENDS__S3__ENDPOINT_URL": store.endpoint_url,
        "COATCHECK_BACKENDS__S3__REGION": "us-east-1",
    }
    return {**defaults, **os.environ, **more, **decided}


def _listen_near(listen: Callable[[str, int], Any], host: str, port: int) -> Any:
    try:
        return listen(host, port)
    except CannotStart:
        return listen(host, 0)


def _tell(url: str, redis_url: str) -> None:
    redis_cli = f"redis-cli -u {redis_url}"
    _console.print(
        f"""
[bold green]Coatcheck is running[/bold green] at {url}, with an embedded Valkey and S3. Ctrl-C stops everything.

A job that is due in 5 seconds:
  curl -X POST '{url}/v1/queues/emails/jobs?delay=5s' --data-binary 'hello'
A large one, whose payload goes to S3:
  head -c 100000 /dev/urandom | curl -X POST '{url}/v1/queues/emails/jobs?delay=10s' --data-binary @-
What the queue holds:
  curl {url}/v1/queues/emails
Consume:
  {redis_cli} BRPOP 'coatcheck:{{emails}}:ready' 0
Metrics, and every call of the API:
  curl {url}/metrics
  {url}/docs
""",
        highlight=False,
        soft_wrap=True,
    )


def _settings(environ: Mapping[str, str]) -> Settings:
    from service.logs import configure

    try:
        settings = load(environ)
    except SettingsError as error:
        print(error, file=sys.stderr)  # noqa: T201  before logging is configured, and for people
        raise typer.Exit(2) from error
    configure(settings.log.level, settings.log.format)
    return settings


def _run(work: Callable[[], Coroutine[Any, Any, None] | Awaitable[None]]) -> None:
    import uvloop

    async def run() -> None:
        await work()

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run())
    except CannotStart as error:
        print(f"coatcheck: {error}", file=sys.stderr)  # noqa: T201  the last word, for people
        raise typer.Exit(1) from error
    except KeyboardInterrupt as error:  # before the signal handlers were there
        raise typer.Exit(130) from error
