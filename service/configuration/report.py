"""Settings for people: the table of all there are, and those in effect with their origin, secrets masked."""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, get_args, get_origin
from urllib.parse import urlsplit

from pydantic import BaseModel

from service.configuration.backends import BackendSettings, hints_of, is_secret
from service.configuration.mistakes import Given
from service.configuration.shape import ANY, Path, in_environment, shape_of
from service.configuration.types import marks
from service.settings import Settings
from service.units import format_duration
from storage_backends import registry

_MASK = "***"
_password_in_query = re.compile(r"([?&][^=&#]*pass[^=&#]*=)[^&#]*", re.IGNORECASE)  # redis-py reads one there, too


class Setting(NamedTuple):
    """One line of the table of settings. `default` is spelt as the environment spells it; "" is unset."""

    name: str
    type: str
    default: str
    meaning: str
    secret: bool


class Effective(NamedTuple):
    """One value in effect, fit to be shown. `source` is `default`, `environment` or `file`."""

    name: str
    value: str
    source: str
    secret: bool


def table() -> list[Setting]:
    """All settings: of tenants and queues for `<TENANT>` and `<QUEUE>`, of backends for one called as its kind.

    Imports every kind of backend that is installed.
    """
    lines: list[Setting] = []
    for path, field in shape_of(Settings).items():
        if path[0] == "backends":
            lines += _backend_lines()
        else:
            hint = field.rebuild_annotation()
            text, meaning = _spelt(field.default, hint), field.description or ""
            lines.append(Setting(in_environment(path), _word(hint), text, meaning, not field.repr))
    return lines


def effective(settings: Settings) -> list[Effective]:
    """Every value in effect, in the order of the table, without what tenants and queues leave to the general setting.

    No secret is in it: a URL keeps all but its password, any other secret is `***`.
    """
    lines: list[Effective] = []
    for pattern, field in shape_of(settings.__class__).items():
        if pattern[0] == "backends":
            for name, backend in sorted(settings.backends.items()):
                lines += _effective_options(name, backend, settings.origins)
            continue
        for path in _filled(settings, pattern):
            value = _value(settings, path)
            if value is not None:
                given = path in settings.origins
                text = _spelt(value if given else field.default, field.rebuild_annotation())
                lines.append(_line(path, text, settings.origins, secret=not field.repr))
    return lines


def _line(path: Path, text: str, origins: Mapping[Path, Given], *, secret: bool) -> Effective:
    source = origins[path].source if path in origins else "default"
    return Effective(in_environment(path), _masked(text, secret=secret), source, secret)


def _filled(settings: Settings, pattern: Path) -> Iterator[Path]:
    """The paths that a pattern stands for, given which tenants and queues are configured."""
    if len(pattern) > 1 and pattern[1] == ANY.get(pattern[0]):
        for name in sorted(getattr(settings, pattern[0])):
            yield (pattern[0], name, *pattern[2:])
    else:
        yield pattern


def _value(at: Any, path: Path) -> Any:
    for part in path:
        if isinstance(at, BaseModel):
            fields = at.__class__.model_fields
            at = getattr(at, next(name for name, field in fields.items() if field.alias == part))
        else:
            at = at[part]
    return at


def _backend_lines() -> Iterator[Setting]:
    name = "COATCHECK_BACKENDS__<BACKEND>__KIND"
    yield Setting(name, " or ".join(registry.kinds()), "", "Its kind; needed unless its name is one", secret=False)
    for kind in registry.kinds():
        options = registry.options_of(kind)
        hints = hints_of(options)
        for field in dataclasses.fields(options):
            if field.name in hints:
                hint, path = hints[field.name], ("backends", kind, field.name)
                default = None if field.default is dataclasses.MISSING else field.default
                meaning = field.metadata.get("meaning", f"Option of backends of kind {kind!r}")
                secret = is_secret(hint)
                yield Setting(in_environment(path), _word(hint), _spelt(default, hint), meaning, secret)


def _effective_options(name: str, backend: BackendSettings, origins: Mapping[Path, Given]) -> Iterator[Effective]:
    yield _line(("backends", name, "kind"), backend.kind, origins, secret=False)
    for option, hint in hints_of(type(backend.options)).items():
        text = _spelt(getattr(backend.options, option), hint)
        yield _line(("backends", name, option), text, origins, secret=is_secret(hint))


def _spelt(value: Any, hint: Any) -> str:
    """As the environment spells it."""
    if value is None or isinstance(value, bool):
        return "" if value is None else str(value).lower()
    if isinstance(value, int | float) and marks(hint) & {"seconds", "ms"}:
        return format_duration(round(value * (1000 if "seconds" in marks(hint) else 1)))
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def _word(hint: Any) -> str:
    """What the type is called in the table."""
    words = {"seconds": "duration", "ms": "duration", "bytes": "size", bool: "true or false", int: "integer"}
    words |= {float: "number"}
    if get_origin(hint) is Literal:
        return " or ".join(get_args(hint))
    known = [words[mark] for mark in (*marks(hint), hint) if mark in words]
    inner = (word for part in get_args(hint) if isinstance(part, type) or get_args(part) for word in [_word(part)])
    return known[0] if known else next((word for word in inner if word != "text"), "text")


def _masked(text: str, *, secret: bool) -> str:
    if "://" not in text:
        return _MASK if secret and text else text
    login, at, place = urlsplit(text).netloc.rpartition("@")
    user, colon, _ = login.partition(":")
    if at and colon:
        text = text.replace(f"{login}@{place}", f"{user}:{_MASK}@{place}", 1)
    return _password_in_query.sub(rf"\1{_MASK}", text)
