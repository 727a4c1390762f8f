"""What the build must know of this machine: package index, certificates, Debian mirror.

All that the build is shown carries a mark, a random word. Where the mark turns up, something of the machine was copied.
"""

import os
import re
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pip._internal.models.index import PyPI

from ops.image.buildah import CA_BUNDLE, PIP_CONF

MARK: Final = f"mark-{secrets.token_hex(16)}"

#: pip's own default, to which packages' own descriptions link; internal to pip, but no commit of ours names it.
_PUBLIC: Final = {PyPI.netloc, PyPI.file_storage_domain}
_PIP_OPTIONS: Final = ("index-url", "extra-index-url", "trusted-host", "proxy")
_CA_VARIABLES: Final = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")


def mounts(folder: Path) -> dict[Path, str]:
    """Here -> where the build sees it: pip's configuration and the certificates, both marked."""
    lines = [f"# {MARK}", "[global]"]
    for option, value in pip_config().items():
        places = [word for word in value.split() if not word.startswith(("file:", "/"))]  # folders are not mounted
        lines += [f"{option} = {' '.join(places)}"] if option in _PIP_OPTIONS and places else []
    shown = {folder / "pip.conf": PIP_CONF}
    bundle = _ca_bundle()
    if bundle is not None:
        lines.append(f"cert = {CA_BUNDLE}")
        (folder / "ca.crt").write_text(f"# {MARK}\n{bundle.read_text()}")
        shown[folder / "ca.crt"] = CA_BUNDLE
    (folder / "pip.conf").write_text("\n".join(lines) + "\n")
    return shown


def environment() -> dict[str, str]:
    """What the build must not keep of the environment that it is started in."""
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "COATCHECK_REDIS__URL", "GITHUB_TOKEN")
    return dict.fromkeys(names, MARK)


def addresses() -> set[str]:
    """Where this machine gets its packages: hosts, and folders with packages."""
    words = [word for value in pip_config().values() for word in value.split()]
    words += [value for name, value in os.environ.items() if re.search("INDEX|REGISTRY|PROXY|MIRROR|FIND_LINKS", name)]
    words.append(debian()[0])
    return {place for word in words for place in [_place(word)] if place}


def debian() -> tuple[str, str]:
    """The mirror that apt uses ("": debootstrap's own choice) and the release that runs here."""
    release = dict(re.findall(r'(?m)^(\w+)="?(.*?)"?$', Path("/etc/os-release").read_text()))["VERSION_CODENAME"]
    wanted = ["--format", "$(SITE)", "Created-By: Packages", "Component: main", f"Release: {release}"]
    listed = subprocess.run(["apt-get", "indextargets", *wanted], capture_output=True, text=True, check=False).stdout
    return (listed.split() or [""])[0], release


def pip_config() -> dict[str, str]:
    """option -> value, from pip's files and the environment; the environment wins."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found: dict[str, str] = {}
    for section in ("global", "install", ":env:"):
        for name, value in re.findall(rf"(?m)^{section}\.([\w-]+)='(.*)'$", listed):
            found[name] = value.replace("\\n", " ")
    return found


def _place(word: str) -> str:
    url = urlsplit(word)
    if url.hostname:
        loopback = url.hostname.startswith("127.") or url.hostname == "localhost"
        return "" if loopback else word if url.hostname in _PUBLIC else url.hostname
    path = url.path if url.scheme in ("", "file") else ""
    return path if path.startswith("/") and path != CA_BUNDLE and path.count("/") > 1 else ""


def _ca_bundle() -> Path | None:
    named = [Path(os.environ[name]) for name in _CA_VARIABLES if os.environ.get(name)]
    return next((path for path in [*named, Path(CA_BUNDLE)] if path.is_file()), None)
