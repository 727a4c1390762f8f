"""What the S3 backend does beyond the contract: what it stores, what it verifies, and what it costs."""

import asyncio
import hashlib
import os
import socket
import subprocess
import sys
from typing import Any

import pytest

from storage_backends.base import PayloadCorrupt, PayloadMissing
from storage_backends.reference import Reference, new_uuid
from storage_backends.s3_keys import S3Keys
from tests.contract.conftest import INSTALLATION, MARKER, Make
from tests.kit.s3_servers import S3Server


def a_reference(queue: str = "emails") -> Reference:
    return Reference("s3", queue, 1_764_547_200_000, new_uuid())


def key_of(reference: Reference) -> str:
    return S3Keys("s3").key_of(reference)


async def test_an_object_is_the_payload_and_says_what_it_should_be(moto: S3Server, make: Make) -> None:
    bucket = moto.new_bucket()
    backend = await make(moto, bucket)
    reference, payload = a_reference("a..b"), bytes(range(256))
    await backend.put(reference, payload)
    stored = moto.client.get_object(Bucket=bucket, Key=key_of(reference))
    assert stored["Body"].read() == payload
    assert stored["Metadata"] == {"coatcheck-length": "256", "coatcheck-sha256": hashlib.sha256(payload).hexdigest()}
    assert stored["ContentType"] == "application/octet-stream"


@pytest.mark.parametrize(
    ("options", "seen"),
    [
        ({"sse": "AES256"}, ("AES256", None)),
        ({"sse": "aws:kms", "kms_key_id": "alias/coats"}, ("aws:kms", "alias/coats")),
    ],
)
async def test_encryption_settings_reach_every_object_and_the_marker(
    moto: S3Server, make: Make, options: dict[str, str], seen: tuple[str, str | None]
) -> None:
    """A bucket policy may refuse what is not encrypted so; and `check` must fail when the key is disabled."""
    bucket = moto.new_bucket()
    backend = await make(moto, bucket, **options)
    await backend.start(INSTALLATION)
    await backend.put(a_reference(), b"x")
    keys = moto.keys(bucket)
    assert len(keys) == 2
    for key in keys:
        head = moto.client.head_object(Bucket=bucket, Key=key)
        assert (head.get("ServerSideEncryption"), head.get("SSEKMSKeyId")) == seen


