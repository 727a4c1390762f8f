"""A batch's lines: bounded, in order, each a job or a mistake of its own."""

import asyncio
from collections.abc import AsyncIterator, Iterable

import pytest
from hypothesis import given, strategies as st

from service.api.lines import job_of, lines_of
from service.errors import InvalidLine
from service.intake import NewJob


async def stream_of(chunks: Iterable[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


def read(chunks: Iterable[bytes], limit_bytes: int = 10_000) -> list[bytes | None]:
    async def all_of() -> list[bytes | None]:
        return [line async for line in lines_of(stream_of(chunks), limit_bytes)]

    return asyncio.run(all_of())


@given(st.lists(st.binary(max_size=12)))
def test_chunks_may_end_anywhere(chunks):
    whole = b"".join(chunks)
    expected = whole.split(b"\n")
    if not expected[-1]:
        expected.pop()
    assert read(chunks) == expected


@given(st.lists(st.binary(max_size=12)))
def test_a_line_that_is_too_long_is_one_mistake_and_its_neighbours_are_none(chunks):
    expected = b"".join(chunks).split(b"\n")
    if not expected[-1]:
        expected.pop()
    assert read(chunks, limit_bytes=4) == [line if len(line) <= 4 else None for line in expected]


def test_a_line_may_name_everything():
    line = b'{"payload": "h\\u00e9", "delay": "1s", "tenant": "acme", "idempotency_key": "k"}'
    assert job_of(line, "q") == NewJob("hé".encode(), "q", "1s", None, "acme", "k")


def test_base64_carries_what_no_text_can():
    assert job_of(b'{"payload_base64": "AP8=", "due": 1764547200000}', "q") == NewJob(
        b"\0\xff", "q", None, 1764547200000
    )


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"", "not JSON"),
        (b"hello", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "not a JSON object but a list"),
        (b'"payload"', "not a JSON object but a str"),
        (b"{}", "exactly one of payload"),
        (b'{"payload": "a", "payload_base64": "YQ=="}', "exactly one of payload"),
        (b'{"payload": {"a": 1}}', "payload is not a text"),
        (b'{"payload": null}', "payload is not a text"),
        (b'{"payload": "\\ud800"}', "payload"),
        (b'{"payload": "a", "delay": "\\ud800"}', "'delay' holds a lone surrogate"),
        (b'{"payload": "a", "tenant": "\\udfff"}', "'tenant' holds a lone surrogate"),
        (b'{"payload": "a", "delay": ' + b"[" * 700 + b"]" * 700 + b"}", "'delay' is nested too deep"),
        (b'{"payload_base64": "a"}', "payload_base64"),
        (b'{"payload_base64": "YQ==\\n"}', "payload_base64"),
        (b'{"payload_base64": "\\u00e9"}', "payload_base64"),
        (b'{"payload": "a", "payload": "b"}', "twice"),
        (b'{"payload": "a", "queue": "other"}', "unknown field 'queue'"),
        (b'{"payload": "a", "tenant": 1}', "tenant is not a text"),
        (b'{"payload": "a", "idempotency_key": ""}', "Idempotency-Key"),
        (b'{"payload": "a", "idempotency_key": 7}', "idempotency_key is not a text"),
        (b'{"due": ' + b"9" * 5000 + b"}", "not JSON"),
    ],
)
def test_a_line_that_is_no_job_says_why(line, says):
    with pytest.raises(InvalidLine, match=says):
        job_of(line, "q")
