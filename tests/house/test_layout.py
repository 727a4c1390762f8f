"""House rules that readers rely on, and whose breach nobody would notice: who imports whom, what has one home."""

import ast
import io
import re
import shutil
import subprocess
import tokenize
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SEVEN = {"pyproject.toml", "README.md", "service", "storage_backends", "tests", "ops", "Dockerfile"}


def tracked() -> list[Path]:
    """Every file of the project, and none of what lies about in the folder."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("not a git checkout")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


def python_files(*under: str) -> Iterator[tuple[str, ast.Module]]:
    """Path from the root and syntax tree of each Python file."""
    for folder in under:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text())


def imports(tree: ast.AST) -> Iterator[str]:
    """`a.b` for `import a.b`; `a.b` and `a.b.c` for `from a.b import c`. We write no relative imports (ruff TID)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def locked(lock: str) -> list[str]:
    """The entries of ops/<lock>.txt, each on one line."""
    text = (ROOT / "ops" / f"{lock}.txt").read_text().replace("\\\n", " ").strip()
    return [entry for entry in re.split(r"\n(?! )", text) if not entry.startswith("#")]


def importers(module: str, *under: str) -> set[str]:
    """Who imports `module` or something in it."""
    return {
        path
        for path, tree in python_files(*under)
        if any(name == module or name.startswith(f"{module}.") for name in imports(tree))
    }


def strings(tree: ast.Module) -> Iterator[str]:
    """Text that the program uses: all string constants, parts of f-strings included, but no docstrings."""
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.value


def outside(paths: Iterable[str], *allowed: str) -> list[str]:
    """Those of `paths` that are neither one of `allowed` nor in a folder of it (`service/api/`)."""
    return sorted(path for path in paths if not path.startswith(allowed))


def test_there_is_no_eighth_name_at_the_top():
    names = {path.relative_to(ROOT).parts[0] for path in tracked()}
    assert {name for name in names if not name.startswith(".")} - SEVEN == set()


def test_all_seven_names_are_there():
    assert {name for name in SEVEN if not (ROOT / name).exists()} == set()


def test_storage_backends_know_nothing_of_the_service():
    """Other people's backends are written against storage_backends alone; so are ours."""
    assert importers("service", "storage_backends") == set()


SURFACES = ("service/cli", "service/api", "service/producing", "service/worker/opening.py")


@pytest.mark.parametrize("surface", ["cli", "api", "producing"])
def test_nobody_below_imports_a_surface(surface):
    found = importers(f"service.{surface}", "service", "storage_backends")
    assert outside(found, *SURFACES) == []


@pytest.mark.parametrize("module", ["wiring", "embedded"])
def test_only_surfaces_import_what_knows_everybody(module):
    """And serving.py, which runs one process around it."""
    found = importers(f"service.{module}", "service", "storage_backends")
    assert outside(found, *SURFACES, f"service/{module}", "service/serving.py") == []


def test_only_settings_reads_the_environment():
    """embedded.py puts credentials there for boto3 to find, which is the only way to its chain."""
    readers = {
        path
        for path, tree in python_files("service", "storage_backends")
        if {"os.environ", "os.environb", "os.getenv"} & {ast.unparse(node) for node in ast.walk(tree) if _dotted(node)}
        or {"os.environ", "os.environb", "os.getenv"} & set(imports(tree))
    }
    assert outside(readers, "service/settings.py", "service/configuration/", "service/embedded.py") == []


