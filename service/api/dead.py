"""The calls about dead jobs."""

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from service.api.incoming import body_of, known_only, limit_of, no_query_in, object_of, queue_in
from service.api.jobs import json_answer
from service.dead import MAX_LIMIT, DeadJobs, Ended, Verb
from service.errors import InvalidBody
from service.metrics import Metrics
from service.services import JobServices

_BODY_BYTES: Final = 2**20  #: a thousand references of the longest kind need a quarter of it
_USUAL: Final = 1000


class DeadCalls:
    def __init__(self, services: JobServices, metrics: Metrics) -> None:
        self._dead = DeadJobs(services.ledger, services.census, metrics)

    async def revive(self, request: Request) -> Response:
        """Give dead jobs another life: due now, with no failure counted. By `references`, by `reason`, or `all`."""
        return await self._end(request, "revived")

    async def purge(self, request: Request) -> Response:
        """End dead jobs for good, payload and all. By `references`, by `reason`, or `all`."""
        return await self._end(request, "purged")

    async def _end(self, request: Request, verb: Verb) -> Response:
        queue = queue_in(request)
        no_query_in(request)
        fields = object_of(await body_of(request, _BODY_BYTES))
        known_only(fields, "references", "reason", "all", "limit", "cursor")
        if sum(name in fields for name in ("references", "reason", "all")) != 1:
            raise InvalidBody("exactly one of references, reason and all is needed")
        if "references" in fields:
            ended = await self._dead.by_reference(verb, queue, _references(fields))
        else:
            limit = limit_of(fields.get("limit", _USUAL), MAX_LIMIT, InvalidBody)
            cursor = _text(fields, "cursor") if "cursor" in fields else None
            ended = await self._dead.by_reason(verb, queue, _reason(fields), limit=limit, cursor=cursor)
        return json_answer(_fields(ended, paged="references" not in fields))


def _references(fields: dict[str, Any]) -> list[str]:
    references = fields["references"]
    if not isinstance(references, list) or not all(isinstance(each, str) for each in references):
        raise InvalidBody("references: a list of texts is needed")
    if "limit" in fields or "cursor" in fields:
        raise InvalidBody("limit and cursor belong to reason and all")
    return references


def _reason(fields: dict[str, Any]) -> str | None:
    """None: any."""
    if "reason" in fields:
        return _text(fields, "reason")
    if fields["all"] is not True:
        raise InvalidBody("all: only true is possible")
    return None


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields[name]
    if not isinstance(value, str):
        raise InvalidBody(f"{name} is not a text")
    return value


def _fields(ended: Ended, *, paged: bool) -> dict[str, Any]:
    fields = {"done": ended.done, "left": ended.left}
    return fields | {"next": ended.next} if paged else fields
