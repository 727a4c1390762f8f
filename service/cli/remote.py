"""How commands reach a running service: over HTTP, each request once."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Annotated, Any, Final
from urllib.parse import quote

import typer

from service.cli.exits import Exit

Url = Annotated[
    str | None, typer.Option("--url", help="Where the service is. By default what COATCHECK_URL says.", metavar="URL")
]
Json = Annotated[bool, typer.Option("--json", help="For machines: JSON, and nothing else, on standard output.")]

_CONNECT_S: Final = 10.0
_ANSWER_S: Final = 120.0  #: a batch of 16 MiB payloads that go to S3 takes its time


class Failed(Exception):
    """The service refused, or was not there. `problem` is as RFC 9457 has it, also where no service was reached."""

    def __init__(self, problem: Mapping[str, Any], code: Exit) -> None:
        super().__init__(problem.get("detail") or problem["title"])
        self.problem = problem
        self.code = code


class Remote:
    """One service. Paths are made of parts, so that no name can lead elsewhere."""

    def __init__(self, url: str) -> None:
        import httpx

        self.url = url
        self._http = httpx.Client(base_url=url, timeout=httpx.Timeout(_ANSWER_S, connect=_CONNECT_S))

    def __enter__(self) -> "Remote":
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._http.close()

    def get(self, *parts: str, **query: Any) -> dict[str, Any]:
        return self._fields("GET", parts, params=_given(query))

    def post(self, *parts: str, **fields: Any) -> dict[str, Any]:
        return self._fields("POST", parts, content=_json(fields) if fields else b"")

    def patch(self, *parts: str, **fields: Any) -> dict[str, Any]:
        return self._fields("PATCH", parts, content=_json(_given(fields)))

    def delete(self, *parts: str) -> dict[str, Any]:
        return self._fields("DELETE", parts)

    def enqueue(
        self, queue: str, payload: bytes, query: Mapping[str, Any], headers: Mapping[str, Any]
    ) -> dict[str, Any]:
        """`payload` goes as it is. What is None in `query` and `headers` is left out."""
        options = {"params": _given(query), "headers": _given(headers)}
        return self._fields("POST", ("queues", queue, "jobs"), content=payload, **options)

    def enqueue_lines(self, queue: str, lines: bytes) -> list[dict[str, Any]]:
        """An answer for each line."""
        answer = self._answer("POST", ("queues", queue, "jobs", "batch"), content=lines)
        try:
            return [json.loads(line) for line in answer.content.splitlines()]
        except ValueError as error:
            raise self._stranger("the answer is no JSON, line by line") from error

    def fetch(self, *parts: str) -> bytes:
        """A body as it is."""
        body: bytes = self._answer("GET", parts).content
        return body

    def _fields(self, method: str, parts: tuple[str, ...], **options: Any) -> dict[str, Any]:
        answer = self._answer(method, parts, **options)
        try:
            fields: dict[str, Any] = answer.json()
        except ValueError as error:
            raise self._stranger(f"the answer is no JSON: {answer.text[:80]!r}") from error
        return fields

    def _answer(self, method: str, parts: tuple[str, ...], **options: Any) -> Any:
        import httpx

        path = "/v1/" + "/".join(quote(part, safe="") for part in parts)
        try:
            answer = self._http.request(method, path, **options)
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, UnicodeError) as error:
            raise Failed({"title": "Not possible", "detail": f"{self.url!r}: {error}"}, Exit.MISUSED) from error
        except httpx.ConnectError as error:
            raise Failed({"title": "Away", "detail": f"nobody answers at {self.url}: {error}"}, Exit.LATER) from error
        except httpx.TransportError as error:
            lost = f"{self.url} did not answer ({type(error).__name__}): the request may have been carried out"
            raise Failed({"title": "Outcome unknown", "detail": lost}, Exit.LATER) from error
        if answer.is_success:
            return answer
        raise self._failed(answer)

    def _failed(self, answer: Any) -> Failed:
        try:
            problem = answer.json()
        except ValueError:
            problem = None
        if not isinstance(problem, dict) or "title" not in problem:
            return self._stranger(f"{answer.status_code} {answer.reason_phrase}", later=answer.status_code >= 500)
        return Failed(problem, exit_of(problem))

    def _stranger(self, detail: str, *, later: bool = False) -> Failed:
        """A proxy, or another service."""
        problem = {"title": "Not Coatcheck", "detail": f"{self.url} does not answer as Coatcheck does: {detail}"}
        return Failed(problem, Exit.LATER if later else Exit.FAILED)


@contextmanager
def service_at(url: str | None, *, as_json: bool) -> Iterator[Remote]:
    """The service at `url`, or where the settings say. What fails within is shown, and ends the command by its code."""
    from service.cli import show
    from service.cli.local import settings

    try:
        with Remote(url or settings().url) as remote:
            yield remote
    except Failed as failed:
        show.problem(failed.problem, as_json=as_json)
        raise typer.Exit(failed.code) from failed


def exit_of(problem: Mapping[str, Any]) -> Exit:
    """The exit code for a problem of the service's."""
    from service import errors

    if problem.get("status") in (429, 502, 503, 504):
        return Exit.LATER
    misuses = {f"urn:coatcheck:{kind.code}" for kind in errors.Misuse.__subclasses__()}
    return Exit.MISUSED if problem.get("type") in misuses else Exit.FAILED


def _given(values: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (values or {}).items() if value is not None}


def _json(value: object) -> bytes:
    """In ASCII: members that are no references may hold what no other encoding spells."""
    return json.dumps(value).encode()
