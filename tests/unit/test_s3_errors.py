"""What botocore's errors mean (pitfall 14): a wrong row here buries jobs, or retries them for ever."""

from typing import Any

import pytest
from botocore import exceptions as boto
from botocore.parsers import ResponseParserError
from urllib3.exceptions import SSLError as Urllib3SSLError

from storage_backends.base import AccessDenied, PayloadCorrupt, PayloadMissing, StorageError, StorageUnavailable
from storage_backends.reference import Reference
from storage_backends.s3_errors import translated
from storage_backends.s3_options import BucketMissing

REFERENCE = Reference("s3", "emails", 1, "0193f2a4-7c1e-7b3a-9d57-6f0a1c2b3d4e")
SECRET_URL = "https://payloads.example/secret?X-Amz-Signature=abc"


def answer(code: str, status: int | None) -> boto.ClientError:
    metadata = {} if status is None else {"ResponseMetadata": {"HTTPStatusCode": status}}
    return boto.ClientError({"Error": {"Code": code, "Message": SECRET_URL}, **metadata}, "GetObject")


def meaning(error: Exception, *, writes: bool = True) -> StorageError | None:
    return translated(error, doing="put", backend="s3", reference=REFERENCE, writes=writes)


@pytest.mark.parametrize(
    ("code", "status", "kind", "throttled", "maybe_done"),
    [
        ("NoSuchKey", 404, PayloadMissing, None, None),
        # Any other 404 is not about the object: it must bury nothing.
        ("NoSuchBucket", 404, BucketMissing, False, False),
        ("404", 404, StorageUnavailable, False, False),
        ("", 404, StorageUnavailable, False, False),
        ("NotFound", 404, StorageUnavailable, False, False),
        ("AccessDenied", 403, AccessDenied, None, None),
        ("403", 403, AccessDenied, None, None),
        ("AccountProblem", 403, AccessDenied, None, None),
        ("AllAccessDisabled", 403, AccessDenied, None, None),
        ("InvalidAccessKeyId", 403, AccessDenied, None, None),
        ("SignatureDoesNotMatch", 403, AccessDenied, None, None),
        ("InvalidObjectState", 403, AccessDenied, None, None),
        ("Unauthorized", 401, AccessDenied, None, None),
        # Credentials and clocks: refused until somebody acts, whatever the status.
        ("ExpiredToken", 400, AccessDenied, None, None),
        ("InvalidToken", 400, AccessDenied, None, None),
        ("TokenRefreshRequired", 400, AccessDenied, None, None),
        ("RequestExpired", 400, AccessDenied, None, None),
        ("RequestTimeTooSkewed", 403, AccessDenied, None, None),
        ("InvalidIdentityToken", 400, AccessDenied, None, None),
        ("KMS.DisabledException", 400, AccessDenied, None, None),
        ("KMS.NotFoundException", 400, AccessDenied, None, None),
        # Throttled: refused before anything was done.
        ("SlowDown", 503, StorageUnavailable, True, False),
        ("SlowDown", None, StorageUnavailable, True, False),
        ("Throttling", 400, StorageUnavailable, True, False),
        ("ThrottlingException", 400, StorageUnavailable, True, False),
        ("RequestLimitExceeded", 503, StorageUnavailable, True, False),
        ("TooManyRequests", 429, StorageUnavailable, True, False),
        ("429", 429, StorageUnavailable, True, False),
        ("KMS.ThrottlingException", 400, StorageUnavailable, True, False),
        ("ServiceUnavailable", 503, StorageUnavailable, True, True),
        ("503", 503, StorageUnavailable, True, True),
        # The server failed, and nobody knows how far it came.
        ("InternalError", 500, StorageUnavailable, False, True),
        ("InternalError", None, StorageUnavailable, False, True),
        ("InternalError", 200, StorageUnavailable, False, True),
        ("502", 502, StorageUnavailable, False, True),
        ("504", 504, StorageUnavailable, False, True),
        ("NotImplemented", 501, StorageUnavailable, False, True),
        ("KMS.InternalException", 500, StorageUnavailable, False, True),
        # Refused, and worth repeating.
        ("RequestTimeout", 400, StorageUnavailable, False, False),
        ("IncompleteBody", 400, StorageUnavailable, False, False),
        ("BadDigest", 400, StorageUnavailable, False, False),
        ("OperationAborted", 409, StorageUnavailable, False, False),
        ("408", 408, StorageUnavailable, False, False),
        ("PermanentRedirect", 301, StorageUnavailable, False, False),
        ("TemporaryRedirect", 307, StorageUnavailable, False, False),
        ("AuthorizationHeaderMalformed", 400, StorageUnavailable, False, False),
    ],
)  # fmt: skip
def test_an_answer_means(
    code: str, status: int | None, kind: type[StorageError], throttled: bool | None, maybe_done: bool | None
) -> None:
    error = meaning(answer(code, status))
    assert type(error) is kind
    if isinstance(error, StorageUnavailable):
        assert (error.throttled, error.maybe_done) == (throttled, maybe_done)


