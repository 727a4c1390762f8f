"""What goes in and what comes out, by example. tests/integration/test_api_examples.py sends each of them."""

from typing import Any, Final

from service.api import problems
from service.errors import (
    BackendUnavailable,
    Busy,
    CoatcheckError,
    IdempotencyKeyReused,
    InvalidBody,
    InvalidHeader,
    InvalidLine,
    InvalidQuery,
    InvalidQueue,
    InvalidReference,
    InvalidTime,
    JobDead,
    NotHere,
    OutcomeUnknown,
    PayloadTooLarge,
    RedisFull,
    RedisUnavailable,
    UnknownTenant,
)
from storage_backends.reference import Reference

REFERENCE: Final = "s3::emails::1764547200000::0193f2a4-7c1e-7b3a-9d57-6f0a1c2b3d4e"
DUE: Final = "2025-12-01T00:00:00.000Z"

ACCEPTED: Final = {"reference": REFERENCE, "queue": "emails", "due": DUE, "backend": "s3", "reason": "large"}
BATCH: Final = '{"payload":"hello","delay":"30s"}\n{"payload_base64":"AAE=","due":"soon"}\n'
BATCH_ANSWER: Final = (
    '{"line":1,"status":201,"reference":"…","queue":"emails","due":"…","backend":"redis","reason":"tiny"}\n'
    '{"line":2,"status":422,"problem":{"type":"urn:coatcheck:invalid-time","title":"…","status":422,"detail":"…"}}\n'
)
JOB: Final[dict[str, Any]] = {
    "reference": REFERENCE,
    "state": "delayed",
    "queue": "emails",
    "backend": "s3",
    "due": DUE,
    "next_attempt": DUE,
    "attempts": 0,
    "expiries": 0,
    "last_error": None,
    "reason": None,
    "died_at": None,
}
DEAD: Final = JOB | {"state": "dead", "next_attempt": None, "reason": "payload_missing", "died_at": DUE}
QUEUE: Final[dict[str, Any]] = {
    "queue": "emails",
    "future": 12,
    "overdue": 0,
    "leased": 0,
    "ready": 3,
    "dead": 0,
    "trash": 0,
    "paused": False,
    "next_due": DUE,
}
QUEUES: Final = {"queues": [QUEUE], "next": None}
JOBS: Final = {"queue": "emails", "state": "dead", "jobs": [DEAD], "next": None}
ENDED: Final = {"done": 1, "left": 0}
ENDED_BY_REASON: Final = {"done": 1000, "left": 4711, "next": "WyIxNzY0NTQ3MjAwMDAwIiwi…"}

#: One of each kind, but for `no-such-route`, which belongs to no call.
_ERRORS: Final[tuple[CoatcheckError, ...]] = (
    InvalidQueue("'a b': only ASCII letters, digits and . _ : - are allowed"),
    InvalidTime("neither of delay and due given: exactly one is needed"),
    InvalidReference("'4711' is not a reference: backend::queue::ms::uuid, in its one spelling"),
    InvalidHeader("Idempotency-Key: 1 to 255 printable ASCII characters are allowed"),
    InvalidQuery("state: one of delayed, leased, dead is needed"),
    InvalidBody("exactly one of references, reason and all is needed"),
    InvalidLine("exactly one of payload and payload_base64 is needed"),
    UnknownTenant("there is no tenant 'acne'"),
    IdempotencyKeyReused("this Idempotency-Key was used for another payload or another time"),
    PayloadTooLarge("the request's body is over 16777216 bytes"),
    NotHere(f"there is no job {REFERENCE}: delivered, cancelled, purged or never accepted"),
    JobDead(f"{REFERENCE} is dead: revive or purge it"),
    RedisFull("Redis is at 93% of maxmemory; above 90% nothing is accepted"),
    RedisUnavailable("Redis did not answer: TimeoutError"),
    BackendUnavailable("s3 is unavailable, and when_unavailable is refuse", retry_after_s=5),
    Busy("no room for 16777216 bytes came free within 10 s", retry_after_s=5),
    OutcomeUnknown("Redis did not answer; the request may have been carried out", reference=Reference.parse(REFERENCE)),
)
PROBLEMS: Final = {error.code: problems.of(error) for error in _ERRORS}
MEANINGS: Final = {error.code: (type(error).__doc__ or "").partition("\n")[0] for error in _ERRORS}
