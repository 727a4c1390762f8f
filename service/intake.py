"""Intake: what a caller hands in, and the checks on it that need no server: what fails here leaves nothing behind."""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from service.errors import InvalidBody, InvalidHeader, InvalidQueue, PayloadTooLarge, UnknownTenant
from service.keys import Keys
from service.records import Idempotency
from service.times import Delay, Due, When, when
from storage_backends.reference import InvalidName, check_queue, new_uuid

_idempotency_key = re.compile(r"[ -~]{1,255}")


@dataclass(frozen=True, slots=True)
class NewJob:
    """What a caller wants: exactly one of `delay` and `due`. Checked when it is enqueued, not before."""

    payload: bytes = field(repr=False)
    queue: str
    delay: Delay | None = None
    due: Due | None = None
    tenant: str | None = None
    idempotency_key: str | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """A job that passed. Its uuid is final, for the router's rollout goes by it, even if the backend has to change."""

    payload: bytes = field(repr=False)
    queue: str
    when: When
    tenant: str | None
    idempotency: Idempotency | None
    uuid: str


class Intake:
    """Checks jobs. Pure, but for the uuids that it makes."""

    def __init__(self, keys: Keys, tenant_known: Callable[[str], bool], max_payload_bytes: int) -> None:
        self._keys = keys
        self._tenant_known = tenant_known
        self._max_payload_bytes = max_payload_bytes

    def check(self, job: NewJob) -> Request:
        """The job, ready to be accepted. Raises Misuse, UnknownTenant, PayloadTooLarge."""
        try:
            queue = check_queue(job.queue)
        except InvalidName as error:
            raise InvalidQueue(str(error)) from error
        if job.tenant is not None and not self._tenant_known(job.tenant):
            raise UnknownTenant(f"there is no tenant {job.tenant[:70]!r}")
        moment = when(job.delay, job.due)
        if not isinstance(job.payload, bytes):
            raise InvalidBody(f"the payload is {type(job.payload).__name__}, not bytes")
        if len(job.payload) > self._max_payload_bytes:
            raise PayloadTooLarge(f"{len(job.payload)} bytes; at most {self._max_payload_bytes} are accepted")
        return Request(job.payload, queue, moment, job.tenant, self._idempotency(job, moment), new_uuid())

    def _idempotency(self, job: NewJob, moment: When) -> Idempotency | None:
        if job.idempotency_key is None:
            return None
        key = check_idempotency_key(job.idempotency_key)
        fingerprint = hashlib.sha256(f"{moment.text}\0".encode() + job.payload).hexdigest()
        return Idempotency(self._keys.queue(job.queue).idempotency(job.tenant, key), fingerprint)


def check_idempotency_key(key: str) -> str:
    """`key`, if it can be one. Raises InvalidHeader."""
    if not _idempotency_key.fullmatch(key):
        raise InvalidHeader("Idempotency-Key: 1 to 255 printable ASCII characters are allowed")
    return key
