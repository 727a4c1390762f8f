"""One job of Coatcheck's: by its reference, or by its uuid alone, which has to be sought."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from service.inspector.answers import Fact, JobDetail, Unsought
from service.inspector.coatcheck.members import INLINE, Member, member_of, record_of
from service.inspector.coatcheck.sight import Sight, sets_of, sight_of
from service.inspector.findings import Findings
from service.inspector.layout import Look
from service.inspector.payloads import READ_BYTES, Payload, rendered, text_cut, unread
from service.inspector.reading import PAGE, Command, OverBudget
from service.inspector.times import Moment, moment
from service.inspector.weighing import afford
from service.keys import QueueKeys

_PAGES: Final = 10  #: of PAGE members at each end of each set, where a uuid is sought
_UUID: Final = 36
_FIELDS: Final = 50  #: of a record that are shown; ours have five
_TRACEBACK: Final = "traceback"  #: of a record of a worker's; shown apart, for a line would cut it above what matters
_TRACEBACK_BYTES: Final = 8192  #: all that workers keep


async def job_detail(look: Look, of: QueueKeys, queue: str, id_: str) -> JobDetail | None:
    """None: no set holds it, nothing is kept of it, and everything was asked."""
    seeking = Findings()
    member, unsought = await _member(look, sets_of(of), id_, seeking)
    sight, found = await _judged(look, of, member)
    if found.problems:  # it may have moved between two reads
        sight, found = await _judged(look, of, member)
    problems = (*seeking.problems, *found.problems)
    if sight.is_nothing and not (unsought or problems):
        return None
    payload = await _payload(look, of, member, sight, found)
    marker = text_cut(sight.marker) if sight.marker else None  # its value is what became of the job
    return JobDetail(
        layout="coatcheck",
        queue=queue,
        id=text_cut(member.text),
        state=next((place.state for place in sight.places), marker),
        places=sight.places,
        unsought=unsought,
        record=_record(member, sight),
        agrees=not found.problems if sight.places else None,
        times=_times(member, sight),
        payloads=({} if payload is None else {"payload": payload}) | _traceback(look, sight),
        problems=problems,
    )


async def _judged(look: Look, of: QueueKeys, member: Member) -> tuple[Sight, Findings]:
    found = Findings()
    sight = await sight_of(look, of, member, found)
    _judge(member, sight, found)
    return sight, found


async def _member(look: Look, sets: Mapping[str, str], id_: str, found: Findings) -> tuple[Member, list[Unsought]]:
    """The member that `id_` names. A uuid is not enough to ask for it: it is sought from both ends of each set."""
    named = member_of(id_.encode("utf-8", "surrogateescape"), 0)
    if named.reference or len(id_) != _UUID:
        return named, []
    unsought: list[Unsought] = []
    for state, key in sets.items():
        [total] = await look.reader.send([("ZCARD", key)])
        total = found.told(total, key, 0)
        page, seen = await afford(look.reader, key, "ZCARD", PAGE), 0
        try:
            while page and seen < min(_PAGES * PAGE, (total + 1) // 2):
                ends: list[Command] = [("ZRANGE", key, seen, seen + page - 1), ("ZRANGE", key, -seen - page, -seen - 1)]
                for member in (each for reply in await look.reader.send(ends) for each in found.told(reply, key, [])):
                    if member.endswith(id_.encode("utf-8", "surrogateescape")):
                        return member_of(member, 0), []
                seen += page
        except OverBudget as error:
            found.add("not-all-looked-at", f"{error}: {text_cut(key)} only in part")
        if 2 * seen < total:
            unsought.append(Unsought(state, key, seen, total))
    return Member(id_, 0, None, id_), unsought


def _judge(member: Member, sight: Sight, found: Findings) -> None:
    """Whether all this can be true at once."""
    ids, states = [member.text], [place.state for place in sight.places]
    inline = member.backend == INLINE
    if len(states) > 1:
        found.add("in-two-places", f"it is {' and '.join(states)}", ids)
    if states and not member.reference:
        found.add("does-not-parse", "it is no reference", ids)
    if sight.is_living and inline and sight.body_bytes is None:
        found.add("id-without-record", "it is inline, and its payload is not in the bodies hash", ids)
    if sight.body_bytes is not None and not (sight.is_living and inline):
        found.add("kept-for-nobody", "a payload is in the bodies hash, and no job needs it", ids)
    _judge_record(ids, states, sight, found)
    if sight.moved is not None and moment(sight.moved) is None:
        found.add("score-no-time", "the time that it was moved to is none", ids)
    for place in sight.places:
        if place.at is None:
            found.add("score-no-time", f"its score in {text_cut(place.key)} is no time", ids)


def _judge_record(ids: Sequence[str], states: Sequence[str], sight: Sight, found: Findings) -> None:
    if sight.trouble is None:
        return
    told = record_of(sight.trouble)
    if told is None:
        found.add("does-not-parse", "its record of trouble is no JSON object", ids)
    elif "reason" in told and states and "dead" not in states:
        found.add("state-differs", "its record says why it is dead, and it is not in the dead set", ids)


async def _payload(look: Look, of: QueueKeys, member: Member, sight: Sight, found: Findings) -> Payload | None:
    """Of an inline job. What another backend holds is not here: `coatcheck job --payload` asks the service for it."""
    if sight.body_bytes is None:
        return None
    if sight.body_bytes > READ_BYTES:
        return unread(sight.body_bytes)
    [body] = await look.reader.send([("HGET", of.bodies, member.id)])
    body = found.told(body, of.bodies, None)
    return None if body is None else rendered(body, look.max_bytes)


def _traceback(look: Look, sight: Sight) -> dict[str, Payload]:
    told = str((record_of(sight.trouble) or {}).get(_TRACEBACK, ""))
    data = told.encode("utf-8", "backslashreplace")
    return {_TRACEBACK: rendered(data, max(_TRACEBACK_BYTES, look.max_bytes))} if data else {}


def _record(member: Member, sight: Sight) -> dict[str, Fact]:
    told: dict[str, Fact] = {}
    if member.reference:
        told |= {"backend": member.reference.backend, "queue_in_reference": member.reference.queue}
    trouble = record_of(sight.trouble)
    if trouble is not None:
        facts = [(name, value) for name, value in trouble.items() if name != _TRACEBACK]
        told |= {text_cut(name, 100): _fact(name, value) for name, value in facts[:_FIELDS]}
    elif sight.trouble is not None:
        told["trouble"] = rendered(sight.trouble) if sight.trouble else unread(sight.trouble_bytes)
    if sight.body_bytes is not None:
        told["payload_bytes"] = sight.body_bytes
    return told


def _fact(name: str, value: Any) -> Fact:
    if name == "at" and (at := moment(value)):
        return at
    return value if isinstance(value, int | float | bool | None) else text_cut(str(value))


def _times(member: Member, sight: Sight) -> dict[str, Moment]:
    times: dict[str, Moment | None] = {}
    if member.reference:
        first = moment(member.reference.ts_ms)
        times |= {"accepted": _made(member.reference.uuid), "due": moment(sight.moved) or first}
        if sight.moved is not None:
            times["due_first"] = first
    for place in sight.places:
        if place.state != "delayed":
            times[str(place.at_is).replace(" ", "_")] = place.at
        elif place.at != times.get("due"):
            times["next_attempt"] = place.at
    times["marker_expires"] = sight.marker_expires
    return {name: at for name, at in times.items() if at is not None}


def _made(uuid: str) -> Moment | None:
    """When a UUIDv7 was made, which is when its job was accepted."""
    return moment(int(uuid[:8] + uuid[9:13], 16)) if uuid[14] == "7" else None
