"""What a lane has yet to tell Redis, in pieces that one script may take."""

from service.runner import MAX_BYTES, MAX_MEMBERS
from service.worker.outgoing import Outgoing
from service.worker.source import Condemned, Entry
from tests.kit.sources import placed


def test_what_goes_back_goes_in_pieces_the_newest_first() -> None:
    """Each piece is put where it is taken next: so the oldest of all is the first again."""
    outgoing = Outgoing()
    outgoing.returned = [_entry(b"%d" % number) for number in range(2_500)] + [_entry(b"x" * MAX_BYTES)]
    taken = outgoing.returned.copy()
    pieces = []
    while outgoing.urgent:
        pieces.append(outgoing.take_returned())
    assert [len(piece) for piece in pieces] == [1, MAX_MEMBERS, MAX_MEMBERS, 500]
    assert [entry for piece in reversed(pieces) for entry in piece] == taken


def test_what_is_kept_of_dead_jobs_counts_as_bytes_too() -> None:
    """A traceback is larger than most payloads."""
    outgoing = Outgoing()
    outgoing.condemned = [Condemned(_entry(b"x"), placed(b"x"), "{}" * 4_000) for _ in range(1_000)]
    assert len(outgoing.take(outgoing.condemned)) == MAX_BYTES // 8_002


def _entry(payload: bytes) -> Entry:
    return Entry(payload, payload, "worker")
