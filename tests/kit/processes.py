"""Processes of Coatcheck's own, as people run them: settings from the environment, killed with the test.

with running(site.environ, "dispatcher") as dispatcher:
    await dispatcher.is_ready()
    dispatcher.kill()
"""

import os
import re
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from service.child import HOST, Child, free_port
from tests.kit.s3_servers import ENVIRONMENT
from tests.kit.waiting import eventually

COMMAND = str(Path(sys.executable).with_name("coatcheck"))


class Process:
    """One `coatcheck …`. It sees nothing of this process's environment but PATH and S3 credentials."""

    def __init__(self, environ: Mapping[str, str], *argv: str, port: int = 0, cwd: str | Path = "/") -> None:
        self.port = port or free_port()
        environ = {"COATCHECK_HTTP__PORT": str(self.port), **environ}
        base = {"PATH": os.environ.get("PATH", ""), "PYTHONUNBUFFERED": "1", **ENVIRONMENT}
        self.child = Child([COMMAND, *argv], cwd=cwd, environ={**base, **environ})

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def log(self) -> str:
        """All that it printed."""
        return self.child.output(2**30)

    def send(self, number: signal.Signals) -> None:
        """A signal to this process alone, by its id."""
        assert self.child.running, f"it has ended: {self.log[-2000:]}"
        os.kill(self.child.pid, number)

    def stall(self) -> None:
        """It stands still, like a machine that swaps or is suspended, until `go_on`."""
        self.send(signal.SIGSTOP)

    def go_on(self) -> None:
        self.send(signal.SIGCONT)

    def kill(self) -> None:
        """`kill -9`."""
        self.child.kill()

    async def ended(self, within_s: float = 30) -> int:
        """Its exit code, when it has ended by itself."""

        def code() -> tuple[int] | None:
            found = self.child.wait(0)
            return None if found is None else (found,)

        return (await eventually(code, within_s, "the process has ended"))[0]

    async def stopped(self, number: signal.Signals = signal.SIGTERM, within_s: float = 30) -> int:
        """Its exit code after this signal."""
        self.send(number)
        return await self.ended(within_s)

    async def get(self, path: str) -> httpx.Response:
        async with httpx.AsyncClient(base_url=self.url, timeout=10) as http:
            return await http.get(path)

    async def answers(self, path: str = "/healthz", status: int = 200, within_s: float = 60) -> dict[str, Any]:
        """The JSON of the first answer with this status."""

        async def asked() -> httpx.Response | None:
            assert self.child.running, f"it has ended: {self.log[-2000:]}"
            try:
                response = await self.get(path)
            except httpx.TransportError as error:
                raise AssertionError(f"{type(error).__name__}; {self.log[-500:]}") from error
            assert response.status_code == status, f"{response.status_code} {response.text}"
            return response

        body: dict[str, Any] = (await eventually(asked, within_s, f"{path} answers {status}")).json()
        return body

    async def is_ready(self) -> None:
        await self.answers("/readyz")

    async def metric(self, name: str, **labels: str) -> float:
        """The sum of this metric's series that have these labels, 0 if there is none."""
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        text = (await self.get("/metrics")).text
        series = re.findall(rf"^coatcheck_{name}(?:\{{(.*)\}})? (\S+)$", text, re.MULTILINE)
        return sum(float(value) for found, value in series if all(each in found.split(",") for each in wanted))


@contextmanager
def running(environ: Mapping[str, str], role: str = "all", *, port: int = 0) -> Iterator[Process]:
    """One `coatcheck serve`, killed at the end."""
    process = Process(environ, "serve", "--role", role, port=port)
    try:
        yield process
    finally:
        process.child.close()
