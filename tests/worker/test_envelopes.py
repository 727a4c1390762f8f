"""The envelope on the wire: what others write, and what others read."""

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from service.envelope import NotAnEnvelope, build, parse, with_numbers
from service.errors import InvalidBody

THEIRS = b'{"id":"7","task":{"type":"send_email","payload":{"to":"me"}},"queue":"emails","max_retries":3,"attempt":0}'

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)


def test_an_envelope_of_redis_task_queue_is_read() -> None:
    found = parse(THEIRS)
    assert (found.id, found.type, found.payload, found.queue) == ("7", "send_email", {"to": "me"}, "emails")
    assert (found.max_retries, found.attempt, found.due_ms) == (3, 0, None)


def test_ours_has_the_fields_that_redis_task_queue_reads() -> None:
    ours = json.loads(build("send_email", {"to": "me"}, "emails", max_retries=3))
    theirs = json.loads(THEIRS)
    assert {name: type(value) for name, value in ours.items()} == {name: type(value) for name, value in theirs.items()}
    assert ours["task"] == theirs["task"]


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "not JSON"),
        (b"hello", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 200_000, "not JSON"),
        (b"9" * 5_000, "not JSON"),
        (b"[]", "not a JSON object"),
        (b"{}", "task"),
        (THEIRS.replace(b'"7"', b"7"), "id"),
        (THEIRS.replace(b'"7"', b'""'), "id"),
        (THEIRS.replace(b'"payload":{"to":"me"}', b'"pay":1'), "task.payload"),
        (THEIRS.replace(b'"send_email"', b"null"), "type"),
        (THEIRS.replace(b'"emails"', b"[]"), "queue"),
        (THEIRS.replace(b":3,", b':"3",'), "max_retries"),
        (THEIRS.replace(b":3,", b":true,"), "max_retries"),
        (THEIRS.replace(b'"attempt":0', b'"attempt":-1'), "attempt"),
        (THEIRS.replace(b'"attempt":0', b'"attempt":1.0'), "attempt"),
        (THEIRS.replace(b',"attempt":0', b""), "attempt"),
    ],
)
def test_what_is_no_envelope_is_said_to_be_none_and_why(raw: bytes, why: str) -> None:
    with pytest.raises(NotAnEnvelope, match=why):
        parse(raw)


def test_a_refusal_holds_nothing_of_the_payload() -> None:
    """It goes into records and logs."""
    with pytest.raises(NotAnEnvelope) as caught:
        parse(b'{"id":"secret","task":"secret"}')
    assert "secret" not in str(caught.value)


def test_a_retry_changes_the_attempt_and_no_other_byte() -> None:
    """Large numbers, order, doubled fields and spaces are the business of who wrote them."""
    raw = (
        b'{ "x" : 1.0e400, "attempt" :0 ,"id":"7","big":12345678901234567890123, "task":{"type":"a","payload":'
        b'{"attempt":5}},"queue":"q","max_retries":3,"x":[1 ,2], "attempt": 1 }'
    )
    assert with_numbers(raw, attempt=2) == raw.replace(b'"attempt": 1 }', b'"attempt": 2 }')


@given(st.dictionaries(st.text(max_size=6), json_values, max_size=5), json_values)
def test_every_other_field_of_every_envelope_survives_a_retry(fields: dict[str, Any], payload: Any) -> None:
    told = {**fields, "id": "7", "task": {"type": "a", "payload": payload}, "queue": "q", "max_retries": 3}
    raw = json.dumps({**told, "attempt": 0}).encode()
    assert json.loads(with_numbers(raw, attempt=4)) == {**told, "attempt": 4}


@pytest.mark.parametrize("payload", [{1, 2}, float("nan"), b"bytes", "\ud800"])
def test_what_json_cannot_say_is_refused_when_it_is_enqueued(payload: Any) -> None:
    with pytest.raises(InvalidBody):
        build("a", payload, "q")


@pytest.mark.parametrize("given_", [{"type_": ""}, {"type_": 7}, {"max_retries": -1}, {"max_retries": True}])
def test_what_no_worker_could_read_is_refused_when_it_is_enqueued(given_: dict[str, Any]) -> None:
    with pytest.raises(InvalidBody):
        build(**{"type_": "a", "payload": None, "queue": "q", **given_})
