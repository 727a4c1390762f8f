"""The blocking half of the S3 backend: objects by key, with boto3. Everything here runs in a thread.

boto3 is imported by this file alone, and this file by the first call of a backend: it takes a few tenths of a second,
which a process without S3 does not pay.
"""

import hashlib
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from storage_backends.base import Misconfigured, PayloadCorrupt, StorageError, StorageUnavailable
from storage_backends.reference import Reference
from storage_backends.s3_errors import MISCONFIGURED, translated
from storage_backends.s3_options import S3Options

if TYPE_CHECKING:
    from botocore.awsrequest import AWSRequest
    from botocore.response import StreamingBody
    from types_boto3_s3 import S3Client
    from types_boto3_s3.type_defs import ObjectTypeDef

_CHUNK_BYTES: Final = 64 * 1024  #: between two looks at the clock
#: Larger bodies are announced (Expect: 100-continue), so that a store can refuse them unsent. AWS's SDK for Go has the
#: same threshold: https://pkg.go.dev/github.com/aws/aws-sdk-go-v2/service/s3#Options
ASK_FROM_BYTES: Final = 2 * 1024 * 1024
_LENGTH: Final = "coatcheck-length"  #: user metadata, as x-amz-meta-coatcheck-length
_SHA256: Final = "coatcheck-sha256"


@dataclass(frozen=True, slots=True)
class Opened:
    """An object whose headers are here and whose body is not read: it holds a connection until `read` or `close`."""

    length_bytes: int
    body: "StreamingBody"
    metadata: Mapping[str, str]
    reference: Reference | None

    def close(self) -> None:
        self.body.close()


class S3Objects:
    """The objects of one bucket. Safe for concurrent use: boto3's clients are, its sessions are not.

    Every error is translated as s3_errors says. Raises Misconfigured if no client can be made.
    """

    def __init__(self, backend: str, options: S3Options) -> None:
        self._backend = backend
        self._bucket = options.bucket
        self._limit_s = 2 * options.timeout
        self._encryption: dict[str, Any] = {}
        if options.sse:
            self._encryption["ServerSideEncryption"] = options.sse
        if options.kms_key_id:
            self._encryption["SSEKMSKeyId"] = options.kms_key_id
        with self._translated("start"):
            self._client = _client(backend, options)

    def put(self, key: str, payload: bytes, *, doing: str = "put", reference: Reference | None = None) -> None:
        """Overwrites. On the way the body is protected by TLS, or over plain HTTP by the signed hash of it."""
        metadata = {_LENGTH: str(len(payload)), _SHA256: hashlib.sha256(payload).hexdigest()}
        with self._translated(doing, reference, writes=True):
            self._client.put_object(
                Bucket=self._bucket,
                Key=key,
                Body=payload,
                Metadata=metadata,
                ContentType="application/octet-stream",
                **self._encryption,
            )

    def open(self, key: str, *, doing: str = "get", reference: Reference | None = None) -> Opened:
        """Reads the headers, and raises PayloadCorrupt if their lengths differ."""
        with self._translated(doing, reference):
            found = self._client.get_object(Bucket=self._bucket, Key=key)
            length = found.get("ContentLength")
            metadata = {name.lower(): value for name, value in found["Metadata"].items()}
            opened = Opened(length or 0, found["Body"], metadata, reference)
            try:
                if length is None:
                    raise self._unavailable(f"{doing} {reference}: an answer without Content-Length", reference)
                if metadata.get(_LENGTH, str(length)) != str(length):
                    raise self._corrupt(f"{length} bytes instead of {metadata[_LENGTH][:20]}", reference)
            except StorageError:
                opened.close()
                raise
            return opened

    def read(self, opened: Opened) -> bytes:
        """The body, whole and verified. Closes `opened`, whatever happens."""
        try:
            with self._translated("get", opened.reference):
                payload = b"".join(self._chunks(opened))
        finally:
            opened.close()
        wanted = opened.metadata.get(_SHA256)
        if wanted is not None and hashlib.sha256(payload).hexdigest() != wanted:
            raise self._corrupt("the sha256 is another", opened.reference)
        return payload

    def delete(self, keys: Mapping[str, Reference]) -> list[Exception]:
        """Deletes up to 1,000 objects in one request, and returns what kept any of them from being deleted.

        An answer with status 200 may name failures, each with a code of its own. Untranslated, one is a ClientError.
        """
        with self._translated("delete", writes=True):
            answer = self._client.delete_objects(
                Bucket=self._bucket, Delete={"Objects": [{"Key": key} for key in keys], "Quiet": True}
            )
        return [
            self._failure(each.get("Code", ""), keys.get(each.get("Key", "")))
            for each in answer.get("Errors", [])
            if each.get("Code") != "NoSuchKey"
        ]

    def pages(self, prefix: str) -> Iterator[list["ObjectTypeDef"]]:
        """The objects under `prefix`, up to 1,000 a step; each step is one request."""
        with self._translated("scan"):
            for page in self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix):
                yield page.get("Contents", [])

    def close(self) -> None:
        self._client.close()

    @contextmanager
    def _translated(self, doing: str, reference: Reference | None = None, *, writes: bool = False) -> Iterator[None]:
        try:
            yield
        except (StorageError, Misconfigured):
            raise
        except Exception as error:
            meaning = translated(error, doing=doing, backend=self._backend, reference=reference, writes=writes)
            if meaning is None:
                raise
            raise meaning from error

    def _failure(self, code: str, reference: Reference | None) -> Exception:
        error = ClientError({"Error": {"Code": code}}, "DeleteObjects")
        return translated(error, doing="delete", backend=self._backend, reference=reference, writes=True) or error

    def _chunks(self, opened: Opened) -> Iterator[bytes]:
        """Reads to the very end: only there are length and store's checksum verified, and the connection reused."""
        deadline = time.monotonic() + self._limit_s
        while chunk := opened.body.read(_CHUNK_BYTES):
            if time.monotonic() > deadline:
                raise self._unavailable(
                    f"get {opened.reference}: the body took longer than {self._limit_s:g} s", opened.reference
                )
            yield chunk

    def _corrupt(self, fault: str, reference: Reference | None) -> PayloadCorrupt:
        return PayloadCorrupt(f"get {reference}: {fault}", backend=self._backend, reference=reference)

    def _unavailable(self, message: str, reference: Reference | None) -> StorageUnavailable:
        return StorageUnavailable(message, backend=self._backend, reference=reference)