@pytest.mark.parametrize(
    ("error", "kind", "maybe_done"),
    [
        (boto.EndpointConnectionError(endpoint_url=SECRET_URL), StorageUnavailable, False),
        (boto.ConnectTimeoutError(endpoint_url=SECRET_URL), StorageUnavailable, False),
        (boto.ProxyConnectionError(proxy_url=SECRET_URL), StorageUnavailable, False),
        (boto.ReadTimeoutError(endpoint_url=SECRET_URL), StorageUnavailable, True),
        (boto.ConnectionClosedError(endpoint_url=SECRET_URL), StorageUnavailable, True),
        (boto.SSLError(endpoint_url=SECRET_URL, error="x"), StorageUnavailable, True),
        (boto.HTTPClientError(error="x"), StorageUnavailable, True),
        (boto.ResponseStreamingError(error="x"), StorageUnavailable, True),
        (boto.IncompleteReadError(actual_bytes=1, expected_bytes=2), StorageUnavailable, True),
        (Urllib3SSLError(SECRET_URL), StorageUnavailable, True),
        (ResponseParserError(SECRET_URL), StorageUnavailable, True),
        (boto.FlexibleChecksumError(error_msg="x"), PayloadCorrupt, None),
        (boto.NoCredentialsError(), AccessDenied, None),
        (boto.PartialCredentialsError(provider="env", cred_var="x"), AccessDenied, None),
        (boto.CredentialRetrievalError(provider="x", error_msg="x"), AccessDenied, None),
        (boto.TokenRetrievalError(provider="x", error_msg="x"), AccessDenied, None),
        (boto.UnauthorizedSSOTokenError(), AccessDenied, None),
    ],
)
def test_no_answer_means(error: Exception, kind: type[StorageError], maybe_done: bool | None) -> None:
    found = meaning(error)
    assert type(found) is kind
    if isinstance(found, StorageUnavailable):
        assert (found.throttled, found.maybe_done) == (False, maybe_done)


@pytest.mark.parametrize(
    "error",
    [
        answer("InvalidArgument", 400),
        answer("EntityTooLarge", 400),
        answer("MethodNotAllowed", 405),
        answer("", None),
        boto.ParamValidationError(report="x"),
        boto.PaginationError(message="x"),
        KeyError("x"),
        TypeError("x"),
    ],
)
def test_what_has_no_meaning_here_is_passed_on(error: Exception) -> None:
    """The dispatcher treats it as an unknown error of this one job: retried, then dead. A guess would be worse."""
    assert meaning(error) is None


def test_a_read_leaves_nothing_in_doubt() -> None:
    """`maybe_done` is about writes; a get that timed out has done nothing."""
    for error in (boto.ReadTimeoutError(endpoint_url="x"), answer("InternalError", 500)):
        found = meaning(error, writes=False)
        assert isinstance(found, StorageUnavailable)
        assert not found.maybe_done


@pytest.mark.parametrize("error", [answer("SlowDown", 503), boto.EndpointConnectionError(endpoint_url=SECRET_URL)])
def test_the_message_names_reference_and_code_and_no_url(error: Exception) -> None:
    found: Any = meaning(error)
    assert str(REFERENCE) in str(found)
    assert (found.backend, found.reference) == ("s3", REFERENCE)
    assert "example" not in str(found)
    assert "Signature" not in str(found)
