"""The payload backends: each name's kind, and its options, checked by the kind's own dataclass whoever wrote it."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, get_args, get_type_hints

from pydantic import TypeAdapter, ValidationError

from service.configuration.mistakes import Given, Mistake, typed
from service.configuration.shape import Path, in_environment, in_file
from service.configuration.types import marks, seconds, size_bytes
from storage_backends import registry
from storage_backends.base import Misconfigured
from storage_backends.reference import check_backend

INLINE: Final = registry.INLINE_NAME


@dataclasses.dataclass(frozen=True, slots=True)
class BackendSettings:
    """What `registry.build` needs: `options` is an instance of `registry.options_of(kind)`."""

    name: str
    kind: str
    options: Any = dataclasses.field(repr=False)  # other people's options may hold a secret without saying so


def configured(given: Mapping[Path, Given]) -> tuple[dict[str, BackendSettings], list[Mistake]]:
    """Every backend there is, and what is wrong with what is given. `redis` is always one of them."""
    found = {INLINE: BackendSettings(INLINE, INLINE, registry.options_of(INLINE)())}
    mistakes: list[Mistake] = []
    for name in sorted({path[1] for path in given if path[0] == "backends" and len(path) > 1}):
        backend = _Backend(name, given, mistakes)
        kind = backend.kind()
        options = backend.options(kind) if kind else None
        if kind and options is not None:
            found[name] = BackendSettings(name, kind, options)
    return found, mistakes


def is_secret(hint: Any) -> bool:
    """Is this the type of an option that is never shown?"""
    return "secret" in marks(hint)


def hints_of(options: type[Any]) -> dict[str, Any]:
    """option -> its type, with `Seconds`, `Bytes` and `Secret` of storage_backends/base.py still visible."""
    hints = get_type_hints(options, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(options) if field.init}


class _Backend:
    """One name's settings; what is wrong with them goes into `mistakes`."""

    def __init__(self, name: str, given: Mapping[Path, Given], mistakes: list[Mistake]) -> None:
        self._at = ("backends", name)
        self._name = name
        self._given = given
        self._options = {path[2]: one.value for path, one in given.items() if path[:2] == self._at and len(path) == 3}
        self._mistakes = mistakes

    def kind(self) -> str | None:
        """Its kind: as given, or the name if that is one."""
        kinds = registry.kinds()
        kind = self._options.pop("kind", self._name if self._name in kinds else None)
        try:
            check_backend(self._name)
        except ValueError as error:
            self._wrong((), str(error))
            return None
        if kind is None:
            self._wrong(("kind",), f"is needed, as {self._name!r} is no kind itself: one of {', '.join(kinds)}")
        elif kind not in kinds:
            self._wrong(("kind",), f"must be one of {', '.join(kinds)}{_did_you_mean(str(kind), kinds)}")
        elif (kind == INLINE) != (self._name == INLINE):
            self._wrong(("kind",), f"only the backend called {INLINE!r} is of kind {INLINE!r}, and of no other")
        else:
            return str(kind)
        return None

    def options(self, kind: str) -> Any:
        """An instance of the kind's Options, None if something is wrong."""
        try:
            options = registry.options_of(kind)
        except Misconfigured as error:
            return self._wrong((), str(error))
        before = len(self._mistakes)
        hints = hints_of(options)
        values = dict(self._converted(hints))
        needed = [one.name for one in dataclasses.fields(options) if one.init and _required(one)]
        for name in needed:
            if name not in self._options:
                self._wrong((name,), f"is needed by a backend of kind {kind!r}")
        if any(name not in values for name in needed):
            return None
        try:
            made = options(**values)
        except (ValueError, TypeError) as error:
            return self._refused(str(error), hints)
        return made if len(self._mistakes) == before else None

    def _converted(self, hints: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        for name, value in self._options.items():
            if name not in hints:
                self._wrong((name,), f"is no option of this backend{self._did_you_mean(name, hints)}")
                continue
            try:
                yield name, _convert(value, hints[name])
            except ValidationError as error:
                self._wrong((name,), error.errors(include_input=False)[0]["msg"])
            except ValueError as error:
                self._wrong((name,), "cannot be used" if is_secret(hints[name]) else str(error))

    def _refused(self, text: str, hints: Mapping[str, Any]) -> None:
        """By `__post_init__`: reported option by option if each part of the text begins with one's name."""
        for name, hint in hints.items():
            if is_secret(hint) and self._options.get(name):
                text = text.replace(str(self._options[name]), "***")
        parts = [part.partition(": ") for part in text.split("; ")]
        if all(name in hints for name, _, _ in parts):
            for name, _, fault in parts:
                self._wrong((name,), fault)
        else:
            self._wrong((), text)

    def _wrong(self, below: Path, text: str) -> None:
        path = self._at + below
        self._mistakes.append(Mistake(path, typed(self._given, path), text))

    def _did_you_mean(self, option: str, hints: Iterable[str]) -> str:
        spell = in_file if self._given[*self._at, option].source == "file" else in_environment
        return _did_you_mean(option, [*hints, "kind"], lambda meant: spell((*self._at, meant)))


def _convert(value: Any, hint: Any) -> Any:
    if value == "" and type(None) in get_args(hint):
        return None  # how a template of environment variables leaves one out
    found = marks(hint)
    if "seconds" in found:
        return seconds(value)
    if "bytes" in found:
        return size_bytes(value)
    return TypeAdapter(hint).validate_python(value)


def _required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _did_you_mean(name: str, there_are: Sequence[str], spelt: Callable[[str], str] = repr) -> str:
    found = get_close_matches(name, there_are, n=1, cutoff=0.5)
    return f"; did you mean {spelt(found[0])}?" if found else ""
