"""The reference, by example: what the endpoints' signatures do not say, since they take the request as it is."""

from typing import Any, Final

from starlette.responses import Response

from service.api.problems import MEDIA_TYPE

DESCRIPTION: Final = """A delayed-job service: hand over a payload and the time it is due, and consumers find it on its
ready queue in Redis when the time has come. Errors are RFC 9457 problems; match on `type`, never on the text. A 503
says in Retry-After when to repeat; after `urn:coatcheck:outcome-unknown` repeat with the same Idempotency-Key, or first
settle it with a DELETE of its `reference`."""

_REFERENCE: Final = "s3::emails::1764547200000::0193f2a4-7c1e-7b3a-9d57-6f0a1c2b3d4e"
_DUE: Final = "2025-12-01T00:00:00.000Z"
_ACCEPTED: Final = {"reference": _REFERENCE, "queue": "emails", "due": _DUE, "backend": "s3", "reason": "large"}
_PATH: Final = {
    "queue": "`[A-Za-z0-9]`, then up to 127 of `[A-Za-z0-9._:-]`, not ending in `:`, without `::`",
    "reference": "As it was answered when the job was accepted: `backend::queue::ms::uuid`",
}
_EXAMPLE: Final = {"queue": "emails", "reference": _REFERENCE}
_DELAY: Final = "From now: a number and its unit, `250ms`, `30s`, `15m`, `2h`, `7d`. Exactly one of `delay` and `due`"
_DUE_AT: Final = "RFC 3339 with an offset, or an integer, ms since the epoch. What is past is due now"
_BATCH_LINE: Final = '{"payload":"hello","delay":"30s"}\n{"payload_base64":"AAE=","due":"2030-01-01T00:00:00Z"}\n'
_BATCH_ANSWER: Final = (
    '{"line":1,"status":201,"reference":"…","queue":"emails","due":"…","backend":"redis","reason":"tiny"}\n'
    '{"line":2,"status":422,"problem":{"type":"urn:coatcheck:invalid-time","title":"…","status":422,"detail":"…"}}\n'
)


def about(name: str) -> dict[str, Any]:
    """Arguments for `add_api_route` that describe the call called `name`."""
    return {"response_class": Response, **_CALLS[name]}


def _parameter(place: str, name: str, description: str, example: str) -> dict[str, Any]:
    schema = {"type": "string"}
    needed = {"required": True} if place == "path" else {}
    return {"in": place, "name": name, "description": description, "schema": schema, "example": example, **needed}


def _path(name: str) -> dict[str, Any]:
    return _parameter("path", name, _PATH[name], _EXAMPLE[name])


def _body(media_type: str, **content: Any) -> dict[str, Any]:
    return {"content": {media_type: content}}


def _answers(statuses: str, example: object, media_type: str = "application/json") -> dict[int | str, dict[str, Any]]:
    """The first status is the good one, the others are problems."""
    good, *others = statuses.split()
    answers: dict[int | str, dict[str, Any]] = {
        int(good): {"description": "Done", **_body(media_type, example=example)}
    }
    return answers | {int(status): {"description": _MEANING[status], **_body(MEDIA_TYPE)} for status in others}


_MEANING: Final = {
    "404": "`not-here`: delivered, cancelled, purged or never accepted",
    "409": "`job-dead`: revive or purge it",
    "413": "`payload-too-large`",
    "422": "The request is malformed, or its Idempotency-Key was used for another one; `type` says which",
    "503": "Repeat after Retry-After: `redis-full`, `redis-unavailable`, `backend-unavailable` or `outcome-unknown`",
}

_ENQUEUE: Final[dict[str, Any]] = {
    "summary": "Accept a job",
    "status_code": 201,
    "responses": {
        **_answers("201 413 422 503", _ACCEPTED),
        200: {
            "description": "Accepted before, under this Idempotency-Key",
            **_body("application/json", example=_ACCEPTED),
        },
    },
    "openapi_extra": {
        "parameters": [
            _path("queue"),
            _parameter("query", "delay", _DELAY, "30s"),
            _parameter("query", "due", _DUE_AT, "2030-01-01T00:00:00Z"),
            _parameter("header", "Coatcheck-Tenant", "On whose behalf", "acme"),
            _parameter("header", "Idempotency-Key", "1 to 255 printable ASCII characters", "order-4711"),
        ],
        "requestBody": _body("application/octet-stream", schema={"type": "string", "format": "binary"}),
    },
}
_BATCH: Final[dict[str, Any]] = {
    "summary": "Accept many jobs, a line each",
    "responses": _answers("200 422", _BATCH_ANSWER, "application/x-ndjson"),
    "openapi_extra": {
        "parameters": [_path("queue")],
        "requestBody": _body("application/x-ndjson", schema={"type": "string"}, example=_BATCH_LINE),
    },
}
_JOB: Final = {
    "reference": _REFERENCE,
    "state": "delayed",
    "queue": "emails",
    "backend": "s3",
    "due": _DUE,
    "next_attempt": _DUE,
    "attempts": 0,
    "expiries": 0,
    "last_error": None,
    "reason": None,
    "died_at": None,
}
_COUNTS: Final = {
    "queue": "emails",
    "future": 12,
    "overdue": 0,
    "leased": 0,
    "ready": 3,
    "dead": 0,
    "trash": 0,
    "paused": False,
    "next_due": _DUE,
}


def _about_job(summary: str, statuses: str, example: object, **extra: Any) -> dict[str, Any]:
    parameters = [_path("reference")]
    return {
        "summary": summary,
        "responses": _answers(statuses, example),
        "openapi_extra": {"parameters": parameters, **extra},
    }


_CALLS: Final[dict[str, dict[str, Any]]] = {
    "enqueue": _ENQUEUE,
    "enqueue_batch": _BATCH,
    "look_up": _about_job("Where a job is", "200 404 422 503", _JOB),
    "cancel": _about_job("Cancel a job", "200 404 409 422 503", {"reference": _REFERENCE, "state": "cancelled"}),
    "reschedule": _about_job(
        "Give a job another due time",
        "200 404 409 422 503",
        {"reference": _REFERENCE, "state": "delayed", "due": _DUE},
        requestBody=_body("application/json", example={"delay": "15m"}),
    ),
    "payload": {
        "summary": "The payload of a job that is not delivered yet",
        "responses": _answers("200 404 422 503", "hello", "application/octet-stream"),
        "openapi_extra": {"parameters": [_path("reference")]},
    },
    "counts": {
        "summary": "How many jobs a queue holds, by state",
        "responses": _answers("200 422 503", _COUNTS),
        "openapi_extra": {"parameters": [_path("queue")]},
    },
    "healthz": {"summary": "Alive", "responses": _answers("200 503", {"status": "alive"})},
    "readyz": {"summary": "Able to work", "responses": _answers("200 503", {"status": "ready"})},
    "metrics": {"summary": "For Prometheus", "responses": _answers("200", "coatcheck_…", "text/plain")},
}
