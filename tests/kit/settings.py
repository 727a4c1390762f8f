"""Settings for tests: the mistakes in an environment, and files that an environment names."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from service.configuration.mistakes import SettingsError
from service.settings import load


def mistakes(environ: Mapping[str, str]) -> tuple[str, ...]:
    """What `load` has against this environment, a text a mistake. Fails if it has nothing."""
    with pytest.raises(SettingsError) as caught:
        load(environ)
    assert all(mistake in str(caught.value) for mistake in caught.value.mistakes)
    return caught.value.mistakes


def the_mistake(environ: Mapping[str, str]) -> str:
    """The same, where there must be exactly one."""
    (only,) = mistakes(environ)
    return only


def named_file(folder: Path, text: str) -> dict[str, str]:
    """Writes a TOML file, and gives the environment that names it."""
    path = folder / "coatcheck.toml"
    path.write_text(text)
    return {"COATCHECK_CONFIG_FILE": str(path)}
