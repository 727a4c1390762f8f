"""The calls that every role answers."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from service.api import problems
from service.api.jobs import json_answer
from service.services import Health, Services


class HealthCalls:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def healthz(self, _: Request) -> Response:
        """Alive: every loop runs. Otherwise a restart is what helps."""
        return _probe_answer("alive", self._services.alive())

    async def readyz(self, _: Request) -> Response:
        """Ready: this process can do its work. Otherwise it waits for something, and a restart helps nothing."""
        return _probe_answer("ready", await self._services.ready())

    async def metrics(self, _: Request) -> Response:
        """Prometheus' text format."""
        await self._services.refresh()
        # A process with hundreds of queues renders for 5 ms and more, in which no job should have to wait.
        body, content_type = await asyncio.to_thread(self._services.metrics.render)
        return Response(body, headers={"Content-Type": content_type})


def _probe_answer(state: str, health: Health) -> Response:
    if health.ok:
        return json_answer({"status": state, **health.details})
    detail = f"not {state}: {'; '.join(health.reasons)}"
    return problems.answer({**health.details, **problems.plain(503, detail), "reasons": list(health.reasons)})
