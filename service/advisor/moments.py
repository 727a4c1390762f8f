"""Times that other libraries wrote into a job: ISO 8601 text, or a number whose unit shows by its size."""

from datetime import UTC, datetime

from service.inspector.times import FIRST_MS, Moment, moment


def written(value: object) -> Moment | None:
    """The moment that an ISO 8601 text says; without an offset it is UTC. None for what says none."""
    text = value.decode("ascii", "replace") if isinstance(value, bytes) else value
    if not isinstance(text, str) or len(text) > 40:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def counted(value: object) -> Moment | None:
    """The moment that a number says: seconds or, from 1973 on if they were that, milliseconds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return moment(value) if abs(value) >= FIRST_MS else moment(value, per_ms=0.001)
