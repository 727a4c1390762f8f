"""Many jobs in one request, a line each, and a line each in the answer.

Jobs are accepted while the body is still being read. The answer begins only when it has ended: a client that sends
without reading meanwhile would otherwise wait for us, and we for it.
"""

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import structlog
from starlette.requests import Request
from starlette.responses import Response

from service.api import problems
from service.api.incoming import no_query_in, queue_in, throw_away, unless_slow
from service.api.jobs import accepted_fields
from service.api.lines import job_of, lines_of
from service.api.room import IDLE_S, Room
from service.errors import CoatcheckError, InvalidBody, InvalidLine
from service.intake import NewJob
from service.producer import Accepted
from service.services import JobServices

MAX_LINES: Final = 10_000
#: Accepted in one step: bounds the memory that a batch holds, and how long its first job waits for its last.
_SLICE_JOBS: Final = 500
_SLICE_BYTES: Final = 2**20
#: Of a line besides its payload, whose text may double where JSON escapes it; base64 adds a third.
_LINE_OVERHEAD_BYTES: Final = 64 * 1024

log = structlog.get_logger(__name__)


class BatchCall:
    def __init__(self, services: JobServices, room: Room) -> None:
        self._producer = services.producer
        self._room = room
        self._line_limit_bytes = 2 * services.max_payload_bytes + _LINE_OVERHEAD_BYTES

    async def enqueue_batch(self, request: Request) -> Response:
        """Accept up to 10,000 jobs, a JSON object each; a bad line fails alone."""
        queue = queue_in(request)
        no_query_in(request, times=True)
        async with self._room.taken(request, self._line_limit_bytes):
            answered = await self._read_and_accept(request.stream(), queue)
        if not answered:
            raise InvalidBody("there is no line: a job is a JSON object in a line of its own")
        return Response(b"".join(answered), media_type="application/x-ndjson")

    async def _read_and_accept(self, stream: AsyncIterator[bytes], queue: str) -> list[bytes]:
        answered: list[bytes] = []
        waiting: list[NewJob | CoatcheckError] = []
        waiting_bytes = 0
        try:
            async for line in lines_of(unless_slow(stream, IDLE_S), self._line_limit_bytes):
                waiting.append(self._job(line, queue, at=len(answered) + len(waiting)))
                waiting_bytes += len(line or b"")
                if len(waiting) == _SLICE_JOBS or waiting_bytes > _SLICE_BYTES:
                    answered += await self._answers(waiting, first=len(answered) + 1)
                    waiting.clear()
                    waiting_bytes = 0
                if len(answered) + len(waiting) > MAX_LINES:
                    await throw_away(stream)
                    break
        except InvalidBody as error:  # it came to no end; what came before it is answered all the same
            waiting.append(error)
        return answered + await self._answers(waiting, first=len(answered) + 1)

    def _job(self, line: bytes | None, queue: str, at: int) -> NewJob | CoatcheckError:
        if at >= MAX_LINES:
            return InvalidBody(f"more than {MAX_LINES} lines: this one and what follows it was not looked at")
        if line is None:
            return InvalidLine(f"longer than {self._line_limit_bytes} bytes")
        try:
            return job_of(line, queue)
        except CoatcheckError as error:
            return error

    async def _answers(self, lines: Sequence[NewJob | CoatcheckError], first: int) -> list[bytes]:
        jobs = [line for line in lines if isinstance(line, NewJob)]
        accepted = iter(await self._accepted(jobs))
        done = [next(accepted) if isinstance(line, NewJob) else line for line in lines]
        return [_answer_line(number, each) for number, each in enumerate(done, first)]

    async def _accepted(self, jobs: Sequence[NewJob]) -> Sequence[Accepted | CoatcheckError | None]:
        """None for a job whose end we do not know. What earlier lines were answered must not be lost for it."""
        try:
            return await self._producer.enqueue_many(jobs)
        except Exception as error:
            log.error("batch failed", error=type(error).__name__, exc_info=error)  # noqa: TRY400  see above: this is its handling
            return [None] * len(jobs)


def _answer_line(number: int, done: Accepted | CoatcheckError | None) -> bytes:
    fields: dict[str, Any] = {"line": number}
    if isinstance(done, Accepted):
        fields |= {"status": 200 if done.replayed else 201, **accepted_fields(done)}
    else:
        problem = problems.plain(500) if done is None else problems.of(done)
        fields |= {"status": problem["status"], "problem": problem}
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"
