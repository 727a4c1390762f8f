"""What a look finds wrong on its way: error replies become problems, and nothing is told twice."""

from collections.abc import Sequence
from typing import Any, Final

from redis.exceptions import NoPermissionError, ResponseError

from service.inspector.answers import Problem
from service.inspector.layout import EXAMPLES
from service.inspector.payloads import text_cut
from service.inspector.times import Moment

_MOST: Final = 100  #: problems of one look


class Findings:
    """Gathers the problems of one look."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Problem] = {}

    @property
    def problems(self) -> Sequence[Problem]:
        """In the order in which they were found."""
        return tuple(self._found.values())

    def add(
        self,
        kind: str,
        detail: str,
        ids: Sequence[str] = (),
        *,
        count: int | None = None,
        since: Moment | None = None,
    ) -> None:
        """One problem; of `ids`, some are named, and all are counted unless `count` says how many there are."""
        told = tuple(text_cut(each) for each in ids[:EXAMPLES])
        if len(self._found) < _MOST:
            counted = count if count is not None else len(ids) or None
            self._found.setdefault((kind, detail), Problem(kind, detail, told, counted, since))

    def told(self, reply: Any, key: str, default: Any) -> Any:
        """`reply`, or, if it is an error, `default`, and a problem of this key."""
        if not isinstance(reply, Exception):
            return reply
        name = text_cut(key)
        if isinstance(reply, ResponseError) and str(reply).startswith("WRONGTYPE"):
            self.add("wrong-type", f"{name} holds another type than it should")
        elif isinstance(reply, NoPermissionError):
            self.add("unreadable", f"{name} may not be read by this user")
        else:
            self.add("unreadable", f"{name} cannot be read: {text_cut(str(reply), 80)}")
        return default
