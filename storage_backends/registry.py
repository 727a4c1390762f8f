"""Which kinds of backend there are, and how one is built: by entry points, built-ins and other people's packages alike.

A package adds a kind with a line in its pyproject.toml, and needs nothing else:

    [project.entry-points."coatcheck.storage_backends"]
    memory = "coatcheck_memory:MemoryBackend"

https://packaging.python.org/en/latest/specifications/entry-points/
"""

import dataclasses
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from storage_backends.base import BackendKind, Context, Misconfigured, StorageBackend
from storage_backends.reference import check_backend

GROUP: Final = "coatcheck.storage_backends"
INLINE_NAME: Final = "redis"  #: `schedule` and `claim` know the bodies of this name alone to lie in Redis


class UnknownKind(Misconfigured, ValueError):
    """No installed package offers this kind of backend."""


class BrokenPlugin(Misconfigured, ValueError):
    """A package offers this kind, but it cannot be used; the message names the package, the cause is chained."""


def kinds() -> tuple[str, ...]:
    """The kinds that are installed, sorted. Imports none of them."""
    return tuple(sorted({entry.name for entry in entry_points(group=GROUP)}))


def load(kind: str) -> type[BackendKind]:
    """The class behind `kind`. Imports it: up to half a second for one with a large client library.

    Raises UnknownKind with the nearest name that there is, BrokenPlugin.
    """
    entry = _entry(kind)
    try:
        found = entry.load()
    except Exception as error:
        raise BrokenPlugin(f"backend kind {kind!r}: {_origin(entry)} cannot be imported: {error!r}") from error
    if fault := _fault(found):
        raise BrokenPlugin(f"backend kind {kind!r}: {_origin(entry)} {fault}")
    return found  # type: ignore[no-any-return]  # its shape was just looked at; an entry point has no static type


def options_of(kind: str) -> type[Any]:
    """The frozen dataclass whose fields are the options of `kind`. Raises as `load` does."""
    return load(kind).Options


def build(name: str, kind: str, options: Any, context: Context) -> StorageBackend:
    """The backend called `name`, of this kind, from an instance of `options_of(kind)`. Opens nothing.

    Raises UnknownKind, BrokenPlugin, InvalidName, and Misconfigured where name and kind do not go together.
    """
    check_backend(name)
    backend = load(kind)
    if backend.inline != (name == INLINE_NAME):
        inline = "keeps payloads in Redis itself" if backend.inline else "does not"
        raise Misconfigured(
            f"backend {name!r} cannot be of kind {kind!r}: only {INLINE_NAME!r} is inline, this {inline}"
        )
    if not isinstance(options, backend.Options):
        raise TypeError(f"backend {name!r}: {type(options).__name__} are not the options of kind {kind!r}")
    return backend.from_options(name, options, context)


def _entry(kind: str) -> EntryPoint:
    found = list(entry_points(group=GROUP, name=kind))
    if not found:
        near = get_close_matches(kind, kinds(), n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"installed are: {', '.join(kinds()) or 'none'}"
        raise UnknownKind(f"{kind!r} is no kind of backend: {hint}")
    if len(found) > 1:  # whichever won would depend on the order of sys.path
        raise BrokenPlugin(f"backend kind {kind!r} is offered by {' and by '.join(map(_origin, found))}: uninstall one")
    return found[0]


def _origin(entry: EntryPoint) -> str:
    return f"{entry.value} of package {entry.dist.name}" if entry.dist else entry.value


def _fault(found: Any) -> str | None:
    if not isinstance(found, type):
        return "is no class"
    options = getattr(found, "Options", None)
    if not (isinstance(options, type) and dataclasses.is_dataclass(options) and options.__dataclass_params__.frozen):  # type: ignore[attr-defined]  # every dataclass has them
        return "has no frozen dataclass `Options`"
    lacking = [member for member in ("from_options", "inline", *_METHODS) if not hasattr(found, member)]
    return f"lacks {', '.join(lacking)}" if lacking else None


_METHODS: Final = ("start", "put", "get", "delete", "check", "aclose")
