"""Where settings come from: the environment, and the TOML file it names. A value keeps the name it was typed under."""

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path as FilePath
from typing import Any

from service.configuration.links import is_service_link
from service.configuration.mistakes import Given, Mistake
from service.configuration.shape import PREFIX, Path, Shape, in_environment, in_file, is_group, is_setting, nearest

_FILE: Path = ("config_file",)


@dataclass(frozen=True, slots=True)
class Reading:
    """What was typed, by path, and what of it is no setting. An empty group is a value, too: `[queues.mail]`."""

    given: dict[Path, Given]
    mistakes: list[Mistake]


@dataclass(frozen=True, slots=True)
class _Reader:
    """Sorts typed values into settings and mistakes. `spell` is how its source spells a path."""

    shape: Shape
    source: str
    spell: Callable[[Path], str]
    into: Reading

    def take(self, path: Path, value: Any) -> None:
        if is_group(self.shape, path) and not isinstance(value, dict):
            self.refuse(path, "is a group of settings, not a value")
        elif is_group(self.shape, path) and value:
            for name, inner in value.items():
                self.take((*path, name), inner)
        elif is_group(self.shape, path) or is_setting(self.shape, path):
            self.into.given[path] = Given(value, self.spell(path), self.source)
        else:
            meant = nearest(self.shape, path)
            self.refuse(path, "is no setting" + (f"; did you mean {self.spell(meant)}?" if meant else ""))

    def refuse(self, path: Path, text: str) -> None:
        self.into.mistakes.append(Mistake(path, self.spell(path), text))


def read(environ: Mapping[str, str], shape: Shape) -> Reading:
    """Everything that the environment and its file say; the environment wins, setting by setting."""
    environment = _environment(environ, shape)
    file = environment.given.get(_FILE)
    if file is None or not file.value:
        return environment
    typed = _file(file, shape)
    return Reading(typed.given | environment.given, environment.mistakes + typed.mistakes)


def _environment(environ: Mapping[str, str], shape: Shape) -> Reading:
    reading = Reading({}, [])
    # Groups first: a variable of its own wins over the JSON of its group.
    for path, group in groupby(sorted(_ours(environ), key=lambda one: (len(one[0]), one)), key=lambda one: one[0]):
        (_, name), *others = group
        reader = _Reader(shape, "environment", _speller(name, path), reading)
        if others:
            reader.refuse(path, f"is set twice, as {others[0][1]} too")
        elif path[0] == "queues" and _mixed_case(name):
            reader.refuse(
                path, f"the environment cannot spell a queue with capitals: use JSON in {PREFIX}QUEUES, or TOML"
            )
        elif is_group(shape, path):
            _take_json(reader, path, environ[name])
        else:
            reader.take(path, environ[name])
    return reading


def _ours(environ: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    for name, value in environ.items():
        if name.upper().startswith(PREFIX) and not is_service_link(name, value):
            yield tuple(name[len(PREFIX) :].lower().split("__")), name


def _speller(name: str, at: Path) -> Callable[[Path], str]:
    """Spells paths as a variable called `name` can: itself as it was typed, what is in its JSON by subscripts."""

    def spell(path: Path) -> str:
        if path == at or path[: len(at)] != at:
            return name if path == at else in_environment(path)
        return name + "".join(f"[{json.dumps(part)}]" for part in path[len(at) :])

    return spell


def _mixed_case(name: str) -> bool:
    _, _, rest = name.partition("__")
    queue = rest.split("__")[0]
    return queue not in (queue.lower(), queue.upper())


def _take_json(reader: _Reader, path: Path, text: str) -> None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        where = f": {error.msg}, at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else ""
        reader.refuse(path, f"is a group of settings, so its value must be a JSON object{where}")
    else:
        reader.take(path, value)


def _file(named: Given, shape: Shape) -> Reading:
    reading = Reading({}, [])
    try:
        values = tomllib.loads(FilePath(named.value).read_text("utf-8"))
    except OSError as error:
        reading.mistakes.append(Mistake(_FILE, named.name, f"{named.value} cannot be read: {error.strerror}"))
    except (ValueError, RecursionError) as error:
        what = error if isinstance(error, tomllib.TOMLDecodeError) else "no UTF-8 text"
        reading.mistakes.append(Mistake(_FILE, named.name, f"{named.value} is no TOML: {what}"))
    else:
        reader = _Reader(shape, "file", lambda path: f"{in_file(path)} (in {named.value})", reading)
        for name, value in values.items():
            if (name,) == _FILE:
                reader.refuse(_FILE, "a file cannot name another one")
            else:
                reader.take((name,), value)
    return reading
