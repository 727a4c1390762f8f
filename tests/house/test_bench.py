"""The bench is only as honest as its bounds."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "ops" / "bench"
PEERS = BENCH / "peers"
README = (BENCH / "README.md").read_text()
SHARED = ROOT.parent / "shared" / "bench"


@pytest.mark.skipif(not SHARED.is_dir(), reason="the bounds' own folder is not at hand")
def test_the_bounds_are_copied_unchanged():
    """A slower bound would make us look fast."""
    theirs = {path.name: path.read_bytes() for path in SHARED.glob("*.py")}
    ours = {path.name: path.read_bytes() for path in (ROOT / "ops" / "bench" / "bounds").glob("*.py")}
    assert theirs
    assert ours == theirs


def test_each_measure_has_its_row_in_the_readme():
    """`--only` takes names that nobody could look up."""
    tree = ast.parse((BENCH / "measures" / "__init__.py").read_text())
    tables = [node.value for node in tree.body if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Dict)]
    names = [key.value for table in tables for key in table.keys if isinstance(key, ast.Constant)]
    begin = README.index("| measure |")
    rows = README[begin : README.index("\n\n", begin)].splitlines()[2:]
    assert names
    assert sorted(name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])) == sorted(names)


def test_each_library_that_a_worker_is_measured_beside_is_pinned_and_has_its_program():
    """Whose version floats, or who is left out, could not be compared with what was written down."""
    lines = [line.partition("#")[0].strip() for line in (PEERS / "requirements.txt").read_text().splitlines()]
    pins = dict(re.fullmatch(r"([\w.-]+)==([\w.]+)", line).groups() for line in lines if line)
    programs = {path.stem.removeprefix("peer_") for path in PEERS.glob("peer_*.py")}
    assert programs == {"arq", "dramatiq", "huey", "rq", "saq"}
    assert programs <= set(pins)
    measured = (BENCH / "measures" / "worker.py").read_text()
    assert programs == set(re.findall(r'Peer\("(\w+)"', measured))
