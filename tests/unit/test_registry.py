"""The registry: kinds by entry points, and errors that name the package to blame."""

import dataclasses
import importlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from storage_backends import registry
from storage_backends.base import Context, Misconfigured, StorageBackend
from storage_backends.reference import InvalidName
from storage_backends.registry import GROUP, BrokenPlugin, UnknownKind
from storage_backends.s3_options import S3Options

Install = Callable[[str, str, str], None]

GOOD = """
from dataclasses import dataclass
@dataclass(frozen=True)
class Options:
    pass
class Backend:
    Options = Options
    inline = False
    def start(self): ...
    put = get = delete = check = aclose = start
    @classmethod
    def from_options(cls, name, options, context):
        backend = cls()
        backend.name = name
        return backend
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """`install(package, kind, source)`: what an installer leaves of a package that offers `kind`."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def installed(package: str, kind: str, source: str) -> None:
        info = tmp_path / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{GROUP}]\n{kind} = {package}_module:Backend\n")
        (tmp_path / f"{package}_module.py").write_text(source)
        monkeypatch.delitem(sys.modules, f"{package}_module", raising=False)
        importlib.invalidate_caches()

    return installed


def test_the_built_in_kinds_are_there() -> None:
    assert {"redis", "s3"} <= set(registry.kinds())
    assert list(registry.kinds()) == sorted(registry.kinds())


def test_a_kind_appears_when_its_package_is_installed(install: Install) -> None:
    assert "shelf" not in registry.kinds()
    install("acme", "shelf", GOOD)
    assert "shelf" in registry.kinds()
    backend: StorageBackend = registry.build("shelf_2", "shelf", registry.options_of("shelf")(), Context())
    assert backend.name == "shelf_2"


@pytest.mark.parametrize(
    ("misspelt", "hint"), [("s4", "did you mean 's3'"), ("rediss", "did you mean 'redis'"), ("gopher", "redis, s3")]
)
def test_an_unknown_kind_is_told_the_nearest_one(misspelt: str, hint: str) -> None:
    with pytest.raises(UnknownKind, match=hint):
        registry.load(misspelt)


def test_listing_kinds_imports_none_of_them() -> None:
    """A broken plugin that nobody configured must not keep the service from starting."""
    script = (
        "import sys; from storage_backends import registry; registry.kinds(); "
        "assert 'storage_backends.s3' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_plugin_that_cannot_be_imported_is_named_with_its_cause(install: Install) -> None:
    install("acme", "shelf", "import nothing_of_this_name\n")
    with pytest.raises(
        BrokenPlugin, match=r"'shelf'.*acme_module:Backend of package acme.*nothing_of_this_name"
    ) as caught:
        registry.load("shelf")
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("Backend = 7", "is no class"),
        ("class Other: ...", "cannot be imported"),
        ("class Backend: ...", "Options"),
        (GOOD.replace("frozen=True", "frozen=False"), "frozen"),
        (GOOD.replace("put = get", "get"), "lacks put"),
        (GOOD.replace("from_options", "make"), "lacks from_options"),
    ],
)
def test_a_plugin_of_the_wrong_shape_is_refused_before_it_is_used(install: Install, source: str, fault: str) -> None:
    install("acme", "shelf", source)
    with pytest.raises(BrokenPlugin, match=fault):
        registry.options_of("shelf")


def test_two_packages_with_one_kind_are_both_named(install: Install) -> None:
    """Whichever came first on the path would win, and move when something else is installed."""
    install("acme", "s3", GOOD)
    with pytest.raises(BrokenPlugin, match="acme") as caught:
        registry.load("s3")
    assert "coatcheck" in str(caught.value)


@pytest.mark.parametrize(("name", "kind"), [("redis_2", "redis"), ("redis", "s3")])
def test_only_the_name_redis_is_inline(name: str, kind: str) -> None:
    """The scripts move the bodies of that name, and of no other, inside Redis."""
    options = registry.options_of(kind)(**({"bucket": "payloads"} if kind == "s3" else {}))
    with pytest.raises(Misconfigured, match="inline"):
        registry.build(name, kind, options, Context())


def test_the_inline_kind_needs_what_wiring_hands_in() -> None:
    with pytest.raises(Misconfigured, match="client"):
        registry.build("redis", "redis", registry.options_of("redis")(), Context())


def test_a_name_that_no_reference_can_hold_is_refused() -> None:
    with pytest.raises(InvalidName):
        registry.build("S3", "s3", S3Options("payloads"), Context())


def test_options_of_another_kind_are_refused() -> None:
    with pytest.raises(TypeError, match="S3Options"):
        registry.build("redis", "redis", S3Options("payloads"), Context())


def test_the_s3_options_are_spelt_as_documented() -> None:
    documented = "bucket prefix region endpoint_url addressing concurrency timeout inflight_bytes sse kms_key_id"
    assert [field.name for field in dataclasses.fields(S3Options)] == documented.split()


def test_options_can_be_validated_without_knowing_the_kind() -> None:
    """The settings do it so, for every plugin alike; what `__post_init__` refuses is an ordinary validation error."""
    adapter: TypeAdapter[S3Options] = TypeAdapter(registry.options_of("s3"))
    assert adapter.validate_python({"bucket": "payloads", "timeout": 2.5, "concurrency": "4"}) == S3Options(
        "payloads", timeout=2.5, concurrency=4
    )
    for wrong in ({}, {"bucket": "payloads", "prefix": "/"}, {"bucket": "payloads", "concurrency": "many"}):
        with pytest.raises(ValueError, match="validation error"):
            adapter.validate_python(wrong)
