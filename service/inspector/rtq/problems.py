"""What does not fit in a queue of redis_task_queue: by counts, and by entries of both ends of each list and set."""

from collections import Counter
from collections.abc import Mapping, Sequence

from service.inspector.answers import Problem
from service.inspector.findings import Findings
from service.inspector.layout import EXAMPLES, SAMPLE, Look
from service.inspector.payloads import text_cut
from service.inspector.reading import OverBudget
from service.inspector.rtq.entries import Shared, Sweep, ids_of, shared, sweep
from service.inspector.rtq.job import LATE_MS
from service.inspector.rtq.keys import RtqKeys
from service.inspector.structures import Structure, no_times
from service.inspector.times import FIRST_MS, moment
from service.inspector.weighing import afford


async def problems_of(look: Look, keys: RtqKeys, queue: str) -> Sequence[Problem]:
    """Counts first, so that they are told even where entries take all that may be read. What is wrong in a shared list
    and names no queue is told with each.
    """
    found = Findings()
    try:
        await no_times(look.reader, keys.delayed(queue), found)
        await _overdue(look, keys.delayed(queue), found)
        common, own = await _sweeps(look, keys, queue, found)
        everything = [*own, *common.in_flight.values(), common.dead]
        for looked in everything:
            _unreadable(looked, found)
            _partly(looked, found)
        for looked in own:
            _strangers(looked, queue, found)
        _in_flight(keys, common, queue, found)
        if repeated := _repeated(everything, queue):
            common, own = await _sweeps(look, keys, queue, Findings())
            still = _repeated([*own, *common.in_flight.values(), common.dead], queue)
            _tell_repeated({id_: where for id_, where in still.items() if id_ in repeated}, found)
    except OverBudget as error:
        found.add("not-all-looked-at", str(error))
    return found.problems


async def _sweeps(look: Look, keys: RtqKeys, queue: str, found: Findings) -> tuple[Shared, list[Sweep]]:
    common = await shared(look.reader, keys, found)
    own = (keys.pending(queue), keys.delayed(queue))
    return common, [await sweep(look.reader, it, found, SAMPLE) for it in own]


async def _overdue(look: Look, delayed: Structure, found: Findings) -> None:
    key, span = delayed.key, (FIRST_MS, f"({look.now_ms - LATE_MS}")
    few = await afford(look.reader, key, "ZCARD", EXAMPLES)
    replies = await look.reader.send(
        [("ZCOUNT", key, *span), ("ZRANGE", key, *span, "BYSCORE", "LIMIT", 0, few, "WITHSCORES")]
    )
    count, rows = (found.told(reply, key, []) for reply in replies)
    if count:
        detail = f"{count:,} due in delayed, which a worker of the queue moves within seconds while it is idle"
        since = moment(rows[1]) if rows else None
        found.add("due-not-moving", detail, ids_of(rows[::2]), count=count, since=since)


def _in_flight(keys: RtqKeys, common: Shared, queue: str, found: Findings) -> None:
    """A worker works on one task at a time, and the newest in its list is that one."""
    for key, looked in common.in_flight.items():
        left = [it.envelope.id for it in looked.entries[1:] if it.envelope and it.envelope.queue == queue]
        if left:
            worker = text_cut(keys.worker_of(key), 80)
            detail = f"worker {worker} holds {looked.total:,}, and works on one at a time: others wait for its restart"
            found.add("active-without-lease", detail, left)


def _unreadable(looked: Sweep, found: Findings) -> None:
    faults = Counter(it.fault for it in looked.entries if it.fault is not None)
    for fault, count in faults.most_common(EXAMPLES):
        found.add("does-not-parse", f"{text_cut(looked.structure.key)}: entries that are {fault}", count=count)


def _partly(looked: Sweep, found: Findings) -> None:
    if looked.unsought is not None:
        state, total = looked.structure.state, looked.unsought.total
        found.add("not-all-looked-at", f"{state}: {len(looked.entries):,} of {total:,} entries were looked into")


def _strangers(looked: Sweep, queue: str, found: Findings) -> None:
    """A retry would go to the queue that the envelope names."""
    ids = [it.envelope.id for it in looked.entries if it.envelope is not None and it.envelope.queue != queue]
    if ids:
        found.add("state-differs", f"entries in {looked.structure.state} that name another queue", ids)


def _repeated(sweeps: Sequence[Sweep], queue: str) -> dict[str, tuple[str, ...]]:
    """Ids with more than one entry, and the states of these. A task that moves meanwhile may be seen twice."""
    states = dict[str, list[str]]()
    for looked in sweeps:
        for seen in looked.of(queue):
            if seen.envelope is not None:
                states.setdefault(seen.envelope.id, []).append(looked.structure.state)
    return {id_: tuple(dict.fromkeys(where)) for id_, where in states.items() if len(where) > 1}


def _tell_repeated(repeated: Mapping[str, tuple[str, ...]], found: Findings) -> None:
    for where in sorted(set(repeated.values())):
        ids = [id_ for id_, it in repeated.items() if it == where]
        found.add("in-two-places", f"in {' and '.join(where)}" if len(where) > 1 else f"twice in {where[0]}", ids)
