"""What lies in the layers that our Dockerfile adds to its base."""

import json
import re
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ops.image.buildah import Image

#: Names that only a mistake brings in. Mozilla's certificates come with packages, by their hash.
_UNWANTED: Final = re.compile(
    r"(^|/)(pip\.conf|\.pypirc|\.netrc|\.env|\.git|\.aws|\.docker|\.cache|\.venv|__pycache__/.*\.pyc\.\d+"
    r"|pip|pip-[^/]*|setuptools|hatchling|tests?/house|gcc|cc1)$"
    r"|^(src|tools|wheel|root|home|tmp)/.|\.(key|crt|p12|whl)$|(?<!botocore/cacert)(?<!certifi/cacert)\.pem$"
)
_SECRETS: Final = re.compile(rb"AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{36}|-----BEGIN [A-Z ]*PRIVATE KEY")
_EXAMPLES: Final = re.compile(r"/(botocore/data|boto3/examples)/")  #: AWS's documentation, with keys that are none
_BAD_NAMES: Final = re.compile(r"AWS_|TOKEN|SECRET|PASSWORD|PIP_|PROXY|INDEX", re.IGNORECASE)


@dataclass(frozen=True)
class Added:
    """Sizes in bytes: of our layers as sent, and of the whole image unpacked and as sent."""

    files: int
    sent_bytes: int
    image_bytes: int
    image_sent_bytes: int


def inspect(exported: Path, image: Image, base: Image, needles: Iterable[str]) -> tuple[Added, list[str]]:
    """The sizes, and what is wrong: marks or addresses in a file, names and modes that should not be.

    What is found is told by its place, never by its text.
    """
    manifest = json.loads((exported / "manifest.json").read_text())
    blobs = [exported / layer["digest"].partition(":")[2] for layer in manifest["layers"]]
    ours = blobs[len(base.layers) :]
    wanted = [needle.encode() for needle in needles]
    wrong = [f"an environment variable {name}" for name in image.env if _BAD_NAMES.search(name)]
    configuration = (exported / manifest["config"]["digest"].partition(":")[2]).read_bytes()
    wrong += ["something of this machine in the image's configuration"] * _holds(configuration, wanted)
    files = 0
    for blob in ours:
        for member, content in _members(blob):
            files += 1
            wrong += _of_name(member)
            wrong += [f"something of this machine in {member.name}"] * _holds(content, wanted)
            if not _EXAMPLES.search(member.name) and _SECRETS.search(content):
                wrong.append(f"what looks like a secret in {member.name}")
    unpacked = sum(member.size for blob in blobs for member, _ in _members(blob, read=False))
    return Added(files, _size(ours), unpacked, _size(blobs)), wrong


def _members(blob: Path, *, read: bool = True) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    with tarfile.open(blob) as layer:
        for member in layer:
            content = layer.extractfile(member) if read and member.isreg() else None
            yield member, content.read() if content is not None else b""


def _of_name(member: tarfile.TarInfo) -> Iterator[str]:
    if _UNWANTED.search(member.name) and "/.wh." not in member.name:
        yield f"{member.name}, which nobody needs"
    if member.uid or member.gid:
        yield f"{member.name} belongs to {member.uid}:{member.gid}, not to root"
    shared = member.isdir() and member.mode & 0o1000  # as /tmp is: what is there, is its owner's
    if not member.issym() and not shared and member.mode & 0o6022:
        yield f"{member.name} has mode {member.mode:o}"


def _holds(content: bytes, needles: list[bytes]) -> bool:
    return any(needle in content for needle in needles)


def _size(blobs: list[Path]) -> int:
    return sum(blob.stat().st_size for blob in blobs)
