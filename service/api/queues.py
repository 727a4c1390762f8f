"""The calls about one queue."""

from starlette.requests import Request
from starlette.responses import Response

from service.api.incoming import queue_in
from service.api.jobs import json_answer
from service.api.services import JobServices
from service.clock import rfc3339


class QueueCalls:
    def __init__(self, services: JobServices) -> None:
        self._ledger = services.ledger

    async def counts(self, request: Request) -> Response:
        """How many jobs the queue holds, by state. A queue that nobody used holds none."""
        queue = queue_in(request)
        counts = await self._ledger.counts(queue)
        return json_answer(
            {
                "queue": queue,
                "future": counts.future,
                "overdue": counts.overdue,
                "leased": counts.leased,
                "ready": counts.ready,
                "dead": counts.dead,
                "trash": counts.trash,
                "paused": counts.paused,
                "next_due": None if counts.next_due_ms is None else rfc3339(counts.next_due_ms),
            }
        )
