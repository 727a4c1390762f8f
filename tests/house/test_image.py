"""What the Dockerfile promises. ./ops/image-check builds the image and tries it."""

import ast
import fnmatch
import json
import re
import shlex
import tomllib

import pytest

from service.settings import HttpSettings
from tests.house.test_layout import ROOT, tracked

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def instructions() -> list[tuple[str, str]]:
    """Name and arguments of each, in order; continued lines are joined, comments left out."""
    lines = "".join(line for line in DOCKERFILE.splitlines(keepends=True) if not line.startswith("#"))
    joined = re.sub(r"\s*\\\n\s*", " ", lines)
    return [(name, rest.strip()) for line in joined.splitlines() if line for name, _, rest in [line.partition(" ")]]


def final_stage() -> list[tuple[str, str]]:
    every = instructions()
    return every[max(at for at, (name, _) in enumerate(every) if name == "FROM") :]


def the(name: str) -> str:
    """The arguments of the final stage's only instruction of this name."""
    (only,) = [rest for each, rest in final_stage() if each == name]
    return only


def test_the_base_is_a_build_argument_with_a_slim_default_that_the_project_supports():
    assert instructions()[0][0] == "ARG"
    default = re.fullmatch(r"BASE=python:(3\.\d+)-slim-\w+", instructions()[0][1])
    assert default is not None
    assert f"Programming Language :: Python :: {default[1]}" in PROJECT["classifiers"]
    assert [rest.split(" ")[0] for name, rest in instructions() if name == "FROM"] == ["${BASE}", "${BASE}"]


def test_everything_is_installed_by_hash_or_without_an_index():
    runs = " && ".join(rest for name, rest in instructions() if name == "RUN").split("&&")
    installs = [command for command in runs if re.search(r"\bpip\b.* (install|wheel) ", command)]
    assert len(installs) == 4
    assert [line for line in installs if "--require-hashes" not in line and "--no-index" not in line] == []
    assert not re.search(r"apt|curl|wget|ADD ", DOCKERFILE)


def test_it_runs_as_a_number_that_is_not_root():
    """A name would need a line in /etc/passwd, and Kubernetes' runAsNonRoot could not tell whose it is."""
    user, group = the("USER").split(":")
    assert int(user) > 0
    assert int(group) > 0


def test_the_process_itself_gets_sigterm():
    """In shell form process 1 would be a shell, which passes no signal on."""
    assert json.loads(the("ENTRYPOINT")) == ["coatcheck"]
    assert json.loads(the("CMD")) == ["serve"]


def test_the_default_port_is_the_exposed_one_and_all_addresses_are_listened_on():
    assert int(the("EXPOSE")) == HttpSettings().port
    environment = dict(word.split("=", 1) for word in shlex.split(the("ENV")))
    assert environment["COATCHECK_HTTP__HOST"] == "0.0.0.0"
    assert not any(name.startswith("COATCHECK_") for name in environment if name != "COATCHECK_HTTP__HOST")


def test_the_health_check_asks_the_settings_for_the_port():
    options, _, command = the("HEALTHCHECK").partition(" CMD ")
    argv = json.loads(command)
    ast.parse(argv[-1])
    assert argv[:-1] == ["python3", "-c"]
    assert "load().http" in argv[-1]
    assert "/healthz" in argv[-1]
    assert "--timeout=5s" in options


def test_the_labels_say_what_the_project_says():
    labels = dict(word.split("=", 1) for word in shlex.split(the("LABEL")))
    known = {name.removeprefix("org.opencontainers.image."): value for name, value in labels.items()}
    assert known.keys() == {"title", "description", "version", "revision", "licenses"}
    assert known["title"] == PROJECT["name"]
    assert known["version"] == PROJECT["version"]
    assert known["licenses"] == PROJECT["license"]
    assert PROJECT["description"].startswith(known["description"])


def test_what_is_copied_is_let_in_and_nothing_else_is():
    """A .dockerignore that lists what to leave out forgets the next .env."""
    ignored, *allowed = [
        line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")
    ]
    copied = {
        word.rstrip("/")
        for name, rest in instructions()
        if name == "COPY" and "--from" not in rest
        for word in rest.split()[:-1]
    }
    assert ignored == "*"
    assert {line[1:] for line in allowed if line.startswith("!")} == copied
    assert [line for line in allowed if not line.startswith("!")] == ["**/__pycache__"]


@pytest.mark.parametrize("pattern", ["*.pem", "*.key", ".env*", "*/pip.conf", "*credentials*", ".npmrc"])
def test_nothing_that_may_hold_a_secret_is_in_the_project(pattern):
    assert [str(path) for path in tracked() if fnmatch.fnmatch(path.name, pattern.rpartition("/")[2])] == []
