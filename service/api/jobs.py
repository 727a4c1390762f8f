"""The calls about one job."""

import json
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from service.api.incoming import body_of, header_in, known_only, no_query_in, object_of, reference_in, times_in
from service.api.room import Room
from service.bounded import NoRoom
from service.clock import rfc3339
from service.errors import BackendUnavailable, Busy, JobDead, NotHere
from service.guarded import Guarded
from service.metrics import Metrics
from service.producer import Accepted
from service.records import Job
from service.services import JobServices
from service.times import when
from storage_backends.base import PayloadCorrupt, PayloadMissing
from storage_backends.reference import Reference

_PATCH_BYTES: Final = 4096  #: a time needs about forty


class JobCalls:
    def __init__(self, services: JobServices, room: Room, metrics: Metrics) -> None:
        self._producer = services.producer
        self._ledger = services.ledger
        self._backends = services.backends
        self._max_payload_bytes = services.max_payload_bytes
        self._room = room
        self._metrics = metrics

    async def enqueue(self, request: Request) -> Response:
        """Accept a job: the body, as it is, becomes the payload."""
        async with self._room.body_of(request, self._max_payload_bytes) as payload:
            accepted = await self._producer.enqueue(
                payload,
                queue=request.path_params["queue"],
                tenant=header_in(request, "Coatcheck-Tenant"),
                idempotency_key=header_in(request, "Idempotency-Key"),
                **times_in(request),
            )
        if accepted.replayed:
            return json_answer(accepted_fields(accepted), headers={"Idempotency-Replayed": "true"})
        return json_answer(accepted_fields(accepted), 201, {"Location": f"/v1/jobs/{accepted.reference}"})

    async def look_up(self, request: Request) -> Response:
        """Where a job is, and what troubled it."""
        return json_answer(job_fields(await self._existing(reference_in(request))))

    async def payload(self, request: Request) -> Response:
        """The payload of a job that is not delivered yet, unchanged."""
        reference = reference_in(request)
        await self._existing(reference)
        backend = self._backends.get(reference.backend)
        if backend is None:
            raise BackendUnavailable(f"no backend {reference.backend!r} is configured here", retry_after_s=60)
        try:
            async with self._room.admitting() as admit:
                body = await (backend.peek if isinstance(backend, Guarded) else backend.get)(reference, admit)
        except Busy:
            raise
        except NoRoom as error:
            raise Busy(str(error)) from error
        except PayloadMissing as error:
            raise NotHere(f"{reference} has no payload: lost, or delivered a moment ago") from error
        except PayloadCorrupt as error:
            raise HTTPException(502, f"the payload of {reference} is damaged") from error
        except Exception as error:
            raise BackendUnavailable(f"{reference.backend} did not give the payload of {reference}") from error
        return Response(body, media_type="application/octet-stream", headers={"X-Content-Type-Options": "nosniff"})

    async def cancel(self, request: Request) -> Response:
        """Take a job back; once `cancelled`, it is never delivered."""
        reference = reference_in(request)
        _must_live(reference, await self._ledger.cancel(reference))
        self._metrics.happened("cancelled", reference.queue, reference.backend)
        return json_answer({"reference": str(reference), "state": "cancelled"})

    async def reschedule(self, request: Request) -> Response:
        """Give a job another due time, counted from now."""
        reference = reference_in(request)
        no_query_in(request, times=True)
        fields = object_of(await body_of(request, _PATCH_BYTES))
        known_only(fields, "delay", "due")
        due_ms = when(**fields).at(await self._ledger.now_ms())
        _must_live(reference, await self._ledger.reschedule(reference, due_ms))
        return json_answer({"reference": str(reference), "state": "delayed", "due": rfc3339(due_ms)})

    async def _existing(self, reference: Reference) -> Job:
        job = await self._ledger.lookup(reference)
        if job is None:
            raise _not_here(reference)
        return job


def json_answer(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(json.dumps(value, separators=(",", ":")), status, headers, "application/json")


def accepted_fields(accepted: Accepted) -> dict[str, Any]:
    """An accepted job, as the single call and each line of a batch show it."""
    return {
        "reference": str(accepted.reference),
        "queue": accepted.queue,
        "due": rfc3339(accepted.due_ms),
        "backend": accepted.backend,
        "reason": accepted.reason,
    }


def job_fields(job: Job) -> dict[str, Any]:
    """A job, as the call about one and each page of a queue show it."""
    return {
        "reference": str(job.reference),
        "state": job.state,
        "queue": job.reference.queue,
        "backend": job.reference.backend,
        "due": rfc3339(job.due_ms),
        "next_attempt": None if job.next_attempt_ms is None else rfc3339(job.next_attempt_ms),
        "attempts": job.attempts,
        "expiries": job.expiries,
        "last_error": job.error,
        "reason": job.reason,
        "died_at": None if job.died_at_ms is None else rfc3339(job.died_at_ms),
    }


def _not_here(reference: Reference) -> NotHere:
    return NotHere(f"there is no job {reference}: delivered, cancelled, purged or never accepted")


def _must_live(reference: Reference, state: str) -> None:
    if state == "gone":
        raise _not_here(reference)
    if state == "dead":
        raise JobDead(f"{reference} is dead: revive or purge it")
