"""What is wrong with the settings: all of it at once, each mistake under the name that was typed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from service.configuration.shape import Path, in_environment
from service.errors import CannotStart

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Given:
    """A value that somebody typed, and the name under which they did."""

    value: Any
    name: str
    source: str  #: `environment` or `file`


@dataclass(frozen=True, slots=True)
class Mistake:
    """`path` is the setting that cannot be used; `text` says why, without a secret's value."""

    path: Path
    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"


class SettingsError(CannotStart):
    """The settings cannot be used. The message lists all mistakes; so does `mistakes`, one text each."""

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        self.mistakes = tuple(dict.fromkeys(str(mistake) for mistake in mistakes))
        count = f"{len(self.mistakes)} settings are" if len(self.mistakes) > 1 else "1 setting is"
        super().__init__("\n  ".join([f"{count} wrong:", *self.mistakes]))


def typed(given: Mapping[Path, Given], path: Path) -> str:
    """The name under which `path`, or the group that holds it, was typed; the environment's for what was not typed."""
    return given[path].name if path in given else in_environment(path)


def validated(model: type[M], given: Mapping[Path, Given], **ready: Any) -> tuple[M, list[Mistake]]:
    """The model of what is given, and what is wrong with it.

    Where something is wrong, its default stands in, so that the rest can still be checked. `ready` are fields whose
    values need no check; what is given for them is passed over.
    """
    left = {path: one for path, one in given.items() if path[0] not in ready}
    mistakes: list[Mistake] = []
    while True:
        try:
            return model(**_tree(left), **ready), mistakes
        except ValidationError as error:
            # Without the input: it may be a secret.
            found = [_mistake(fault, left) for fault in error.errors(include_url=False, include_input=False)]
        mistakes += found
        bad = [mistake.path for mistake in found]
        left = {path: one for path, one in left.items() if not any(path[: len(at)] == at for at in bad)}


def _mistake(fault: Any, given: Mapping[Path, Given]) -> Mistake:
    path = tuple(str(part) for part in fault["loc"] if part != "[key]")
    while path not in given and not any(one[: len(path)] == path for one in given):
        path = path[:-1]  # inside a value: an element of a list, a member of a union
    below = next(one for one in given if one[: len(path)] == path)
    name = given[path].name if path in given else given[below].name
    cause = fault.get("ctx", {}).get("error")
    return Mistake(path, name, str(cause or fault["msg"]))


def _tree(given: Mapping[Path, Given]) -> dict[str, Any]:
    """Nested as the models are. What is given stays as it is: an empty group among it is filled as a copy."""
    root: dict[str, Any] = {}
    for path in sorted(given, key=len):
        group = root
        for part in path[:-1]:
            group = group.setdefault(part, {})
        value = given[path].value
        group[path[-1]] = dict(value) if isinstance(value, dict) else value
    return root
