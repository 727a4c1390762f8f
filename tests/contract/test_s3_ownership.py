"""Whose prefix it is: two installations must never sweep each other's payloads."""

import pytest

from storage_backends.base import Misconfigured, Ownership
from tests.contract.conftest import INSTALLATION, MARKER, Make
from tests.kit.s3_servers import S3Server

OTHER = "ffffffff-7c1e-7b3a-9d57-6f0a1c2b3d4e"


async def test_the_first_start_claims_the_prefix(s3_server: S3Server, make: Make) -> None:
    """And nothing else is written, however often it starts."""
    bucket = s3_server.new_bucket()
    for _ in range(2):
        backend = await make(s3_server, bucket)
        assert await backend.start(INSTALLATION) == Ownership(INSTALLATION, ours=True)
    assert s3_server.keys(bucket) == [MARKER]
    assert s3_server.client.get_object(Bucket=bucket, Key=MARKER)["Body"].read() == INSTALLATION.encode()


async def test_a_foreign_prefix_is_recognised_and_left_alone(s3_server: S3Server, make: Make) -> None:
    """Two installations on one prefix: the second one's sweeper would delete the first one's payloads (pitfall 28)."""
    bucket = s3_server.new_bucket()
    s3_server.client.put_object(Bucket=bucket, Key=MARKER, Body=f"{OTHER}\n".encode())
    backend = await make(s3_server, bucket)
    for _ in range(2):
        assert await backend.start(INSTALLATION) == Ownership(OTHER, ours=False)
    await backend.check()
    assert s3_server.client.get_object(Bucket=bucket, Key=MARKER)["Body"].read() == f"{OTHER}\n".encode()


async def test_prefixes_and_backend_names_keep_installations_apart(moto: S3Server, make: Make) -> None:
    bucket = moto.new_bucket()
    first, second = await make(moto, bucket), await make(moto, bucket, prefix="coats")
    assert (await first.start(INSTALLATION)).ours
    assert (await second.start(OTHER)).ours
    assert moto.keys(bucket) == [f"coats/{MARKER}", MARKER]


async def test_a_damaged_marker_is_nobodys(moto: S3Server, make: Make) -> None:
    """Its owner cannot be read, so that nothing is swept; and it is not overwritten, for it may be another's."""
    bucket = moto.new_bucket()
    backend = await make(moto, bucket)
    for damaged, metadata in ((b"?", {"coatcheck-sha256": "0" * 64}), (INSTALLATION.encode() * 100, {})):
        moto.client.put_object(Bucket=bucket, Key=MARKER, Body=damaged, Metadata=metadata)
        assert await backend.start(INSTALLATION) == Ownership(None, ours=False)
        assert moto.client.get_object(Bucket=bucket, Key=MARKER)["Body"].read() == damaged
        await backend.check()


async def test_a_bucket_that_does_not_exist_refuses_the_start(s3_server: S3Server, make: Make) -> None:
    backend = await make(s3_server, "nowhere-at-all")
    with pytest.raises(Misconfigured, match="nowhere-at-all"):
        await backend.start(INSTALLATION)


async def test_a_profile_that_does_not_exist_refuses_the_start(
    moto: S3Server, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No retry mends what boto3 makes no client from."""
    monkeypatch.setenv("AWS_PROFILE", "misspelt")
    backend = await make(moto, moto.new_bucket())
    with pytest.raises(Misconfigured, match="ProfileNotFound"):
        await backend.start(INSTALLATION)


async def test_a_lost_marker_is_no_outage_and_comes_back_at_the_next_start(s3_server: S3Server, make: Make) -> None:
    bucket = s3_server.new_bucket()
    backend = await make(s3_server, bucket)
    await backend.start(INSTALLATION)
    s3_server.client.delete_object(Bucket=bucket, Key=MARKER)
    await backend.check()
    assert s3_server.keys(bucket) == []
    assert (await backend.start(INSTALLATION)).ours
    assert s3_server.keys(bucket) == [MARKER]
