"""Errors by remedy: retry later, never, or you misused us.

`code` is the last part of the problem type `urn:coatcheck:<code>`, and the same in logs, in the CLI and in Python.
Match on the type or on `code`, never on the text.
"""

from typing import ClassVar

from storage_backends.reference import Reference


class CoatcheckError(Exception):
    """What Coatcheck raises to its callers."""

    code: ClassVar[str]


class RetryLater(CoatcheckError):
    """Nothing is wrong with the request: repeat it after `retry_after_s`."""

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class RedisUnavailable(RetryLater):
    """Redis could not be asked, and the request certainly had no effect."""

    code = "redis-unavailable"


class RedisFull(RetryLater):
    """Redis is at `maxmemory`, or over the watermark for accepting; nothing was kept."""

    code = "redis-full"


class BackendUnavailable(RetryLater):
    """The payload's backend is away, and Redis may not stand in for it; nothing was kept."""

    code = "backend-unavailable"


class Busy(RetryLater):
    """This process holds as many bytes of payloads for its clients as it may; the request had no effect."""

    code = "busy"


class OutcomeUnknown(RetryLater):
    """The request may have been carried out. Look `reference` up, or DELETE it, before repeating without a key."""

    code = "outcome-unknown"

    def __init__(self, message: str, *, reference: Reference, retry_after_s: float = 1.0) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
        self.reference = reference


class Refused(CoatcheckError):
    """The request makes sense, and the answer is no: repeating it will not help."""


class NotHere(Refused):
    """No such job: delivered, cancelled, purged or never accepted."""

    code = "not-here"


class JobDead(Refused):
    """The job was given up on: revive or purge it."""

    code = "job-dead"


class PayloadTooLarge(Refused):
    """More than `max_payload_bytes`."""

    code = "payload-too-large"


class IdempotencyKeyReused(Refused):
    """This key was used for another request."""

    code = "idempotency-key-reused"


class UnknownTenant(Refused):
    """No tenant of this name is configured, or the text is no tenant name."""

    code = "unknown-tenant"


class Misuse(CoatcheckError, ValueError):
    """The request is malformed; the message says where."""


class InvalidQueue(Misuse):
    """Not a queue name."""

    code = "invalid-queue"


class InvalidTime(Misuse):
    """Neither or both of `delay` and `due`, or one that cannot be."""

    code = "invalid-time"


class InvalidReference(Misuse):
    """Not a reference, in its one spelling."""

    code = "invalid-reference"


class InvalidHeader(Misuse):
    """A header of ours has a value that it cannot have."""

    code = "invalid-header"


class InvalidQuery(Misuse):
    """A parameter that this call does not take, or a value that it cannot have: a state, a limit, a cursor."""

    code = "invalid-query"


class InvalidBody(Misuse):
    """The request's body is not what this call takes."""

    code = "invalid-body"


class InvalidLine(Misuse):
    """A line of a batch is not what this call takes."""

    code = "invalid-line"


class CannotStart(CoatcheckError):
    """The surroundings are such that running would lose jobs or cannot work; the message says what to change."""

    code = "cannot-start"
