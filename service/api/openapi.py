"""The reference, by example: what the endpoints' signatures do not say, since they take the request as it is."""

from collections.abc import Iterator
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from service.api import examples
from service.api.problems import MEDIA_TYPE

_PROBLEM: Final = {
    "type": "object",
    "required": ["type", "title", "status"],
    "properties": {
        "type": {"type": "string", "format": "uri"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "retry_after_s": {"type": "integer", "description": "With a 503, as in Retry-After"},
        "reference": {"type": "string", "description": "With `outcome-unknown`: the job that there may be"},
    },
}
_PATH: Final = {
    "queue": "`[A-Za-z0-9]`, then up to 127 of `[A-Za-z0-9._:-]`, not ending in `:`, without `::`",
    "reference": "As it was answered when the job was accepted: `backend::queue::ms::uuid`",
}
_EXAMPLE: Final = {"queue": "emails", "reference": examples.REFERENCE}
_DELAY: Final = "From now: a number and its unit, `250ms`, `30s`, `15m`, `2h`, `7d`. Exactly one of `delay` and `due`"
_DUE_AT: Final = "RFC 3339 with an offset, or an integer, ms since the epoch. What is past is due now"
_CURSOR: Final = "Where to go on: `next` of the page before"
_BINARY: Final = {"type": "string", "format": "binary"}


def about(name: str) -> dict[str, Any]:
    """Arguments for `add_api_route` that describe the call called `name`, but for its answers."""
    call = _CALLS[name]
    return {name: call[name] for name in ("summary", "status_code", "openapi_extra") if name in call}


def install(app: FastAPI) -> None:
    """`app` describes itself with our answers. FastAPI would drop every null from their examples."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            described = get_openapi(
                title=app.title, version=app.version, description=app.description, routes=app.routes
            )
            for call in (call for methods in described["paths"].values() for call in methods.values()):
                responses = _CALLS[call["operationId"]]["responses"]
                call["responses"] = {str(status): answer for status, answer in sorted(responses.items())}
            app.openapi_schema = described
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]  # as FastAPI's own documentation extends it


def _description() -> Iterator[str]:
    yield (
        "A delayed-job service: hand over a payload and the time it is due, and consumers find it on its ready queue "
        "in Redis when the time has come. Errors are RFC 9457 problems; match on `type`, never on the text. A 503 says "
        "in Retry-After when to repeat; after `urn:coatcheck:outcome-unknown` repeat with the same Idempotency-Key, or "
        "first settle it with a DELETE of its `reference`.\n"
    )
    yield "| type | status | meaning |\n|---|---|---|"
    for code, problem in examples.PROBLEMS.items():
        yield f"| `urn:coatcheck:{code}` | {problem['status']} | {examples.MEANINGS[code]} |"
    yield "| `urn:coatcheck:no-such-route` | 404 | There is no call at this address. |"
    yield "| `about:blank` | any | The status says it all: 400, 405, 408, 500, 502, and a probe's 503. |"


DESCRIPTION: Final = "\n".join(_description())


def _parameter(place: str, name: str, description: str, example: str) -> dict[str, Any]:
    schema = {"type": "string"}
    needed = {"required": True} if place == "path" else {}
    return {"in": place, "name": name, "description": description, "schema": schema, "example": example, **needed}


def _path(name: str) -> dict[str, Any]:
    return _parameter("path", name, _PATH[name], _EXAMPLE[name])


def _body(media_type: str, **content: Any) -> dict[str, Any]:
    return {"content": {media_type: content}}


def _problems(codes: str) -> dict[int | str, dict[str, Any]]:
    """By status, as responses; several kinds may share one."""
    by_status: dict[int | str, dict[str, Any]] = {}
    for code in codes.split():
        by_status.setdefault(examples.PROBLEMS[code]["status"], {})[code] = {"value": examples.PROBLEMS[code]}
    return {
        status: {
            "description": " or ".join(f"`{code}`" for code in kinds),
            **_body(MEDIA_TYPE, schema=_PROBLEM, examples=kinds),
        }
        for status, kinds in by_status.items()
    }


def _call(
    summary: str,
    answer: object,
    codes: str = "",
    *parameters: dict[str, Any],
    media_type: str = "application/json",
    body: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """`codes`: the problems that it may answer with. Those of every call that asks Redis are added."""
    good = {"description": "Done", **_body(media_type, example=answer)}
    extra = {"parameters": list(parameters)} | ({} if body is None else {"requestBody": {"required": True, **body}})
    responses = {200: good, **_problems(f"{codes} redis-unavailable" if codes else "")}
    return {"summary": summary, "responses": responses, "openapi_extra": extra}


def _enqueue() -> dict[str, Any]:
    call = _call(
        "Accept a job",
        examples.ACCEPTED,
        "invalid-queue invalid-time invalid-header unknown-tenant idempotency-key-reused payload-too-large "
        "redis-full backend-unavailable busy outcome-unknown",
        _path("queue"),
        _parameter("query", "delay", _DELAY, "30s"),
        _parameter("query", "due", _DUE_AT, "2030-01-01T00:00:00Z"),
        _parameter("header", "Coatcheck-Tenant", "On whose behalf", "acme"),
        _parameter("header", "Idempotency-Key", "1 to 255 printable ASCII characters", "order-4711"),
        body=_body("application/octet-stream", schema=_BINARY, example="hello"),
    )
    again = {**call["responses"][200], "description": "Accepted before, under this Idempotency-Key"}
    new = {**call["responses"][200], "description": "Accepted"}
    return call | {"status_code": 201, "responses": {**call["responses"], 200: again, 201: new}}


def _about_dead(summary: str) -> dict[str, Any]:
    bodies = {
        "these": {"value": {"references": [examples.REFERENCE]}},
        "those that died of it": {"value": {"reason": "payload_missing", "limit": 1000}},
        "all": {"value": {"all": True}},
    }
    call = _call(
        summary,
        None,
        "invalid-queue invalid-body invalid-query payload-too-large",
        _path("queue"),
        body=_body("application/json", examples=bodies),
    )
    answers = {"these": {"value": examples.ENDED}, "by reason": {"value": examples.ENDED_BY_REASON}}
    return call | {
        "responses": {
            **call["responses"],
            200: {
                "description": "`done`: how many. `left`: how many of those named are still dead; by reason, how many "
                "were not looked at yet: hand `next` in as `cursor` to go on, until it is null",
                **_body("application/json", examples=answers),
            },
        }
    }


_JOB = _path("reference")
_QUEUE = _path("queue")
_PAGE: Final = (
    _parameter("query", "limit", "At most so many; 100 if it is not given", "10"),
    _parameter("query", "cursor", _CURSOR, "MA"),
)
_STATE: Final = _parameter("query", "state", "`delayed`, `leased` or `dead`", "dead")

_CALLS: Final[dict[str, dict[str, Any]]] = {
    "enqueue": _enqueue(),
    "enqueue_batch": _call(
        "Accept many jobs, a line each",
        examples.BATCH_ANSWER,
        "invalid-queue invalid-time invalid-body busy",
        _QUEUE,
        media_type="application/x-ndjson",
        body=_body("application/x-ndjson", schema={"type": "string"}, example=examples.BATCH),
    ),
    "look_up": _call("Where a job is", examples.JOB, "invalid-reference not-here", _JOB),
    "cancel": _call(
        "Cancel a job",
        {"reference": examples.REFERENCE, "state": "cancelled"},
        "invalid-reference not-here job-dead outcome-unknown",
        _JOB,
    ),
    "reschedule": _call(
        "Give a job another due time",
        {"reference": examples.REFERENCE, "state": "delayed", "due": examples.DUE},
        "invalid-reference invalid-time invalid-body payload-too-large not-here job-dead outcome-unknown",
        _JOB,
        body=_body("application/json", example={"delay": "15m"}),
    ),
    "payload": _call(
        "The payload of a job that is not delivered yet",
        "hello",
        "invalid-reference not-here backend-unavailable busy",
        _JOB,
        media_type="application/octet-stream",
    ),
    "list_queues": _call("Queues that hold jobs, in pages", examples.QUEUES, "invalid-query", *_PAGE),
    "counts": _call("How many jobs a queue holds, by state", examples.QUEUE, "invalid-queue", _QUEUE),
    "list_jobs": _call(
        "A queue's jobs, in pages", examples.JOBS, "invalid-queue invalid-query", _QUEUE, _STATE, *_PAGE
    ),
    "pause": _call(
        "Stop dispatching a queue",
        {"queue": "emails", "paused": True, "changed": True},
        "invalid-queue invalid-query",
        _QUEUE,
    ),
    "resume": _call(
        "Dispatch a queue again",
        {"queue": "emails", "paused": False, "changed": True},
        "invalid-queue invalid-query",
        _QUEUE,
    ),
    "revive": _about_dead("Give dead jobs another life"),
    "purge": _about_dead("End dead jobs for good"),
    "healthz": _call("Alive", {"status": "alive"}),
    "readyz": _call("Able to work", {"status": "ready"}),
    "metrics": _call("For Prometheus", "coatcheck_…", media_type="text/plain"),
}
