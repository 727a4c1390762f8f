"""How an S3 backend is configured, and what of it can be judged without asking the store."""

import re
from dataclasses import dataclass
from typing import Final, Literal, get_args
from urllib.parse import urlsplit

from storage_backends.base import Bytes, Seconds, StorageUnavailable, option

Addressing = Literal["auto", "path", "virtual"]
ADDRESSINGS: Final = get_args(Addressing)
ENCRYPTIONS: Final = ("AES256", "aws:kms", "aws:kms:dsse")
MAX_CONCURRENCY: Final = 256  #: threads; each holds a connection and, while it reads, a payload
MAX_PREFIX_LENGTH: Final = 512  #: with the longest reference behind it, a key stays below S3's 1,024 bytes

#: Also what other stores accept: dots, capitals and underscores are legal outside AWS. A "/" or ":" never is.
_bucket = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]")
#: What S3 calls safe: no store, proxy or signature encodes these in two ways.
#: https://docs.aws.amazon.com/AmazonS3/latest/userguide/object-keys.html
_segment = re.compile(r"[A-Za-z0-9!_.*'()-]+")


class BucketMissing(StorageUnavailable):
    """There is no bucket of the configured name: at the start that is a mistake, later an outage."""


@dataclass(frozen=True, slots=True)
class S3Options:
    """`COATCHECK_BACKENDS__<NAME>__<FIELD>`. Holds no secret: credentials come from boto3's own chain (environment,
    profile, web identity, instance role), which also reads AWS_CA_BUNDLE, proxies and the rest of its settings.

    Raises ValueError that names every field which cannot be.
    """

    bucket: str = option("Must exist; needed")
    prefix: str = option("In front of every key; a `/` is added if it lacks one", "")
    region: str | None = option("As boto3 finds it, if not set", None)
    endpoint_url: str | None = option("Of a store that is not AWS", None)
    addressing: Addressing = option("`path`, `virtual` (the bucket in the host name), or `auto`", "auto")
    concurrency: int = option("Requests at once, each in a thread", 16)
    timeout: Seconds = option("To connect, and between two reads; a whole exchange gets twice as long", 10.0)
    inflight_bytes: Bytes = option("Payloads in a dispatcher's memory at most", 128 * 1024 * 1024)
    sse: str | None = option("`AES256`, `aws:kms` or `aws:kms:dsse`, for everything that is put", None)
    kms_key_id: str | None = option("With `aws:kms`: the key, if not the bucket's own", None)

    def __post_init__(self) -> None:
        if self.prefix and not self.prefix.endswith("/"):
            object.__setattr__(self, "prefix", f"{self.prefix}/")
        if faults := [fault for fault in self._faults() if fault]:
            raise ValueError("; ".join(faults))

    def _faults(self) -> tuple[str | None, ...]:
        return (
            _unless(_bucket.fullmatch(self.bucket), f"bucket: {self.bucket[:100]!r} is not a bucket's name"),
            _prefix_fault(self.prefix),
            _endpoint_fault(self.endpoint_url),
            _unless(self.addressing in ADDRESSINGS, f"addressing: must be one of {', '.join(ADDRESSINGS)}"),
            _unless(1 <= self.concurrency <= MAX_CONCURRENCY, f"concurrency: must be 1 to {MAX_CONCURRENCY}"),
            _unless(0 < self.timeout <= 300, "timeout: must be more than 0 s and at most 300 s"),
            _unless(self.inflight_bytes >= 1, "inflight_bytes: must be at least 1"),
            _unless(self.sse is None or self.sse in ENCRYPTIONS, f"sse: must be one of {', '.join(ENCRYPTIONS)}"),
            _unless(
                self.kms_key_id is None or (self.sse or "").startswith("aws:kms"), "kms_key_id: needs sse to be aws:kms"
            ),
        )


def _unless(condition: object, fault: str) -> str | None:
    return None if condition else fault


def _prefix_fault(prefix: str) -> str | None:
    if not prefix:
        return None
    if len(prefix) > MAX_PREFIX_LENGTH:
        return f"prefix: {len(prefix)} characters, at most {MAX_PREFIX_LENGTH} are allowed"
    if prefix.startswith("/"):
        return "prefix: must not begin with '/'"
    segments = prefix[:-1].split("/")
    if any(segment in (".", "..") or not _segment.fullmatch(segment) for segment in segments):
        return "prefix: only names of [A-Za-z0-9!_.*'()-] with '/' between them are allowed, and neither '.' nor '..'"
    return None


def _endpoint_fault(url: str | None) -> str | None:
    if url is None:
        return None
    fault = (
        "endpoint_url: must be http(s)://host[:port], without credentials"  # its text is never shown: it may hold some
    )
    try:
        parts = urlsplit(url)
        return _unless(parts.scheme in ("http", "https") and parts.hostname and "@" not in parts.netloc, fault)
    except ValueError:
        return fault
