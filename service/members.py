"""Members of a queue's sets: mostly references, but a hand may have put any bytes there, and none may stop a loop."""

import hashlib

from storage_backends.reference import InvalidName, Reference


def text_of(member: bytes) -> str:
    """A member as text. What is no reference may be any bytes, and goes back to Redis as the same ones."""
    return member.decode("utf-8", "surrogateescape")


def reference_of(member: str, queue: str | None = None) -> Reference | None:
    """None for what is no reference, or, if `queue` is given, one of another queue: what it names may be in use."""
    try:
        reference = Reference.parse(member)
    except InvalidName:
        return None
    return reference if queue in (None, reference.queue) else None


def backend_of(member: str) -> str:
    """For the metrics; what is no reference has none."""
    reference = reference_of(member)
    return reference.backend if reference else ""


def loggable(member: str) -> str:
    """A reference as it is; of anything else its sha1, by which its trouble is kept, for it may be a whole payload."""
    if reference_of(member):
        return member
    return hashlib.sha1(member.encode("utf-8", "surrogateescape"), usedforsecurity=False).hexdigest()
