"""What does not fit about one Asynq task."""

from typing import Final

from service.inspector.asynq.sight import Sight
from service.inspector.findings import Findings
from service.inspector.payloads import text_cut

#: A due task moves within 5 s, and a lease that ended is noticed 30 to 90 s later, where a server of the queue runs.
LATE_MS: Final = 30_000


def judge(sight: Sight, now_ms: int, found: Findings) -> None:
    """Whether all that was seen can be true at once."""
    _of_places(sight, found)
    if sight.record is not None:
        _of_record(sight, found)
    _of_lease(sight, now_ms, found)
    _of_times(sight, now_ms, found)


def _of_places(sight: Sight, found: Findings) -> None:
    states = sight.places.states
    if len(states) > 1:
        found.add("in-two-places", f"it is {' and '.join(states)}", [sight.id])
    if sight.missing and states:
        found.add("id-without-record", f"it is {states[0]}, and has no hash", [sight.id])
    if sight.places.unlisted_group is not None:
        found.add("group-unlisted", f"group {text_cut(sight.places.unlisted_group, 80)}", [sight.id])


def _of_record(sight: Sight, found: Findings) -> None:
    states, said, record = sight.places.states, sight.said, sight.record
    lacking = [name for name in ("msg", "state") if record and not record.sizes_bytes.get(name.encode())]
    if lacking:
        found.add("record-incomplete", f"its hash has no {' and no '.join(lacking)}", [sight.id])
    if not states and not sight.places.unsought:
        found.add("record-without-id", f"its hash says {said or 'no state'}", [sight.id])
    elif states and said is not None and said not in states:
        found.add("state-differs", f"its hash says {said}, and it is {states[0]}", [sight.id])


def _of_lease(sight: Sight, now_ms: int, found: Findings) -> None:
    places, ends = sight.places, sight.places.lease_ends
    if "active" in places.states:
        if not places.leased:
            found.add("active-without-lease", "it is active, and has no lease", [sight.id])
        elif ends is None:
            found.add("score-no-time", "its lease ends at no time that there is", [sight.id])
        elif ends.ms < now_ms:
            found.add("lease-expired", "its lease is over", [sight.id], since=ends)
    elif places.leased and not any(it.state == "active" for it in places.unsought):
        found.add("lease-without-active", "it has a lease, and is not active", [sight.id])


def _of_times(sight: Sight, now_ms: int, found: Findings) -> None:
    for place in sight.places.held:
        if place.at_is and place.at is None:
            found.add("score-no-time", f"its score in {text_cut(place.key)} is no time", [sight.id])
        elif place.at_is == "due" and place.at and place.at.ms < now_ms - LATE_MS:
            found.add("due-not-moving", f"it is due, and still {place.state}", [sight.id], since=place.at)