def _client(backend: str, options: S3Options) -> "S3Client":
    """A client that tries once: what botocore's retries would hide for seconds is what the breaker lives by.

    Checksums on requests only where S3 demands them: since 1.36 botocore adds a CRC32 trailer to every put, which many
    stores refuse. Those that a store sends along are still verified.
    https://docs.aws.amazon.com/sdkref/latest/guide/feature-dataintegrity.html
    """
    config = Config(
        connect_timeout=options.timeout,
        read_timeout=options.timeout,
        max_pool_connections=options.concurrency + 1,  # the spare thread's is the one more
        retries={"total_max_attempts": 1, "mode": "standard"},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_supported",
        s3={"addressing_style": options.addressing},
    )
    try:
        client: S3Client = boto3.session.Session().client(
            "s3", region_name=options.region, endpoint_url=options.endpoint_url, config=config
        )
    except MISCONFIGURED as error:
        raise Misconfigured(f"backend {backend!r}: boto3 makes no client: {type(error).__name__}") from error
    client.meta.events.register("before-sign.s3.PutObject", _ask_for_large_ones_only)
    client.meta.events.register("before-sign.s3.DeleteObjects", _add_md5)
    return client


def _ask_for_large_ones_only(request: "AWSRequest", **_: object) -> None:
    """botocore asks the store before it sends any body: a round trip, or a second if the store does not know how."""
    body = request.data
    if isinstance(body, BytesIO) and body.getbuffer().nbytes < ASK_FROM_BYTES:
        del request.headers["Expect"]


def _add_md5(request: "AWSRequest", **_: object) -> None:
    """S3 demands a checksum of this body and takes any; botocore sends a CRC32 since 1.36, and a store that knows MD5
    alone answers MissingContentMD5 to every deletion (https://github.com/EnterpriseDB/barman/issues/1146).
    """
    body: bytes = request.data or b""
    request.headers["Content-MD5"] = b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
