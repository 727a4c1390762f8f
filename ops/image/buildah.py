"""Images in a folder of our own, and a stand-in for the base image."""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Files that the build finds in place, empty, so that mounting over them leaves nothing in a layer.
PIP_CONF, CA_BUNDLE = "/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt"


class Failed(Exception):
    """What was to be shown is not so."""


@dataclass(frozen=True)
class Image:
    """As it is in the store."""

    name: str
    config: dict[str, Any]  #: Docker's: User, Env, Entrypoint, Cmd, Healthcheck, Labels
    layers: tuple[str, ...]  #: digests of the layers, uncompressed

    @property
    def env(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self.config["Env"])


class Buildah:
    """Debian's buildah, with all that it keeps below `folder`. Nothing is ever pulled."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._temporary = folder / "tmp"
        self._temporary.mkdir(parents=True)

    def make_base(self, name: str, mirror: str, suite: str) -> None:
        """An image with Python and little else, called like the official one and bare like it: without bytecode."""
        tree = self._folder / "base"
        packages = "--include=python3,python3-venv"
        run("debootstrap", "--variant=minbase", packages, suite, str(tree), *([mirror] if mirror else []))
        for cache in (tree / "usr").rglob("__pycache__"):
            shutil.rmtree(cache)
        for folder in ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale"):
            shutil.rmtree(tree / folder, ignore_errors=True)
        for path in (PIP_CONF, CA_BUNDLE):
            (tree / path[1:]).parent.mkdir(parents=True, exist_ok=True)
            (tree / path[1:]).touch()
        container = self._do("from", "scratch").strip()
        self._do("add", "--quiet", container, str(tree), "/")
        self._do("config", "--env", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", container)
        self._do("commit", "--quiet", "--format", "docker", "--rm", container, name)

    def build(self, name: str, context: Path, *, mounts: dict[Path, str], env: dict[str, str]) -> None:
        """Builds the Dockerfile in `context`; `mounts` are read-only, and there while it builds."""
        volumes = [f"--volume={here}:{there}:ro" for here, there in mounts.items()]
        how = ["--isolation=chroot", "--format=docker", "--pull=never", "--no-cache", *volumes]
        self._do("build", *how, "--tag", name, str(context), env=env)

    def image(self, name: str) -> Image:
        found = json.loads(self._do("inspect", "--type=image", name))
        docker = found["Docker"]
        return Image(name, docker["config"], tuple(docker["rootfs"]["diff_ids"]))

    def export(self, name: str) -> Path:
        """A folder with the image's manifest, configuration and compressed layers, each named by its digest."""
        folder = self._folder / "exported"
        self._do("push", "--quiet", name, f"dir:{folder}")
        return folder

    def mount(self, name: str) -> Path:
        """The image's files, writable, in this mount namespace."""
        container = self._do("from", "--pull=never", name).strip()
        return Path(self._do("mount", container).strip())

    def _do(self, command: str, *arguments: str, env: dict[str, str] | None = None) -> str:
        store = ["--root", str(self._folder / "root"), "--runroot", str(self._folder / "run")]
        environ = {**os.environ, **(env or {}), "TMPDIR": str(self._temporary)}
        return run("buildah", *store, command, *arguments, env=environ)


def run(*argv: str, env: dict[str, str] | None = None) -> str:
    """What it printed. Raises Failed with its last words."""
    done = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"{' '.join(argv[:1])} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout
