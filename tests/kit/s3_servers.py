"""Real S3 servers on loopback: moto's, which behaves like AWS, and rclone's, which is another implementation.

Each is a process of its own, ended by its id. A binary that is absent skips the test at home, and fails in CI.
"""

import http.client
import os
import shutil
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from types_boto3_s3 import S3Client

from service.child import HOST, Child, free_port

ACCESS_KEY, SECRET_KEY = "coatcheck", "not-a-secret"
REGION = "us-east-1"

#: What boto3's chain finds in a test: these credentials, and nothing of the machine's.
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": ACCESS_KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}


@dataclass(frozen=True)
class S3Server:
    """One that answers. `child` may be killed; what the server kept in memory goes with it."""

    kind: str
    port: int
    child: Child
    folder: Path  #: rclone: `<folder>/<bucket>/<key>` is an object
    client: S3Client  #: for looking behind the backend's back, with the right credentials

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def new_bucket(self) -> str:
        """The name of an empty bucket that nobody else uses."""
        name = f"payloads-{uuid.uuid4().hex[:12]}"
        self.client.create_bucket(Bucket=name)
        return name

    def keys(self, bucket: str) -> list[str]:
        """Of all objects, sorted."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket)
        return sorted(each["Key"] for page in pages for each in page.get("Contents", []))

    def options(self, bucket: str, **others: Any) -> dict[str, Any]:
        """The fields of S3Options that reach this bucket."""
        return {"bucket": bucket, "endpoint_url": self.url, "region": REGION, "addressing": "path", **others}


@contextmanager
def running_moto(directory: Path) -> Iterator[S3Server]:
    """moto's server: knows SSE, user metadata and virtual hosts; checks no signature."""
    with _running("moto", directory, lambda port: [_binary("moto_server"), "-H", HOST, "-p", str(port)]) as server:
        yield server


@contextmanager
def running_rclone(directory: Path) -> Iterator[S3Server]:
    """`rclone serve s3` over a folder: checks signatures; user metadata lives in its memory only.

    It caches its folders: make and delete buckets and objects through it. (Told not to cache, 1.75 deadlocks on puts.)
    https://rclone.org/commands/rclone_serve_s3/
    """

    def command(port: int) -> list[str]:
        keys, address = f"{ACCESS_KEY},{SECRET_KEY}", f"{HOST}:{port}"
        no_config = ["--config", str(directory / "none.conf")]
        return [_binary("rclone"), "serve", "s3", "--auth-key", keys, "--addr", address, *no_config, str(directory)]

    with _running("rclone", directory, command) as server:
        yield server


def _binary(name: str) -> str:
    beside_python = str(Path(sys.executable).parent)
    found = shutil.which(name, path=os.pathsep.join((beside_python, os.environ.get("PATH", ""))))
    if found is not None:
        return found
    if os.environ.get("CI"):
        pytest.fail(f"{name} is not installed: pip install -e '.[dev]'")
    pytest.skip(f"{name} is not installed")


@contextmanager
def _running(kind: str, directory: Path, command: Callable[[int], list[str]]) -> Iterator[S3Server]:
    port = free_port()
    child = Child(command(port), cwd=directory)
    try:
        assert child.wait_until(lambda: _answers(port), within_s=60), f"{kind} does not answer: {child.output()}"
        client = _client(f"http://{HOST}:{port}")
        try:
            yield S3Server(kind, port, child, directory, client)
        finally:
            client.close()
    finally:
        child.close()


def _client(url: str) -> S3Client:
    config = Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1})
    return boto3.session.Session(ACCESS_KEY, SECRET_KEY, region_name=REGION).client(
        "s3", endpoint_url=url, config=config
    )


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=2)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status > 0
    except OSError:
        return False
    finally:
        connection.close()
