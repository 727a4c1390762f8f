"""One job of Coatcheck's: by its reference, or by its uuid alone, which has to be sought."""

from collections.abc import Mapping
from typing import Any, Final

from service.inspector.answers import Fact, JobDetail, Place, Unsought
from service.inspector.coatcheck_members import INLINE, Member, Members, member_of, record_of
from service.inspector.findings import Findings
from service.inspector.layout import Look
from service.inspector.payloads import READ_BYTES, Payload, rendered, text_cut, unread
from service.inspector.reading import PAGE, Command, OverBudget
from service.inspector.times import Moment, moment
from service.keys import QueueKeys

#: In the order of asking: a leased job is in somebody's hands whatever else is written; trash is of jobs that ended.
_AT_IS: Final = {"leased": "lease ends", "delayed": "due", "dead": "died", "trash": "deletion is due"}
_LIVING: Final = {"leased", "delayed", "dead"}
_PAGES: Final = 10  #: of PAGE members at each end of each set, where a uuid is sought
_UUID: Final = 36
_NUMBER: Final = 64  #: bytes; what is longer is no time


async def job_detail(look: Look, of: QueueKeys, queue: str, id_: str) -> JobDetail | None:
    """None: no set holds it, nothing is kept of it, and everything was asked."""
    found = Findings()
    sets = _sets(of)
    member, unsought = await _member(look, sets, id_, queue, found)
    scores = await Members(look.reader, queue).scores(list(sets.values()), [member.text], found)
    places = [
        Place(state, key, moment(score), _AT_IS[state])
        for (state, key), [score] in zip(sets.items(), scores, strict=True)
        if score is not None
    ]
    kept = await _kept(look, of, member, found)
    if not (places or kept or unsought or found.problems):
        return None
    state = next((place.state for place in places), kept.get("cancelled"))  # the marker's value is what became of it
    _judge(member, places, kept, found)
    payload = await _payload(look, of, member, kept, found)
    return JobDetail(
        layout="coatcheck",
        queue=queue,
        id=text_cut(member.text, 400),
        state=state,
        places=places,
        unsought=unsought,
        record=_record(member, kept),
        agrees=not found.problems if places else None,
        times=_times(member, places, kept),
        payloads={} if payload is None else {"payload": payload},
        problems=found.problems,
    )


def _sets(of: QueueKeys) -> dict[str, str]:
    return {"leased": of.leases, "delayed": of.delayed, "dead": of.dead, "trash": of.trash}


