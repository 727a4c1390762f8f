"""Backends in the settings: kinds, names and options, checked alike whoever wrote the kind."""

import sys
from importlib import invalidate_caches

import pytest

from service.settings import load
from storage_backends.s3_options import S3Options
from tests.kit.settings import mistakes, named_file

VAULT = """
from dataclasses import dataclass
from storage_backends.base import Bytes, Seconds, Secret

@dataclass(frozen=True)
class Options:
    password: Secret
    patience: Seconds = 3.0
    room: Bytes | None = None
    depth: int = 1

    def __post_init__(self):
        if self.depth > 9:
            raise ValueError(f"depth: too deep for {self.password}")

class Vault:
    Options = Options
    inline = False
    concurrency = 1
    inflight_bytes = 2**27
    def from_options(self): ...
    start = put = get = delete = check = aclose = from_options
"""


@pytest.fixture
def vault(tmp_path, monkeypatch):
    """Another package's kind, installed for real: a distribution with an entry point."""
    (tmp_path / "their_vault.py").write_text(VAULT)
    info = tmp_path / "their_vault-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-vault\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[coatcheck.storage_backends]\nvault = their_vault:Vault\n")
    monkeypatch.syspath_prepend(tmp_path)
    invalidate_caches()
    yield "vault"
    sys.modules.pop("their_vault", None)


def test_a_backend_called_as_a_kind_is_of_that_kind():
    backend = load({"COATCHECK_BACKENDS__S3__BUCKET": "coats", "COATCHECK_BACKENDS__S3__TIMEOUT": "2s"}).backends["s3"]
    assert (backend.name, backend.kind) == ("s3", "s3")
    assert backend.options == S3Options(bucket="coats", timeout=2.0)


def test_a_backend_of_any_other_name_needs_its_kind():
    named = {"COATCHECK_BACKENDS__S3_ACME__BUCKET": "coats"}
    assert load(named | {"COATCHECK_BACKENDS__S3_ACME__KIND": "s3"}).backends["s3_acme"].kind == "s3"
    (text,) = mistakes(named)
    assert text.startswith("COATCHECK_BACKENDS__S3_ACME__KIND: is needed")


def test_redis_is_always_a_backend_and_alone_of_its_kind():
    """`schedule` and `claim` know the bodies of this name alone to lie in Redis."""
    assert load({}).backends["redis"].kind == "redis"
    for name, kind in (("cache", "redis"), ("redis", "s3")):
        (text,) = mistakes({f"COATCHECK_BACKENDS__{name}__KIND": kind})
        assert "only the backend called 'redis'" in text


@pytest.mark.parametrize(
    ("environ", "name", "fault"),
    [
        (
            {"COATCHECK_BACKENDS__S3__KIND": "s4", "COATCHECK_BACKENDS__S3__BUCKET": "coats"},
            "S3__KIND",
            "did you mean 's3'?",
        ),
        ({"COATCHECK_BACKENDS__S3__KIND": "s3"}, "S3__BUCKET", "is needed"),
        ({"COATCHECK_BACKENDS__S3_": '{"kind": "s3", "bucket": "coats"}'}, "S3_", "not a backend name"),
    ],
)
def test_what_a_backend_lacks_is_reported(environ, name, fault):
    found = mistakes(environ)
    assert any(text.startswith(f"COATCHECK_BACKENDS__{name}") and fault in text for text in found)


def test_an_empty_variable_leaves_an_option_unset():
    """Templates of environment variables spell it so: `REGION=${REGION:-}`."""
    empty = {"COATCHECK_BACKENDS__S3__REGION": "", "COATCHECK_BACKENDS__S3__ENDPOINT_URL": ""}
    assert load(empty | {"COATCHECK_BACKENDS__S3__BUCKET": "coats"}).backends["s3"].options == S3Options(bucket="coats")


def test_all_mistakes_of_a_backend_are_reported_under_their_names():
    options = {"BUCKET": "a/b", "TIMEOUT": "10", "INFLIGHT_BYTES": "1MB", "REGIO": "eu", "KMS_KEY_ID": "k"}
    found = mistakes({f"COATCHECK_BACKENDS__S3__{option}": value for option, value in options.items()})
    assert len(found) == len(options)
    assert all(any(text.startswith(f"COATCHECK_BACKENDS__S3__{option}: ") for text in found) for option in options)


def test_a_misspelt_option_is_reported_with_the_nearest_right_one(tmp_path):
    (text,) = mistakes({"COATCHECK_BACKENDS__S3__BUCKET": "coats", "COATCHECK_BACKENDS__S3__PREFX": "p"})
    assert text.endswith("did you mean COATCHECK_BACKENDS__S3__PREFIX?")
    (text,) = mistakes(named_file(tmp_path, '[backends.s3]\nbucket = "coats"\nprefx = "p"\n'))
    assert text.startswith("backends.s3.prefx (in ")
    assert text.endswith("did you mean backends.s3.prefix?")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("COATCHECK_BACKENDS__S3__BUCKET", "a/b"),
        ("COATCHECK_BACKENDS", '{"s3": '),
        ("COATCHECK_CONFIG_FILE", "/no/such/file"),
    ],
)
def test_a_broken_backend_is_not_reported_once_more_where_it_is_used(name, value):
    """The second message would be wrong: it is configured."""
    (text,) = mistakes({name: value, "COATCHECK_ROUTING__OFFLOAD_TO": "s3"})
    assert text.startswith(f"{name}: ")


def test_a_backend_has_room_for_the_largest_payload():
    """Else such a payload would be accepted, and could never be fetched."""
    environ = {"COATCHECK_BACKENDS__S3__BUCKET": "coats", "COATCHECK_BACKENDS__S3__INFLIGHT_BYTES": "1MiB"}
    (text,) = mistakes(environ)
    assert "MAX_PAYLOAD_BYTES" in text


def test_another_packages_options_are_read_like_our_own(vault):
    options = {"PASSWORD": "hunter2", "PATIENCE": "2m", "ROOM": "16MiB", "DEPTH": "4"}
    made = load({f"COATCHECK_BACKENDS__VAULT__{option}": value for option, value in options.items()}).backends[vault]
    assert (made.options.patience, made.options.room, made.options.depth) == (120, 2**24, 4)
    assert "hunter2" not in repr(made)


@pytest.mark.parametrize(
    ("option", "value", "fault"),
    [
        ("DEPTH", "10", "too deep for ***"),
        ("DEPTH", "deep", "integer"),
        ("PATIENCE", "3", "duration"),
        ("DEPT", "1", "DEPTH?"),
    ],
)
def test_another_packages_mistakes_are_reported_like_our_own_and_without_its_secrets(vault, option, value, fault):
    environ = {"COATCHECK_BACKENDS__VAULT__PASSWORD": "hunter2", f"COATCHECK_BACKENDS__VAULT__{option}": value}
    (text,) = mistakes(environ)
    assert text.startswith(f"COATCHECK_BACKENDS__VAULT__{option}: ")
    assert fault in text
    assert "hunter2" not in text
