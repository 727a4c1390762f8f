"""The grammar of references is written twice: in Python, and in Lua for claim. They must never differ."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from hypothesis import example, given, strategies as st

import service.scripts
from storage_backends.reference import InvalidName, Reference

LUA = (Path(service.scripts.__file__).parent / "lib" / "reference.lua").read_text()
#: One call parses many: a round trip each would cost more than it proves.
PARSE = f"""{LUA}
local found = {{}}
for i, text in ipairs(ARGV) do
  local backend, queue, ts, uuid = parse(text)
  found[i] = backend and {{ backend, queue, string.format('%.0f', ts), uuid }} or 'none'
end
return found
"""
UUID = "0193f2a4-7c1e-7b3a-9d57-6f0a1c2b3d4e"

fields = st.tuples(
    st.text("abz_019A-", max_size=34) | st.from_regex(r"[a-z][a-z0-9_]{0,40}", fullmatch=True),
    st.text("aZ09._:-{} \0é", max_size=10) | st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,140}", fullmatch=True),
    st.integers(0, 2**54).map(str) | st.text("0123456789 +-.ex", max_size=18),
    st.uuids().map(str) | st.text("0123456789abcdefABCDEF-", min_size=30, max_size=40) | st.just(UUID),
)
near = fields.map("::".join)


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A reference with one character put in, left out or exchanged."""
    text, at = f"s3::some-queue::1764547200000::{UUID}", draw(st.integers(0, 70))
    return text[:at] + draw(st.text(max_size=1)) + text[at + draw(st.integers(0, 1)) :]


@pytest.fixture(scope="module")
def lua(shared_redis) -> Iterator[redis.Redis]:
    with redis.Redis(port=shared_redis.port) as client:
        yield client


def in_python(text: bytes) -> list[bytes] | bytes:
    try:
        it = Reference.parse(text.decode())
    except (InvalidName, UnicodeDecodeError):
        return b"none"
    return [it.backend.encode(), it.queue.encode(), str(it.ts_ms).encode(), it.uuid.encode()]


@given(st.lists(near.map(str.encode) | damaged().map(str.encode) | st.binary(max_size=80), min_size=1, max_size=50))
@example([f"a{'_b' * 15}c::{'q' * 128}::0::{UUID}".encode(), f"a::q::{2**53 - 1}::{UUID}".encode()])
@example([f"a::q::{2**53}::{UUID}".encode(), f"a::q::00::{UUID}".encode(), f"a::q:::1::{UUID}".encode()])
@example([f"a::b::c::1::{UUID}".encode(), f"a::b::1::{UUID}\n".encode(), f"a_::b::1::{UUID}".encode(), b"", b"::" * 99])
def test_lua_and_python_read_the_same_references(lua, texts):
    """Claim would bury what Python wrote, or lease what Python cannot read, which would stop the loop."""
    assert lua.eval(PARSE, 0, *texts) == [in_python(text) for text in texts]
