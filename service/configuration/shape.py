"""Which settings there are, read off the models; how each is spelt; which one a misspelt name was meant to be.

A path is a setting's name in parts: `("dispatcher", "lease")`. In a pattern, a part in angle brackets stands for any
name: `("queues", "<queue>", "max_ready")`.
"""

import json
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Final, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

PREFIX: Final = "COATCHECK_"

Path = tuple[str, ...]
Shape = Mapping[Path, FieldInfo]  #: pattern -> the knob there

#: The groups whose members have names of the user's choice.
ANY: Final = {"backends": "<backend>", "tenants": "<tenant>", "queues": "<queue>"}


def shape_of(model: type[BaseModel]) -> Shape:
    """Every knob of `model`, by pattern, in the order of the source."""
    return dict(_knobs(model, ()))


def is_setting(shape: Shape, path: Path) -> bool:
    return any(_fits(path, pattern) for pattern in shape if len(pattern) == len(path))


def is_group(shape: Shape, path: Path) -> bool:
    """Are there settings below `path`? Then its value is an object of JSON or a table of TOML."""
    return any(_fits(path, pattern) for pattern in shape if len(pattern) > len(path))


def in_environment(path: Path) -> str:
    """`COATCHECK_DISPATCHER__LEASE`; if the environment cannot spell `path`, the JSON that can."""
    names_at = next((index for index, part in enumerate(path) if not _spellable(part)), len(path))
    head = PREFIX + "__".join(path[:names_at]).upper()
    return head + "".join(f"[{json.dumps(part)}]" for part in path[names_at:])


def in_file(path: Path) -> str:
    """`dispatcher.lease`, as a TOML key."""
    return ".".join(part if part.replace("_", "").replace("-", "").isalnum() else json.dumps(part) for part in path)


def nearest(shape: Shape, path: Path) -> Path | None:
    """The setting that a misspelt `path` comes closest to, None if it resembles none."""
    likeness, pattern = max((_likeness(path, pattern), pattern) for pattern in shape)
    if likeness < 0.55:
        return None
    return tuple(path[i] if part[0] == "<" and i < len(path) else part for i, part in enumerate(pattern))


def _likeness(path: Path, pattern: Path) -> float:
    """From 0 to 1. What both begin with does not count: it would make all members of a group look alike."""
    wanted = [part for part in pattern if part[0] != "<"]
    typed = [part for part, there in zip_longest(path, pattern, fillvalue="") if part and there[:1] != "<"]
    while typed[:1] == wanted[:1] and len(typed) > 1 and len(wanted) > 1:
        typed, wanted = typed[1:], wanted[1:]
    return SequenceMatcher(None, "__".join(typed).lower(), "__".join(wanted)).ratio()


def _knobs(model: type[BaseModel], at: Path) -> Iterator[tuple[Path, FieldInfo]]:
    for attribute, field in model.model_fields.items():
        path = (*at, field.alias or attribute)
        group = _group(field)
        if group is None and attribute in ANY:
            yield (*path, ANY[attribute], "<option>"), field
        elif group is None:
            yield path, field
        else:
            yield from _knobs(group, (*path, ANY[attribute]) if attribute in ANY else path)


def _group(field: FieldInfo) -> type[BaseModel] | None:
    """The model of the group, or of each member, that this field holds."""
    kinds = [field.annotation, *get_args(field.annotation)]
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def _fits(path: Path, pattern: Path) -> bool:
    return all(part == wanted or wanted[0] == "<" for part, wanted in zip(path, pattern, strict=False))


def _spellable(part: str) -> bool:
    return part[:1] == "<" or (part.replace("_", "").isalnum() and part == part.lower() and "__" not in part)
