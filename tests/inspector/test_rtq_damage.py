"""redis_task_queue's keys may hold anything: whatever is there is told of, never a traceback, and never written to."""

import json

from hypothesis import given, strategies as st

from service.inspector.rtq.layout import Rtq
from tests.kit.damage import SCORES, Huge, Value, all_problems, keyspace, the_same_each_time, values
from tests.kit.inspecting import Inspected
from tests.kit.rtq_writer import dead_entry, envelope

QUEUE = "q"
OWN = {"rtq:queue:q": "list", "rtq:queue:q:delayed": "zset"}
SHARED = {"rtq:dead": "list", "rtq:inflight:w": "list", "rtq:inflight:": "list", "rtq:inflight:\udcff*[": "list"}
KEYS = [*OWN, *SHARED, "rtq:queue:", "rtq:queue::delayed", "rtq:queue:\udcff", "rtq:queue:q:delayed:delayed"]
IDS = ["1", "2", "", "\\ud800", "ü"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "id", "task"]), inner, max_size=3)
    ),
    max_leaves=6,
)
ENVELOPES = st.builds(
    lambda id_, queue, fields: envelope(id_, queue, **fields),
    st.sampled_from([id_ for id_ in IDS if id_.isascii()]),
    st.sampled_from([QUEUE, "other", ""]),
    st.fixed_dictionaries(
        {}, optional={"type": JSON, "payload": JSON, "attempt": JSON, "max_retries": JSON, "x": JSON}
    ),
)
WHOLE = envelope("1", QUEUE, payload={"x": "y" * 300})
MEMBERS = st.one_of(
    ENVELOPES,
    ENVELOPES.map(lambda entry: dead_entry(entry, "error", 1_796_046_292_000)),
    st.builds(lambda one, two: json.dumps({"envelope": one, "error": two, "dead_at": two}).encode(), JSON, JSON),
    st.integers(0, len(WHOLE)).map(lambda at: WHOLE[:at]),
    JSON.map(json.dumps).map(str.encode),
    st.just(WHOLE.replace(b'"1"', b'"\\ud800"')),
    st.just(300_000).map(lambda size: Huge(b"[" * size)),
    st.binary(max_size=30),
)
RIGHT = {
    key: st.builds(Value, st.just("list"), st.lists(MEMBERS, min_size=1, max_size=8))
    if kind == "list"
    else st.builds(Value, st.just("zset"), st.dictionaries(MEMBERS, SCORES, min_size=1, max_size=8))
    for key, kind in (OWN | SHARED).items()
}


@st.composite
def keyspaces(draw: st.DrawFn) -> dict[str, Value]:
    return keyspace(draw, KEYS, values(MEMBERS, {}), RIGHT)


@the_same_each_time  # some 600 were run when this was written
@given(keyspaces())
async def test_whatever_is_there_is_told_of(inspected: Inspected, held: dict[str, Value]):
    """A traceback would hide what somebody looks for at the worst moment."""
    told = await all_problems(inspected, Rtq, held, QUEUE, IDS)
    wrong = {it.detail.split(" ")[0] for it in told if it.kind == "wrong-type"}
    assert wrong & OWN.keys() == {key for key, kind in OWN.items() if key in held and held[key].kind != kind}
