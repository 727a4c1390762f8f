"""The types of knobs: each reads what people write, and says what is wrong with it. No message shows a URL."""

import re
from types import MappingProxyType
from typing import Annotated, Any, Final, get_args
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from service.units import parse_duration_ms, parse_size_bytes
from storage_backends.reference import check_queue

_tenant = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_prefix = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
)  # no braces, no glob: it is part of SCAN patterns and hash tags


def setting(default: Any, meaning: str, *, secret: bool = False) -> Any:
    """A knob. `default` is spelt as the environment spells it; a secret is neither shown nor logged."""
    return Field(default=default, description=meaning, repr=not secret)


def name_of(attribute: str) -> str:
    """The setting's name: the attribute without the unit that it is held in. `interval_s` -> `interval`."""
    return attribute.removesuffix("_s").removesuffix("_ms")


def marks(hint: Any) -> set[str]:
    """The texts in `Annotated[…, "seconds"]`, also inside `… | None`."""
    found = {mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, str)}
    return found.union(*(marks(inner) for inner in get_args(hint) if not isinstance(inner, str)))


def is_tenant(name: str) -> bool:
    """Is this text a tenant's name, known or not?"""
    return _tenant.fullmatch(name) is not None


def between(least: int | float | str, most: int | float | str) -> AfterValidator:
    """Bounds, both included; those of durations are texts with a unit."""
    low, high = (parse_duration_ms(end) / 1000 if isinstance(end, str) else end for end in (least, most))

    def check(value: float) -> float:
        if not low <= value <= high:
            raise ValueError(f"must be between {least} and {most}")
        return value

    return AfterValidator(check)


def milliseconds(value: object) -> int:
    """A duration of 0 or more. Raises ValueError, for a bare number too."""
    ms = parse_duration_ms(value if isinstance(value, str) else str(value))
    if ms < 0:
        raise ValueError("must not be negative")
    return ms


def seconds(value: object) -> float:
    """As `milliseconds`."""
    return milliseconds(value) / 1000


def size_bytes(value: object) -> int:
    """A size. Raises ValueError."""
    return parse_size_bytes(value if isinstance(value, str) else str(value))


def _integer(value: object) -> int:
    text = str(value)
    if not re.fullmatch(r"-?[0-9]{1,18}", text):
        raise ValueError(f"{text[:50]!r} is not an integer")
    return int(text)


def _number(value: object) -> float:
    text = str(value)
    if not re.fullmatch(r"-?[0-9]{1,18}(\.[0-9]{1,18})?", text):
        raise ValueError(f"{text[:50]!r} is not a number")
    return float(text)


def _tenant_name(name: str) -> str:
    if not is_tenant(name):
        raise ValueError(f"{name[:70]!r} is not a tenant's name: [a-z0-9], then up to 63 of [a-z0-9_-]")
    return name


def _key_prefix(text: str) -> str:
    if not _prefix.fullmatch(text):
        raise ValueError("must be an ASCII letter or digit, then up to 63 of these and . _ -")
    return text


def _url(text: str, schemes: tuple[str, ...]) -> str:
    try:
        url = urlsplit(text)
        whole = url.scheme in schemes and bool(url.hostname) and (url.port or 1) > 0
    except ValueError:
        whole = False
    if not whole:
        raise ValueError(f"must be a URL with a host, beginning with {' or '.join(f'{s}://' for s in schemes)}")
    return text


def redis_url(text: str) -> str:
    """Where Redis is. Raises ValueError, which quotes nothing of the text: it may hold a password, anywhere."""
    unix = text.startswith("unix://") and len(text) > len("unix://")
    url = urlsplit(text if unix else _url(text, ("redis", "rediss")))
    if not unix and not re.fullmatch(r"(/[0-9]*)?", url.path):
        raise ValueError("must end in the database's number, as in redis://localhost:6379/0")
    # All else is Coatcheck's own to set: redis-py would take `protocol` or `decode_responses` from here, too.
    options = "username|password|db" + ("|ssl_[a-z_]+" if url.scheme == "rediss" else "")
    if url.fragment or not re.fullmatch(rf"(({options})=[^&]*(&|$))*", url.query):
        raise ValueError("has an option that is not known here; in a password, ? and # are spelt %3F and %23")
    return text


# The texts are marks: what a value is, for those who show it, spelt as in storage_backends/base.py.
Seconds = Annotated[float, BeforeValidator(seconds), "seconds"]
Ms = Annotated[int, BeforeValidator(milliseconds), "ms"]
Bytes = Annotated[int, BeforeValidator(size_bytes), "bytes"]
Integer = Annotated[int, BeforeValidator(_integer)]
Number = Annotated[float, BeforeValidator(_number)]
TenantName = Annotated[str, AfterValidator(_tenant_name)]
QueueName = Annotated[str, AfterValidator(check_queue)]
KeyPrefix = Annotated[str, AfterValidator(_key_prefix)]
RedisUrl = Annotated[str, AfterValidator(redis_url)]
HttpUrl = Annotated[str, AfterValidator(lambda text: _url(text, ("http", "https")))]
#: Makes a mapping one that nobody can change.
Frozen: Final = AfterValidator(lambda mapping: MappingProxyType(dict(mapping)))