async def test_the_bucket_can_stand_in_the_host_name(
    moto: S3Server, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`*.localhost` is loopback (RFC 6761), but not every resolver knows."""
    resolve = socket.getaddrinfo
    asked: list[str] = []

    def on_loopback(host: Any, *others: Any, **more: Any) -> Any:
        asked.append(str(host))
        return resolve("127.0.0.1" if str(host).endswith("localhost") else host, *others, **more)

    monkeypatch.setattr(socket, "getaddrinfo", on_loopback)
    bucket, reference = moto.new_bucket(), a_reference()
    backend = await make(moto, bucket, addressing="virtual", endpoint_url=f"http://localhost:{moto.port}")
    await backend.start(INSTALLATION)
    await backend.put(reference, b"x")
    assert f"{bucket}.localhost" in asked
    assert moto.keys(bucket) == sorted([MARKER, key_of(reference)])


async def test_scan_passes_over_what_is_no_payload(s3_server: S3Server, make: Make) -> None:
    """A stray object must not end a rebuild, and is nobody's to sweep."""
    bucket = s3_server.new_bucket()
    backend = await make(s3_server, bucket)
    await backend.start(INSTALLATION)
    reference = a_reference()
    await backend.put(reference, b"x")
    for key in ("v1/s3/e/2025-12-01/emails/notes.txt", "v1/s3/e/readme", f"v1/s3_acme/{key_of(reference)[6:]}"):
        s3_server.client.put_object(Bucket=bucket, Key=key, Body=b"stray")
    assert [each.reference async for each in backend.scan()] == [reference]


async def test_scan_reads_page_after_page(moto: S3Server, make: Make) -> None:
    """More than one page of one shard; left early, it leaves nothing behind."""
    bucket = moto.new_bucket()
    backend = await make(moto, bucket)
    uuids = {f"0193f2a4-7c1e-7b3a-9d57-{number:011x}0" for number in range(1_100)}
    await asyncio.gather(*(backend.put(Reference("s3", "q", 0, uuid), b"") for uuid in uuids))
    assert {each.reference.uuid async for each in backend.scan()} == uuids
    async for each in backend.scan(["1970-01-01"]):
        assert each.size_bytes == 0
        break


@pytest.mark.parametrize("size", [10, 200_000])
async def test_bytes_changed_behind_our_back_are_noticed(moto: S3Server, make: Make, size: int) -> None:
    """A corrupt payload must not be delivered as if it were good."""
    bucket, reference = moto.new_bucket(), a_reference()
    backend = await make(moto, bucket)
    await backend.put(reference, b"a" * size)
    metadata = moto.client.head_object(Bucket=bucket, Key=key_of(reference))["Metadata"]
    for changed in (b"b" * size, b"a" * (size - 1), b"a" * (size + 1), b""):
        moto.client.put_object(Bucket=bucket, Key=key_of(reference), Body=changed, Metadata=metadata)
        with pytest.raises(PayloadCorrupt) as caught:
            await backend.get(reference)
        assert caught.value.reference == reference
    moto.client.put_object(Bucket=bucket, Key=key_of(reference), Body=b"a" * size, Metadata=metadata)
    assert await backend.get(reference) == b"a" * size


async def test_a_file_changed_under_the_store_is_noticed(rclone: S3Server, make: Make) -> None:
    bucket, reference = rclone.new_bucket(), a_reference()
    backend = await make(rclone, bucket)
    await backend.put(reference, b"good")
    file = rclone.folder / bucket / key_of(reference)
    put_at_ns = file.stat().st_mtime_ns
    file.write_bytes(b"evil")
    os.utime(file, ns=(put_at_ns, put_at_ns))  # rclone forgets the metadata of a file with another time
    with pytest.raises(PayloadCorrupt):
        await backend.get(reference)


async def test_a_payload_whose_metadata_is_lost_is_still_served(s3_server: S3Server, make: Make) -> None:
    """Tools that copy buckets drop user metadata; a rebuilt bucket is better than none."""
    bucket, reference = s3_server.new_bucket(), a_reference()
    backend = await make(s3_server, bucket)
    s3_server.client.put_object(Bucket=bucket, Key=key_of(reference), Body=b"payload")
    assert await backend.get(reference) == b"payload"


async def test_without_metadata_the_stores_own_checksum_counts(
    moto: S3Server, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """botocore holds the body against the x-amz-checksum that the store sends along."""
    bucket, reference = moto.new_bucket(), a_reference()
    backend = await make(moto, bucket)
    moto.client.put_object(Bucket=bucket, Key=key_of(reference), Body=b"payload", ChecksumAlgorithm="CRC32")
    assert await backend.get(reference) == b"payload"
    monkeypatch.setattr("botocore.httpchecksum.Crc32Checksum.digest", lambda _: b"\0\0\0\0")
    with pytest.raises(PayloadCorrupt):
        await backend.get(reference)


async def test_an_absent_object_in_a_bucket_that_is_there_is_missing(s3_server: S3Server, make: Make) -> None:
    backend = await make(s3_server, s3_server.new_bucket())
    with pytest.raises(PayloadMissing, match="NoSuchKey"):
        await backend.get(a_reference())


def test_a_process_that_asks_no_store_does_not_import_boto3() -> None:
    """Half a second and 30 MiB, for those who keep everything in Redis, and for `coatcheck config`."""
    script = (
        "import sys\n"
        "from storage_backends import registry\n"
        "from storage_backends.base import Context\n"
        "registry.build('s3', 's3', registry.options_of('s3')(bucket='payloads'), Context())\n"
        "assert not {'boto3', 'botocore', 'urllib3'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
