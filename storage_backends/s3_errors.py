"""What an error of the S3 client means: told once, by its type, its code and its status, never by its text.

    NoSuchKey                                        PayloadMissing
    the store's checksum does not match              PayloadCorrupt
    401, 403, credentials, KMS refusals, clock skew  AccessDenied: an operator must act, and `check` will be denied, too
    throttling codes, 429, 503                       StorageUnavailable, throttled
    other 5xx, redirects, no or half an answer       StorageUnavailable
    any other 404                                    StorageUnavailable
    anything else                                    not translated

Another 404 than NoSuchKey (NoSuchBucket, or the page of a proxy that has lost its store) says nothing about the
object: were it PayloadMissing, a bucket that is away for a minute would bury every job that comes due.

`maybe_done` is False where the request certainly had no effect: it was never sent, or was refused with a 4xx or a
throttling code; with a 5xx or without an answer nobody knows.

Codes: https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
"""

from typing import Any, Final

from botocore import exceptions as boto
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from storage_backends.base import AccessDenied, PayloadCorrupt, PayloadMissing, StorageError, StorageUnavailable
from storage_backends.reference import Reference
from storage_backends.s3_options import BucketMissing

_ABSENT: Final[dict[str, type[StorageError]]] = {"NoSuchKey": PayloadMissing, "NoSuchBucket": BucketMissing}
_THROTTLED: Final = {
    "BandwidthLimitExceeded", "EC2ThrottledException", "LimitExceededException", "PriorRequestNotComplete",
    "ProvisionedThroughputExceededException", "RequestLimitExceeded", "RequestThrottled", "RequestThrottledException",
    "SlowDown", "SlowDownRead", "SlowDownWrite", "ThrottledException", "Throttling", "ThrottlingException",
    "TooManyRequests", "TooManyRequestsException",
}  # fmt: skip
#: Those of S3 and STS that do not come with a 401 or 403. Expired tokens are renewed by boto3's chain if it can: what
#: still arrives here does not heal by itself. A skewed clock is ours, and refuses every request alike.
_DENIED: Final = {
    "AccessDenied", "AuthFailure", "ExpiredToken", "ExpiredTokenException", "IDPCommunicationError",
    "IDPRejectedClaim", "InvalidAccessKeyId", "InvalidIdentityToken", "InvalidToken", "RequestExpired",
    "RequestTimeTooSkewed", "SignatureDoesNotMatch", "TokenRefreshRequired",
}  # fmt: skip
#: In the answer to DeleteObjects there is a code an object, and no status.
_SERVER_FAULTS: Final = {"InternalError", "ServiceUnavailable"}
#: The bucket is elsewhere or in between, or our bytes did not arrive as they were sent: refused, and worth repeating.
_REFUSED: Final = {
    "AuthorizationHeaderMalformed", "BadDigest", "ConditionalRequestConflict", "IllegalLocationConstraintException",
    "IncompleteBody", "OperationAborted", "PermanentRedirect", "RequestTimeout", "TemporaryRedirect",
    "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch",
}  # fmt: skip
_NEVER_SENT: Final = (boto.EndpointConnectionError, boto.ConnectTimeoutError, boto.ProxyConnectionError)
_NO_ANSWER: Final = (
    boto.ConnectionError, boto.HTTPClientError, boto.IncompleteReadError, ResponseParserError, HTTPError,
)  # fmt: skip
_NO_CREDENTIALS: Final = (
    boto.CredentialRetrievalError, boto.NoAuthTokenError, boto.NoCredentialsError, boto.PartialCredentialsError,
    boto.SSOError, boto.TokenRetrievalError,
)  # fmt: skip
#: Raised while a client is made, from what the environment and the profile say; no retry mends that.
MISCONFIGURED: Final = (
    boto.ConfigNotFound, boto.ConfigParseError, boto.InvalidConfigError, boto.InvalidRegionError, boto.NoRegionError,
    boto.ProfileNotFound, ValueError,
)  # fmt: skip


def translated(
    error: Exception, *, doing: str, backend: str, reference: Reference | None, writes: bool
) -> StorageError | None:
    """What `error` means to the caller of a backend, None if it has no meaning there: then it is passed on as it is."""
    make = _Maker(f"{doing} {reference}" if reference else doing, backend, reference, writes)
    if isinstance(error, boto.ClientError):
        return _of_answer(error, make)
    name = type(error).__name__
    if isinstance(error, boto.FlexibleChecksumError):
        return make.error(PayloadCorrupt, name)
    if isinstance(error, _NEVER_SENT):
        return make.unavailable(name)
    if isinstance(error, _NO_CREDENTIALS):
        return make.error(AccessDenied, name)
    return make.unavailable(name, maybe_done=True) if isinstance(error, _NO_ANSWER) else None


class _Maker:
    def __init__(self, doing: str, backend: str, reference: Reference | None, writes: bool) -> None:
        self._doing = doing
        self._where: dict[str, Any] = {"backend": backend, "reference": reference}
        self._writes = writes

    def error(self, kind: type[StorageError], what: str) -> StorageError:
        return kind(f"{self._doing}: {what}", **self._where)

    def unavailable(self, what: str, *, throttled: bool = False, maybe_done: bool = False) -> StorageUnavailable:
        maybe_done = maybe_done and self._writes
        return StorageUnavailable(f"{self._doing}: {what}", throttled=throttled, maybe_done=maybe_done, **self._where)


def _of_answer(error: boto.ClientError, make: _Maker) -> StorageError | None:
    code = error.response.get("Error", {}).get("Code") or ""
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") or 0)
    what = f"{code or 'no code'} ({status})"
    plain = code.removeprefix("KMS.")
    if code in _ABSENT:
        return make.error(_ABSENT[code], what)
    if plain in _THROTTLED or status == 429:
        return make.unavailable(what, throttled=True)
    if status >= 500 or code in _SERVER_FAULTS:
        return make.unavailable(what, throttled=status == 503 or code == "ServiceUnavailable", maybe_done=True)
    if code in _DENIED or status in (401, 403) or code.startswith("KMS."):
        return make.error(AccessDenied, what)
    if code in _REFUSED or status in (404, 408) or 300 <= status < 400:
        return make.unavailable(what)
    return None
