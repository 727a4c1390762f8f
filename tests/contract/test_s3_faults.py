"""S3 going wrong while the service runs: real servers that vanish, refuse, lie and break off."""

from pathlib import Path

import pytest

from storage_backends.base import AccessDenied, PayloadMissing, StorageUnavailable
from storage_backends.reference import Reference, new_uuid
from storage_backends.s3 import S3Backend
from storage_backends.s3_keys import S3Keys
from storage_backends.s3_options import S3Options
from tests.contract.conftest import INSTALLATION, Place, unavailable
from tests.kit.s3_servers import S3Server, running_moto

KIB = 1024


def a_reference() -> Reference:
    return Reference("s3", "emails", 1_764_547_200_000, new_uuid())


async def admit_all(length_bytes: int) -> None:
    assert length_bytes > 64 * KIB


async def test_a_bucket_that_vanished_buries_nobody(s3_server: S3Server) -> None:
    """Were it PayloadMissing, every job that comes due would be dead until somebody restores the bucket."""
    bucket = s3_server.new_bucket()
    backend = S3Backend("s3", S3Options(**s3_server.options(bucket)))
    await backend.start(INSTALLATION)
    s3_server.client.delete_object(Bucket=bucket, Key="v1/s3/INSTALLATION")
    s3_server.client.delete_bucket(Bucket=bucket)
    await unavailable(backend, put_maybe_done=False)
    await backend.aclose()


@pytest.mark.parametrize(
    "variables",
    [
        {"AWS_SECRET_ACCESS_KEY": "wrong"},
        {"AWS_ACCESS_KEY_ID": "nobody"},
        {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""},
        {"AWS_SECRET_ACCESS_KEY": ""},
    ],
    ids=["wrong secret", "unknown key", "no credentials", "half of them"],
)
async def test_credentials_that_are_refused_are_a_denial(
    rclone: S3Server, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    """An operator must act, and is told so; no job is charged, for `check` is denied, too."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    backend = S3Backend("s3", S3Options(**rclone.options(rclone.new_bucket())))
    reference = a_reference()
    calls = [backend.start(INSTALLATION), backend.check(), backend.get(reference), backend.put(reference, b"x")]
    for call in [*calls, backend.delete([reference])]:
        with pytest.raises(AccessDenied):
            await call
    await backend.aclose()


async def test_a_server_that_was_killed_is_unavailable(tmp_path: Path) -> None:
    """What was refused a connection has certainly not arrived."""
    with running_moto(tmp_path) as server:
        backend = S3Backend("s3", S3Options(**server.options(server.new_bucket())))
        await backend.start(INSTALLATION)
        server.child.kill()
        with pytest.raises(StorageUnavailable):  # perhaps on a connection that the dead server had
            await backend.check()
        await unavailable(backend, put_maybe_done=False)
        await backend.aclose()


@pytest.mark.parametrize("silence", [True, False], ids=["silence", "closed"])
async def test_a_put_whose_answer_is_lost_may_have_happened(place: Place, silence: bool) -> None:
    """The producer must not tell its caller that nothing was kept."""
    reference = a_reference()
    trap = place.proxy.swallow_reply(b"the payload", then_silence=silence)
    with pytest.raises(StorageUnavailable) as caught:
        await place.backend.put(reference, b"the payload")
    await trap
    assert caught.value.maybe_done
    assert await place.backend.get(reference) == b"the payload"


async def test_only_large_bodies_are_announced(place: Place) -> None:
    """Asking before each small put costs a round trip, and a second in a store that does not answer the question."""
    seen: list[bytes] = []

    def announced(request: bytes) -> bool:
        seen.append(request)
        return False

    trap = place.proxy.swallow_reply(announced)
    await place.backend.put(a_reference(), b"x" * KIB)
    assert not any(b"100-continue" in request for request in seen)
    await place.backend.put(a_reference(), b"x" * 2 * KIB * KIB)
    assert any(b"100-continue" in request for request in seen)
    trap.disarm()


@pytest.mark.parametrize("size_kib", [32, 256])
async def test_half_a_body_is_no_payload(place: Place, size_kib: int) -> None:
    """In both hops: a small body is read where it was opened, a large one after it was admitted."""
    reference, payload = a_reference(), b"x" * size_kib * KIB
    await place.backend.put(reference, payload)
    trap = place.proxy.truncate_reply(size_kib * KIB // 2, b"GET /")
    with pytest.raises(StorageUnavailable) as caught:
        await place.backend.get(reference, admit_all if size_kib > 64 else None)
    await trap
    assert (caught.value.throttled, caught.value.maybe_done) == (False, False)
    assert await place.backend.get(reference) == payload


@pytest.mark.parametrize(
    ("status", "code", "throttled", "maybe_done"),
    [("503 Slow Down", "SlowDown", True, False), ("500 Internal Server Error", "InternalError", False, True)],
)
async def test_each_call_is_one_request(
    place: Place, status: str, code: str, throttled: bool, maybe_done: bool
) -> None:
    """botocore's own retries would hide an outage from the breaker, and prolong a throttling."""
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>m</Message></Error>"
    reply = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()
    for _ in range(4):
        place.proxy.forge_reply(reply)
    await unavailable(place.backend, put_maybe_done=maybe_done, throttled=throttled)
    assert place.proxy.armed() == []


async def test_a_page_of_a_proxy_that_lost_its_store_buries_nobody(place: Place) -> None:
    """An ingress without its store answers 404 to everything; only NoSuchKey is about the object."""
    for page in (b"404 page not found", b"<html><body>not here</body></html>", b""):
        reply = b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(page), page)
        place.proxy.forge_reply(reply)
        with pytest.raises(StorageUnavailable):
            await place.backend.get(a_reference())


async def test_a_deletion_that_names_failures_is_no_success(place: Place) -> None:
    """S3 answers 200 to a batch in which objects were refused; the trash would forget them."""
    first, second = a_reference(), a_reference()
    for code, kind in (("AccessDenied", AccessDenied), ("InternalError", StorageUnavailable)):
        error = f"<Error><Key>{S3Keys('s3').key_of(second)}</Key><Code>{code}</Code><Message>m</Message></Error>"
        body = f"<?xml version='1.0'?><DeleteResult>{error}</DeleteResult>"
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\nConnection: close"
        place.proxy.forge_reply(f"{head}\r\n\r\n{body}".encode(), b"POST /")
        with pytest.raises(kind) as caught:
            await place.backend.delete([first, second])
        assert caught.value.reference == second


async def test_a_deletion_carries_the_checksum_that_every_store_knows(place: Place) -> None:
    """S3 takes any; many another store answers MissingContentMD5, and nothing would ever be deleted there."""
    trap = place.proxy.swallow_reply(b"Content-MD5: ")
    with pytest.raises(StorageUnavailable):
        await place.backend.delete([a_reference()])
    await trap


async def test_one_object_that_cannot_be_deleted_does_not_shield_the_others(place: Place) -> None:
    """The batches after it are tried; otherwise one refusal keeps thousands in the bucket."""
    references = [a_reference() for _ in range(1_500)]
    await place.backend.put(references[-1], b"x")
    body = "<?xml version='1.0'?><DeleteResult><Error><Key>k</Key><Code>AccessDenied</Code></Error></DeleteResult>"
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\nConnection: close"
    place.proxy.forge_reply(f"{head}\r\n\r\n{body}".encode(), b"POST /")
    with pytest.raises(AccessDenied):
        await place.backend.delete(references)
    with pytest.raises(PayloadMissing):
        await place.backend.get(references[-1])
