"""Object keys: computed from the reference and the configuration alone, and read back without either's help.

    key = prefix "v1/" backend "/" shard "/" due-day "/" queue "/" ts "-" uuid
          prefix "v1/" backend "/INSTALLATION"

    shard     last hex digit of the uuid: 16 partitions share the request rate, which S3 grants per prefix
              (https://docs.aws.amazon.com/AmazonS3/latest/userguide/optimizing-performance.html)
    due-day   the UTC day of ts, `YYYY-MM-DD` in the proleptic Gregorian calendar. Years take as many digits as they
              need: ts reaches the year 287396, where `datetime` ends at 9999. Unpadded beyond four digits, hence
              not in order there; nothing reads days in order.

Neither a queue's name nor a uuid holds a "/" or begins with a ".": no reference can point outside its backend's part
of the prefix. One spelling only: `reference_of(key_of(x)) == x`, and every other key is no payload's.
"""

import re
from datetime import date, timedelta
from typing import Final

from storage_backends.reference import InvalidName, Reference

SHARDS: Final = "0123456789abcdef"
_DAY_MS: Final = 86_400_000
_CYCLE_YEARS: Final = 400  #: the calendar repeats after so many years, weekdays included
_CYCLE_DAYS: Final = 146_097
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
        day = due_day(reference.ts_ms)
        return f"{self.root}{reference.uuid[-1]}/{day}/{reference.queue}/{reference.ts_ms}-{reference.uuid}"

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


def due_day(ts_ms: int) -> str:
    """The UTC day of a due time, as it stands in the key."""
    cycles, day = divmod(ts_ms // _DAY_MS, _CYCLE_DAYS)
    within = date(1970, 1, 1) + timedelta(days=day)
    return f"{within.year + cycles * _CYCLE_YEARS:04}-{within.month:02}-{within.day:02}"