def test_only_keys_py_spells_a_key():
    """In Lua, too: a script is given its keys, or a cluster cannot route it. Other libraries' keys, some of which have
    the same names, are spelt by the one file that reads their layout.
    """
    ours = re.compile(
        r"^coatcheck:"
        r"|:(meta|queues|wake|delayed|bodies|leases|ready|dead|trash|trouble|moved|paused|idempotency|cancelled)\b"
        r"|:(workers|departed|inflight|turns|strikes|suspects|once)\b"
    )
    found = {
        f"{path}: {text!r}"
        for path, tree in python_files("service", "storage_backends")
        for text in strings(tree)
        if ours.search(text) and " " not in text  # a sentence may speak of keys
    }
    for path in sorted((ROOT / "service").rglob("*.lua")):
        code = "\n".join(line.partition("--")[0] for line in path.read_text().splitlines())
        found |= {f"{path.name}: {text!r}" for text in re.findall(r"""["']([^"'\n]*)["']""", code) if ours.search(text)}
    foreign = [f"service/inspector/{library}/" for library in ("asynq", "bullmq", "rtq")]
    assert outside(found, "service/keys.py", "service/advisor/layouts/", *foreign) == []


def test_only_metrics_py_creates_metrics():
    """With instruments.py, which holds the kinds of metric that prometheus_client lacks."""
    found = importers("prometheus_client", "service", "storage_backends")
    assert outside(found, "service/metrics.py", "service/instruments.py") == []


def test_every_ignore_has_its_reason_on_the_line():
    """`# noqa: S311  # jitter, not a secret`: else nobody dares to remove it."""
    directive = re.compile(
        r"(?:noqa(?::\s*[A-Z]+\d+(?:[,\s]+[A-Z]+\d+)*)?|type:\s*ignore(?:\[[^\]]*\])?)(?P<reason>.*)", re.IGNORECASE
    )
    bare = [
        f"{path.relative_to(ROOT)}:{line}: {comment}"
        for path in tracked()
        if path.suffix == ".py"
        for line, comment in _comments(path)
        if (found := directive.search(comment)) and not re.search(r"\w", found["reason"])
    ]
    assert bare == []


@pytest.mark.parametrize("lock", ["constraints", "constraints-runtime", "constraints-build"])
def test_constraints_pin_and_hash_everything_and_name_no_place(lock):
    """An index address or a path is one machine's; without a hash, what is installed is whatever is served that day."""
    text = (ROOT / "ops" / f"{lock}.txt").read_text()
    entries = locked(lock)
    assert len(entries) >= 5
    assert [entry for entry in entries if not re.match(r"[a-z0-9-]+==\S+ .*--hash=sha256:[0-9a-f]{64}", entry)] == []
    assert re.findall(r"(?m)^.*(?:://|\s/|^-| @ ).*$", text) == []


@pytest.mark.parametrize("lock", ["constraints-runtime", "constraints-build"])
def test_the_image_has_the_packages_that_the_tests_ran_with(lock):
    """Each of the image's two locks is part of the lock for all, hashes included; ./ops/lock writes all three."""
    assert set(locked(lock)) - set(locked("constraints")) == set()


def test_the_image_s_locks_have_all_that_the_project_asks_for():
    """Else the image's build is the first to notice that ./ops/lock was forgotten."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for lock, requirements in (
        ("constraints-runtime", project["project"]["dependencies"]),
        ("constraints-build", project["build-system"]["requires"]),
    ):
        names = {entry.partition("==")[0] for entry in locked(lock)}
        assert {re.match(r"[a-z0-9-]+", requirement)[0] for requirement in requirements} - names == set()


def test_no_file_names_a_folder_of_one_machine():
    places = re.compile("|".join(f"(?<![\\w.])/{top}/[a-z.]" for top in ("root", "work", "Users")))
    found = []
    for path in tracked():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        found += [f"{path.relative_to(ROOT)}: {match[0]}" for match in places.finditer(text)]
    assert found == []


def test_scripts_are_executable_and_stop_at_errors():
    scripts = [path for path in tracked() if path.suffix in ("", ".sh") and path.read_bytes().startswith(b"#!")]
    assert {"ops/run", "ops/test", "ops/check", ".ci/run"} <= {path.relative_to(ROOT).as_posix() for path in scripts}
    for script in scripts:
        assert script.stat().st_mode & 0o111, f"{script} is not executable"
        if b"bash" in script.read_bytes().partition(b"\n")[0]:
            assert "set -euo pipefail" in script.read_text(), f"{script} goes on after errors"


def _dotted(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)


def _comments(path: Path) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