async def _member(
    look: Look, sets: Mapping[str, str], id_: str, queue: str, found: Findings
) -> tuple[Member, list[Unsought]]:
    """The member that `id_` names. A uuid is not enough to ask for it: it is sought from both ends of each set."""
    named = member_of(id_.encode("utf-8", "surrogateescape"), 0)
    if named.reference or len(id_) != _UUID:
        return named, []
    unsought: list[Unsought] = []
    for state, key in sets.items():
        [total] = await look.reader.send([("ZCARD", key)])
        total = found.told(total, key, 0)
        seen = 0
        try:
            while seen < min(_PAGES * PAGE, (total + 1) // 2):
                ends: list[Command] = [("ZRANGE", key, seen, seen + PAGE - 1), ("ZRANGE", key, -seen - PAGE, -seen - 1)]
                for member in (each for page in await look.reader.send(ends) for each in found.told(page, key, [])):
                    if member.endswith(id_.encode("utf-8", "surrogateescape")):
                        return member_of(member, 0), []
                seen += PAGE
        except OverBudget as error:
            found.add("not-all-looked-at", f"{error}: {text_cut(key)} only in part")
        if 2 * seen < total:
            unsought.append(Unsought(state, key, seen, total))
    return Member(id_, 0, None, id_), unsought


async def _kept(look: Look, of: QueueKeys, member: Member, found: Findings) -> dict[str, Any]:
    """What is written of the job beside the sets; fields that are not there are not in the answer."""
    cancelled = of.cancelled(member.id)
    replies = await look.reader.send(
        [
            ("HSTRLEN", of.bodies, member.id),
            ("HEXISTS", of.bodies, member.id),
            ("HSTRLEN", of.trouble, member.id),
            ("HSTRLEN", of.moved, member.id),
            ("GETRANGE", cancelled, 0, 31),
            ("PTTL", cancelled),
        ]
    )
    keys = (of.bodies, of.bodies, of.trouble, of.moved, cancelled, cancelled)
    size, has_body, trouble, moved, marker, expires_in = (
        found.told(reply, key, None) for reply, key in zip(replies, keys, strict=True)
    )
    kept: dict[str, Any] = {"body_bytes": size} if has_body else {}
    if trouble:
        kept["trouble_bytes"] = trouble
        [text] = await look.reader.send([("HGET", of.trouble, member.id)]) if trouble <= READ_BYTES else [b""]
        kept["trouble"] = found.told(text, of.trouble, b"")
    if moved:
        [due] = await look.reader.send([("HGET", of.moved, member.id)]) if moved <= _NUMBER else [b""]
        kept["moved"] = found.told(due, of.moved, b"")
    if marker:
        kept["cancelled"] = text_cut(marker)
        kept["cancelled_expires_ms"] = look.now_ms + expires_in if expires_in and expires_in > 0 else None
    return kept


def _judge(member: Member, places: list[Place], kept: Mapping[str, Any], found: Findings) -> None:
    """Whether all this can be true at once."""
    if len(places) > 1:
        found.add("in-two-places", f"it is {' and '.join(place.state for place in places)}", [member.text])
    living = any(place.state in _LIVING for place in places)
    inline = member.backend == INLINE
    if living and inline and "body_bytes" not in kept:
        found.add("id-without-record", "it is inline, and its payload is not in the bodies hash", [member.text])
    if "body_bytes" in kept and not (living and inline):
        found.add("kept-for-nobody", "a payload is in the bodies hash, and no job needs it", [member.text])
    if places and not member.reference:
        found.add("does-not-parse", "it is no reference", [member.text])
    if "trouble" in kept:
        told = record_of(kept["trouble"])
        if told is None:
            found.add("does-not-parse", "its record of trouble is no JSON object", [member.text])
        elif "reason" in told and places and not any(place.state == "dead" for place in places):
            found.add("state-differs", "its record says why it is dead, and it is not in the dead set", [member.text])
    if "moved" in kept and moment(kept["moved"]) is None:
        found.add("score-no-time", "the time that it was moved to is none", [member.text])
    for place in (each for each in places if each.at is None):
        found.add("score-no-time", f"its score in {text_cut(place.key)} is no time", [member.text])


async def _payload(
    look: Look, of: QueueKeys, member: Member, kept: Mapping[str, Any], found: Findings
) -> Payload | None:
    """Of an inline job. What another backend holds is not here: `coatcheck job --payload` asks the service for it."""
    size = kept.get("body_bytes")
    if size is None:
        return None
    if size > READ_BYTES:
        return unread(size)
    [body] = await look.reader.send([("HGET", of.bodies, member.id)])
    body = found.told(body, of.bodies, None)
    return None if body is None else rendered(body, look.max_bytes)


def _record(member: Member, kept: Mapping[str, Any]) -> dict[str, Fact]:
    told: dict[str, Fact] = {}
    if member.reference:
        told["backend"] = member.reference.backend
        told["queue_in_reference"] = member.reference.queue
    trouble = record_of(kept.get("trouble"))
    if trouble is not None:
        told |= {
            str(name)[:100]: (moment(value) if name == "at" else None) or _fact(value)
            for name, value in list(trouble.items())[:50]
        }
    elif "trouble" in kept:
        told["trouble"] = rendered(kept["trouble"], size_bytes=kept["trouble_bytes"])
    if "body_bytes" in kept:
        told["payload_bytes"] = kept["body_bytes"]
    return told


def _fact(value: Any) -> Fact:
    return value if isinstance(value, int | float | bool | None) else text_cut(str(value))


def _times(member: Member, places: list[Place], kept: Mapping[str, Any]) -> dict[str, Moment]:
    times: dict[str, Moment | None] = {}
    if member.reference:
        made = _made(member.reference.uuid)
        times["accepted"] = made
        times["due"] = moment(kept.get("moved")) or moment(member.reference.ts_ms)
        if "moved" in kept:
            times["due_first"] = moment(member.reference.ts_ms)
    for place in places:
        if place.state != "delayed" or place.at != times.get("due"):
            times["next_attempt" if place.state == "delayed" else (place.at_is or "").replace(" ", "_")] = place.at
    if kept.get("cancelled_expires_ms"):
        times["marker_expires"] = moment(kept["cancelled_expires_ms"])
    return {name: at for name, at in times.items() if at is not None}


def _made(uuid: str) -> Moment | None:
    """When a UUIDv7 was made, which is when its job was accepted."""
    return moment(int(uuid[:8] + uuid[9:13], 16)) if uuid[14] == "7" else None
