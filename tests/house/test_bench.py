"""The bench is only as honest as its bounds."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared" / "bench"


@pytest.mark.skipif(not SHARED.is_dir(), reason="the bounds' own folder is not at hand")
def test_the_bounds_are_copied_unchanged():
    """A slower bound would make us look fast."""
    theirs = {path.name: path.read_bytes() for path in SHARED.glob("*.py")}
    ours = {path.name: path.read_bytes() for path in (ROOT / "ops" / "bench" / "bounds").glob("*.py")}
    assert theirs
    assert ours == theirs
