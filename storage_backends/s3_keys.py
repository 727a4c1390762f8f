"""Object keys: computed from the reference and the configuration alone, and read back without either's help.

    key = prefix "v1/" backend "/" shard "/" due-day "/" queue "/" ts "-" uuid
          prefix "v1/" backend "/INSTALLATION"

    shard     last hex digit of the uuid: 16 partitions share the request rate, which S3 grants per prefix
              (https://docs.aws.amazon.com/AmazonS3/latest/userguide/optimizing-performance.html)
    due-day   Reference.due_day: `YYYY-MM-DD`, the year with more digits after 9999, hence not in order there; nothing
              reads days in order

Neither a queue's name nor a uuid holds a "/" or begins with a ".": no reference can point outside its backend's part
of the prefix. One spelling only: `reference_of(key_of(x)) == x`, and every other key is no payload's.
"""

import re
from typing import Final

from storage_backends.reference import InvalidName, Reference

SHARDS: Final = "0123456789abcdef"
_day = re.compile(r"[0-9]{4,6}-[0-9]{2}-[0-9]{2}")
_tail = re.compile(r"[0-9a-f]/[0-9-]+/([^/]+)/([0-9]+)-([0-9a-f-]{36})")


class S3Keys:
    """The keys of one backend under one prefix. `prefix` is "" or ends in "/"."""

    def __init__(self, backend: str, prefix: str = "") -> None:
        self._backend = backend
        self.root = f"{prefix}v1/{backend}/"  #: of all this backend's keys, and of nobody else's
        self.installation = f"{self.root}INSTALLATION"

    def key_of(self, reference: Reference) -> str:
        """Where the payload of `reference` lies. Raises ValueError for a reference of another backend."""
        if reference.backend != self._backend:
            raise ValueError(f"{reference} is not a reference of backend {self._backend!r}")
        shard, day = reference.uuid[-1], reference.due_day
        return f"{self.root}{shard}/{day}/{reference.queue}/{reference.ts_ms}-{reference.uuid}"

    def reference_of(self, key: str) -> Reference | None:
        """The reference whose payload lies at `key`; None if that is no key of ours."""
        match = _tail.fullmatch(key, len(self.root)) if key.startswith(self.root) else None
        if match is None:
            return None
        queue, ts, uuid = match.groups()
        try:
            reference = Reference(self._backend, queue, int(ts), uuid)
        except ValueError:
            return None
        return reference if self.key_of(reference) == key else None

    def prefix_of(self, shard: str, day: str | None = None) -> str:
        """What the keys of a shard, on one day or on all, begin with. Raises InvalidName for what is no day."""
        if day is None:
            return f"{self.root}{shard}/"
        if not _day.fullmatch(day):
            raise InvalidName(f"{day[:50]!r} is not a day, YYYY-MM-DD")
        return f"{self.root}{shard}/{day}/"
