"""Coatcheck's ready queues, lists and streams: how long they are, and both their ends."""

from collections.abc import Sequence
from typing import Any, Final

from service.census import unfinished
from service.inspector.answers import Entry, Fact, StateDetail
from service.inspector.findings import Findings
from service.inspector.layout import ENDS, Look
from service.inspector.payloads import rendered, text_cut
from service.inspector.reading import Command
from service.inspector.times import moment
from service.inspector.weighing import affordable, weighed
from service.keys import QueueKeys

_FIELDS_SHOWN: Final = 100  #: characters of what a stream's entry says beside its payload


def counting(of: QueueKeys) -> list[Command]:
    """What `length` needs: two commands."""
    if of.group is None:
        return [("LLEN", of.ready), ("EXISTS", of.tag)]
    return [("XLEN", of.ready), ("XINFO", "GROUPS", of.ready)]


def length(of: QueueKeys, replies: Sequence[Any], found: Findings) -> int | None:
    """As the service counts it: of a stream, what its group is not done with."""
    entries, groups = replies
    if isinstance(groups, Exception) and str(groups).startswith("ERR no such key"):
        groups = []
    entries, groups = found.told(entries, of.ready, None), found.told(groups, of.ready, None)
    return unfinished(entries, groups, of.group) if entries is not None and groups else entries


async def ready_state(look: Look, of: QueueKeys, found: Findings) -> StateDetail:
    """What is taken next, and what last. Of a stream, what is in somebody's hands is among it, and says so."""
    if of.group is None:
        return await list_state(look, "ready", of.ready, found)
    replies = await look.reader.send([*weighed(of.ready, "XLEN"), *counting(of)])
    count, each_end = length(of, replies[2:], found), affordable(replies[:2], ENDS)
    total = replies[1] if isinstance(replies[1], int) else 0
    if not total or not each_end:
        return StateDetail("ready", of.ready, count)
    rest = min(each_end, total - each_end)
    ends: list[Command] = [("XRANGE", of.ready, "-", "+", "COUNT", each_end)]
    if rest > 0:
        ends.append(("XREVRANGE", of.ready, "+", "-", "COUNT", rest))
    head, tail = [found.told(reply, of.ready, []) for reply in [*await look.reader.send(ends), []][:2]]
    shown = [await _entries(look, of, entries) for entries in (head, list(reversed(tail)))]
    return StateDetail("ready", of.ready, count, "was due", *shown)


async def list_state(look: Look, state: str, key: str, found: Findings, *, oldest_left: bool = False) -> StateDetail:
    """A list of payloads. The oldest is at the right, and leaves next, unless it is at the left."""
    replies = await look.reader.send(weighed(key, "LLEN"))
    count, each_end = found.told(replies[1], key, None), affordable(replies, ENDS)
    if not count or not each_end:
        return StateDetail(state, key, count)
    rest = min(each_end, count - each_end)
    right, left = ("LRANGE", key, -each_end, -1), ("LRANGE", key, 0, each_end - 1)
    ends: list[Command] = [left if oldest_left else right]
    if rest > 0:
        ends.append(("LRANGE", key, -rest, -1) if oldest_left else ("LRANGE", key, 0, rest - 1))
    head, tail = [found.told(reply, key, []) for reply in [*await look.reader.send(ends), []][:2]]
    order = 1 if oldest_left else -1
    return StateDetail(
        state, key, count, None, *([_payload(look, each) for each in it[::order]] for it in (head, tail))
    )


async def _entries(look: Look, of: QueueKeys, entries: Sequence[Any]) -> Sequence[Entry]:
    pending: list[Command] = [("XPENDING", of.ready, str(of.group), id_, id_, 1) for id_, _ in entries]
    shown = []
    for (id_, fields), held in zip(entries, await look.reader.send(pending), strict=True):
        told = dict(zip(fields[::2], fields[1::2], strict=False))
        facts: dict[str, Fact] = {}
        if b"payload" in told:
            facts["payload"] = rendered(told[b"payload"], look.max_bytes)
        else:
            facts["fault"] = "no field `payload`: " + text_cut(b" ".join(fields), _FIELDS_SHOWN)
        if b"reference" in told:
            facts["reference"] = text_cut(told[b"reference"])
        if isinstance(held, list) and held:
            facts["in_the_hands_of"] = text_cut(held[0][1])
        shown.append(Entry(text_cut(id_), moment(told.get(b"due")), facts))
    return shown


def _payload(look: Look, entry: bytes) -> Entry:
    return Entry("", None, {"payload": rendered(entry, look.max_bytes)})
