"""A message is read by field numbers, whatever was written there."""

from contextlib import suppress
from dataclasses import asdict

import pytest
from hypothesis import example, given, strategies as st

from service.inspector.asynq.message import NotAMessage, UnknownField, decode, decode_server
from tests.kit.asynq_writer import message, server_info

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
WHOLE = message(
    type="mail",
    payload=b"\xff\x00",
    id="1",
    queue="q",
    retry=25,
    retried=2,
    error_msg="smtp",
    timeout=1800,
    deadline=1_796_053_492,
    unique_key="asynq:{q}:unique:mail:",
    last_failed_at=1_796_046_293,
    retention=3600,
    completed_at=1_796_046_294,
    group_key="g",
    headers={"trace": "abc"},
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            **dict.fromkeys(["type", "id", "queue", "error_msg", "unique_key", "group_key"], TEXTS),
            **dict.fromkeys(["timeout", "deadline", "last_failed_at", "retention", "completed_at"], INT64),
            **dict.fromkeys(["retry", "retried"], INT32),
            "payload": st.binary(max_size=100),
            "headers": st.dictionaries(TEXTS, TEXTS, max_size=4),
        },
    )
)
def test_whatever_a_strict_encoder_writes_is_read_back(fields):
    """Zeros and empty texts are absent on the wire, and read as such."""
    read = decode(message(**fields))
    zero = {"headers": {}, "payload": b""} | dict.fromkeys(["type", "id", "queue", "error_msg", "unique_key"], "")
    told = {
        "type": read.type,
        "payload": read.payload,
        "id": read.id,
        "queue": read.queue,
        "retry": read.max_retries,
        "retried": read.retried,
        "error_msg": read.error,
        "timeout": read.timeout_s,
        "deadline": read.deadline_s,
        "unique_key": read.unique_key,
        "last_failed_at": read.last_failed_at_s,
        "retention": read.retention_s,
        "completed_at": read.completed_at_s,
        "group_key": read.group,
        "headers": dict(read.headers),
    }
    expected = {name: fields.get(name, zero.get(name, "" if name == "group_key" else 0)) for name in told}
    assert told == expected
    assert read.unknown == read.not_text == ()


def test_a_message_that_was_cut_short_is_told_as_far_as_it_goes_or_not_at_all():
    """Cut between two fields nobody can tell; anywhere else nothing is guessed."""
    whole, nothing = asdict(decode(WHOLE)), asdict(decode(b""))
    refused = 0
    for at in range(1, len(WHOLE)):
        try:
            read = asdict(decode(WHOLE[:at]))
        except NotAMessage:
            refused += 1
        else:
            assert all(read[name] in (whole[name], nothing[name]) for name in whole), at
    assert refused > len(WHOLE) / 2


def test_what_is_no_message_is_told_by_its_size_alone():
    """A log line or a problem's detail holds no payload."""
    with pytest.raises(NotAMessage, match=r"^9 bytes that are no protobuf message$"):
        decode(b"\x0a\x7fsecret!")


def test_fields_of_a_newer_release_are_shown_by_their_numbers():
    newer = (
        WHOLE + bytes([0x80, 0x01, 0x07]) + bytes([0x8A, 0x01, 0x02]) + b"hi" + bytes([0x93, 0x01, 0x08, 1, 0x94, 0x01])
    )
    assert decode(newer).unknown == (UnknownField(16, 7), UnknownField(17, b"hi"), UnknownField(18, b""))


def test_a_field_of_another_wire_type_is_an_unknown_one():
    """As if `type` were a number: nobody can say what it means."""
    read = decode(bytes([0x08, 0x05]) + message(id="1"))
    assert (read.type, read.id, read.unknown) == ("", "1", (UnknownField(1, 5),))


def test_text_that_is_no_utf8_is_shown_escaped_and_named():
    """Asynq refuses to read such a message, and a strict schema would show nothing of it."""
    read = decode(b"\x0a\x02\xff!" + b"\x7a\x06\x0a\x01k\x12\x01\xfe" + message(id="1"))
    assert (read.type, read.headers, read.id) == ("\\xff!", (("k", "\\xfe"),), "1")
    assert read.not_text == ("type", "headers")


def test_thousands_of_foreign_fields_are_not_all_told():
    assert len(decode(bytes([0x80, 0x01, 0x07]) * 5000).unknown) == 50


@given(st.binary(max_size=300))
@example(b'{"json": true}')
@example(b"\x7b" * 300)
@example(b"\xff" * 11)
@example(b"")
def test_any_bytes_are_a_message_or_said_to_be_none(data):
    for read in (decode, decode_server):
        with suppress(NotAMessage):
            read(data)


def test_a_server_says_which_queues_it_serves():
    told = decode_server(server_info(host="web-1", pid=7, concurrency=10, queues={"a": 6, "größe": 1}, status="active"))
    assert (told.host, told.pid, told.concurrency, told.status) == ("web-1", 7, 10, "active")
    assert told.queues == {"a", "größe"}
