"""The calls about queues."""

import re
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from service import pages
from service.api.incoming import limit_of, no_query_in, query_in, queue_in
from service.api.jobs import job_fields, json_answer
from service.clock import rfc3339
from service.errors import InvalidQuery
from service.records import Counts, Job, Stranger
from service.services import JobServices

STATES: Final = ("delayed", "leased", "dead")
_USUAL: Final = 100
_MOST_QUEUES: Final = 500  #: nine commands each
_MOST_JOBS: Final = 1000


class QueueCalls:
    def __init__(self, services: JobServices) -> None:
        self._ledger = services.ledger
        self._census = services.census

    async def list_queues(self, request: Request) -> Response:
        """The queues that hold jobs, in pages and in no order. One that holds them throughout is not passed over; it
        may be shown twice if many queues come or go meanwhile. `limit` is about: a short list comes as a whole.
        """
        query = query_in(request, "cursor", "limit")
        about = limit_of(query.get("limit", _USUAL), _MOST_QUEUES)
        cursor, queues = await self._census.some_queues(_scan_cursor(query.get("cursor", "0")), about)
        counts = await self._census.counts(queues)
        shown = [_queue_fields(queue, held) for queue, held in zip(queues, counts, strict=True)]
        return json_answer({"queues": shown, "next": str(cursor) if cursor else None})

    async def counts(self, request: Request) -> Response:
        """How many jobs the queue holds, by state. A queue that nobody used holds none."""
        queue = queue_in(request)
        (held,) = await self._census.counts([queue])
        if isinstance(held, Exception):
            raise HTTPException(500, _queue_fields(queue, held)["error"]) from held
        return json_answer(_queue_fields(queue, held))

    async def list_jobs(self, request: Request) -> Response:
        """The queue's jobs that are `delayed`, `leased` or `dead`, in pages: the first due, the first to run out of its
        lease, or the longest dead comes first. Jobs that come, go or move meanwhile change nothing for the others.
        """
        queue = queue_in(request)
        query = query_in(request, "state", "cursor", "limit")
        state, limit = query.get("state"), limit_of(query.get("limit", _USUAL), _MOST_JOBS)
        if state not in STATES:
            raise InvalidQuery(f"state: one of {', '.join(STATES)} is needed")
        after = pages.place_of(query["cursor"])[0] if "cursor" in query else None
        page = await self._ledger.page(queue, state, limit, after)
        cursor = pages.cursor_of(page.members[-1][0]) if page.left else None
        jobs = [_member_fields(queue, each) for _, each in page.members]
        return json_answer({"queue": queue, "state": state, "jobs": jobs, "next": cursor})

    async def pause(self, request: Request) -> Response:
        """Stop dispatching this queue; what is leased is still delivered. Jobs are accepted as before."""
        queue = queue_in(request)
        no_query_in(request)
        changed = await self._ledger.pause(queue)
        return json_answer({"queue": queue, "paused": True, "changed": changed})

    async def resume(self, request: Request) -> Response:
        """Dispatch this queue again."""
        queue = queue_in(request)
        no_query_in(request)
        changed = await self._ledger.resume(queue)
        return json_answer({"queue": queue, "paused": False, "changed": changed})


def _scan_cursor(text: str) -> int:
    if not re.fullmatch("[0-9]{1,20}", text) or int(text) >= 2**64:
        raise InvalidQuery("cursor: hand back what the page before said in `next`, as it was")
    return int(text)


def _queue_fields(queue: str, held: Counts | Exception) -> dict[str, Any]:
    if isinstance(held, Exception):
        return {"queue": queue, "error": f"some key of this queue is not of its type: {held}"}
    return {
        "queue": queue,
        "future": held.future,
        "overdue": held.overdue,
        "leased": held.leased,
        "ready": held.ready,
        "dead": held.dead,
        "trash": held.trash,
        "paused": held.paused,
        "next_due": None if held.next_due_ms is None else rfc3339(held.next_due_ms),
    }


def _member_fields(queue: str, each: Job | Stranger) -> dict[str, Any]:
    """A stranger has the fields of a job, and is named by what stands in Redis: so it can be purged."""
    if isinstance(each, Job):
        return job_fields(each)
    nothing = dict.fromkeys(("backend", "due", "next_attempt"))
    at = rfc3339(each.score_ms)
    return {
        "reference": each.member,
        "state": each.state,
        "queue": queue,
        **nothing,
        "attempts": 0,
        "expiries": 0,
        "last_error": each.error,
        "reason": each.reason,
        "died_at": at if each.state == "dead" else None,
    }
