"""A batch's body: lines, read in bounded memory, each of them a job."""

import base64
import binascii
from collections.abc import AsyncIterator
from typing import Any

from service.api.incoming import known_only, object_of
from service.errors import InvalidBody, InvalidHeader, InvalidLine
from service.intake import NewJob, check_idempotency_key


async def lines_of(stream: AsyncIterator[bytes], limit_bytes: int) -> AsyncIterator[bytes | None]:
    """Each line without its end; None for one longer than `limit_bytes`, of which nothing is kept."""
    begun = bytearray()
    too_long = False
    async for chunk in stream:
        *ended, rest = chunk.split(b"\n")
        for piece in ended:
            yield None if too_long or len(begun) + len(piece) > limit_bytes else bytes(begun + piece)
            begun.clear()
            too_long = False
        too_long = too_long or len(begun) + len(rest) > limit_bytes
        if too_long:
            begun.clear()
        else:
            begun += rest
    if begun or too_long:
        yield None if too_long else bytes(begun)


def job_of(line: bytes, queue: str) -> NewJob:
    """The job that `line` describes. Raises InvalidLine; its times and its tenant are checked when it is enqueued."""
    try:
        fields = object_of(line)
        known_only(fields, "payload", "payload_base64", "delay", "due", "tenant", "idempotency_key")
        key = _text(fields, "idempotency_key")
        return NewJob(
            _payload(fields),
            queue,
            fields.get("delay"),
            fields.get("due"),
            _text(fields, "tenant"),
            None if key is None else check_idempotency_key(key),
        )
    except (InvalidBody, InvalidHeader) as error:
        raise InvalidLine(str(error)) from error


def _payload(fields: dict[str, Any]) -> bytes:
    text, encoded = _text(fields, "payload"), _text(fields, "payload_base64")
    if (text is None) == (encoded is None):
        raise InvalidLine("exactly one of payload and payload_base64 is needed")
    try:
        return base64.b64decode(encoded or "", validate=True) if text is None else text.encode()
    except (binascii.Error, ValueError) as error:
        raise InvalidLine(f"{'payload_base64' if text is None else 'payload'}: {error}") from error


def _text(fields: dict[str, Any], name: str) -> str | None:
    value = fields.get(name)
    if name in fields and not isinstance(value, str):
        raise InvalidLine(f"{name} is not a text")
    return value
