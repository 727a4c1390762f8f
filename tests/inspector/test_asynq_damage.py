"""Asynq's keys may hold anything: whatever is there is told of, never a traceback, and never written to."""

from hypothesis import given, strategies as st

from service.inspector.asynq.layout import Asynq
from tests.kit.asynq_writer import message, server_info
from tests.kit.damage import SCORES, Huge, Value, all_problems, keyspace, the_same_each_time, values
from tests.kit.inspecting import Inspected

QUEUE = "q"
NAMES = ["pending", "active", "lease", "scheduled", "retry", "archived", "completed", "groups", "aggregation_sets"]
IDS = ["1", "2", "", "\udcff\x00", "x" * 300, "g", "g:1"]


def key(name: str) -> str:
    return f"asynq:{{{QUEUE}}}:{name}"


KEYS = [
    *("asynq:queues", "asynq:servers", "asynq:workers", "asynq:servers:{h:1:s}", "asynq:workers:{h:1:s}"),
    *map(key, [*NAMES, "paused", "processed", "failed", "g:g", "g:g:1", "unique:t:1"]),
    *(key(f"t:{id_}") for id_ in IDS),
]
WHOLE = message(
    type="t", payload=b"\x00", id="1", queue=QUEUE, retry=3, headers={"a": "b"}, unique_key=key("unique:t:1")
)
MESSAGES = (
    st.integers(0, len(WHOLE)).map(lambda at: WHOLE[:at])
    | st.binary(max_size=60)
    | st.just(b"{" * 500)
    | st.just(300_000).map(lambda size: Huge(message(id="1", queue=QUEUE, payload=b"y" * size)))
)
STATES = st.sampled_from(
    [b"pending", b"active", b"scheduled", b"retry", b"archived", b"completed", b"aggregating", b"", b"?" * 99]
)
MEMBERS = (
    st.sampled_from([id_.encode("utf-8", "surrogateescape") for id_ in IDS])
    | st.sampled_from([key("g:g:1").encode(), b"asynq:servers:{h:1:s}", b"asynq:workers:{h:1:s}", b"asynq:queues"])
    | st.sampled_from([b"1796046292", b"many", b"9" * 400, server_info(host="h", pid=1, queues={QUEUE: 1})])
    | st.binary(max_size=20)
)
FIELDS = {
    b"msg": MESSAGES,
    b"state": STATES,
    b"group": st.sampled_from([b"g", b"", b"\xff", b"g" * 5000]),
    b"unique_key": st.sampled_from([key("unique:t:1").encode(), key("pending").encode(), b"", b"\xff"]),
    b"pending_since": st.sampled_from([b"1796046292000000000", b"soon", b"", b"7" * 99]),
    b"result": st.binary(max_size=20),
}
RECORDS = st.builds(
    Value,
    st.just("hash"),
    st.builds(
        lambda needed, more: more | needed,
        st.fixed_dictionaries({b"msg": MESSAGES, b"state": STATES}),
        st.fixed_dictionaries({}, optional=FIELDS),
    ),
)
LISTS = st.builds(Value, st.just("list"), st.lists(MEMBERS, min_size=1, max_size=8))
SETS = st.builds(Value, st.just("zset"), st.dictionaries(MEMBERS, SCORES, min_size=1, max_size=8))
RIGHT = (
    {key(f"t:{id_}"): RECORDS for id_ in IDS}
    | {key(name): LISTS for name in ("pending", "active")}
    | {key(name): SETS for name in ("lease", "scheduled", "retry", "archived", "completed", "g:g", "g:g:1")}
    | {key("aggregation_sets"): SETS, "asynq:servers": SETS, "asynq:workers": SETS}
)


@st.composite
def keyspaces(draw: st.DrawFn) -> dict[str, Value]:
    return keyspace(draw, KEYS, values(MEMBERS, FIELDS), RIGHT)


@the_same_each_time  # some 1,500 were run when this was written
@given(keyspaces())
async def test_whatever_is_there_is_told_of(inspected: Inspected, held: dict[str, Value]):
    """A traceback would hide what somebody looks for at the worst moment."""
    told = await all_problems(inspected, Asynq, held, QUEUE, IDS)
    wrong = {it.detail.split(" ")[0] for it in told if it.kind == "wrong-type"}
    for name in ("pending", "active", "scheduled", "retry", "archived", "completed"):
        value, kind = held.get(key(name)), "list" if name in ("pending", "active") else "zset"
        assert (key(name) in wrong) == (value is not None and value.kind != kind), name
