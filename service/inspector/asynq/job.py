"""Everything about one Asynq task: which structures hold its id, what its hash says, and whether these agree."""

from typing import Final

from redis.exceptions import ResponseError

from service.inspector.answers import Fact, JobDetail
from service.inspector.asynq.keys import QueueKeys
from service.inspector.asynq.message import NotAMessage, TaskMessage, decode
from service.inspector.asynq.places import Places, places_of
from service.inspector.asynq.servers import worked_on_by
from service.inspector.asynq.sight import Sight, facts, payloads, shown, times
from service.inspector.asynq.verdicts import judge
from service.inspector.findings import Findings
from service.inspector.hashes import Record, record_of
from service.inspector.layout import Look
from service.inspector.payloads import text_cut
from service.inspector.reading import OverBudget, ReadOnly
from service.inspector.times import moment
from service.members import text_of

#: What may only look so because the task moved between two reads.
_PASSING: Final = frozenset(
    {"in-two-places", "id-without-record", "record-without-id", "state-differs", "active-without-lease"}
    | {"lease-without-active", "group-unlisted"}
)
_LOCK_BYTES: Final = 256  #: of what holds a unique lock: an id


async def job_of(look: Look, queue: str, id: str) -> JobDetail | None:  # noqa: A002  Asynq's own word
    """None if no structure holds the id, there is no hash of it, and everything was looked at.

    A task may move while it is looked at, and then be seen twice or nowhere: what does not fit is looked at once more.
    """
    seen = await _look_at(look, queue, id)
    if seen is not None and {problem.kind for problem in seen.problems} & _PASSING:
        seen = await _look_at(look, queue, id)
    return seen


async def _look_at(look: Look, queue: str, id_: str) -> JobDetail | None:
    keys, found = QueueKeys(queue), Findings()
    places, around = Places(), dict[str, Fact]()
    record, missing = await _record(look.reader, keys.task(id_), found)
    message = _message(record, id_, queue, found)
    try:
        places = await places_of(look.reader, keys, id_, _group(record, message), found)
        around = await _surroundings(look, id_, record, places, found)
    except OverBudget as error:
        found.add("not-all-looked-at", str(error))
    if missing and not places.held and not places.leased and not places.unsought and not found.problems:
        return None
    sight = Sight(id_, record, message, places, missing)
    judge(sight, look.now_ms, found)
    return JobDetail(
        "asynq",
        queue,
        id_,
        sight.really,
        places.held,
        places.unsought,
        facts(sight) | around,
        sight.said,
        sight.agrees,
        times(sight),
        payloads(sight, look.max_bytes),
        found.problems,
    )


async def _record(reader: ReadOnly, key: str, found: Findings) -> tuple[Record | None, bool]:
    """And whether there certainly is none."""
    try:
        record = await record_of(reader, key)
    except ResponseError as error:
        found.told(error, key, None)
    except OverBudget as error:
        found.add("not-all-looked-at", f"{error}: {text_cut(key)}")
    else:
        return record, record is None
    return None, False


def _message(record: Record | None, id_: str, queue: str, found: Findings) -> TaskMessage | None:
    if record is None:
        return None
    data, size = record.get("msg"), record.sizes_bytes.get(b"msg", 0)
    if data is None:
        if size:
            found.add("value-too-large", f"its message has {size:,} bytes", [id_])
        return None
    try:
        message = decode(data)
    except NotAMessage as error:
        found.add("does-not-parse", f"its message: {error}", [id_])
        return None
    if message.not_text:
        names = ", ".join(message.not_text)
        found.add("does-not-parse", f"its message cannot be read by Asynq: no UTF-8 in {names}", [id_])
    if (message.id, message.queue) != (shown(id_), shown(queue)):
        found.add("does-not-parse", "its message names another task or another queue", [id_])
    return message


def _group(record: Record | None, message: TaskMessage | None) -> str | None:
    """The hash says it of a task that waits in one; the message of every task that was meant for one."""
    said = record.get("group") if record else None
    return text_of(said) if said else (message.group if message else None) or None


async def _surroundings(
    look: Look, id_: str, record: Record | None, places: Places, found: Findings
) -> dict[str, Fact]:
    """What other keys say of it."""
    told: dict[str, Fact] = {}
    worker = await worked_on_by(look, id_, found) if "active" in places.states else None
    if worker is not None:
        told["worked_on_by"] = worker
    lock = record.get("unique_key") if record else None
    if lock:
        holder, left_ms = await look.reader.send([("GETRANGE", lock, 0, _LOCK_BYTES), ("PTTL", lock)])
        holder = found.told(holder, f"its lock {text_of(lock)}", b"")
        whose = "this task" if text_of(holder) == id_ else f"another task: {text_cut(holder, 80)}"
        told["unique_lock"] = f"held by {whose}" if holder else "free"
        if holder and isinstance(left_ms, int) and left_ms > 0:
            told["unique_lock_ends"] = moment(look.now_ms + left_ms)
    return told
