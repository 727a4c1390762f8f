"""What memory, storage and requests cost in a month, at prices that whoever asks can set."""

from dataclasses import dataclass
from typing import Final

MONTH_MS: Final = 2_629_800_000  #: a twelfth of 365.25 days
GIB: Final = 2**30


@dataclass(frozen=True, slots=True)
class Prices:
    """In dollars. The defaults are list prices of AWS in us-east-1: S3 Standard, and ElastiCache on demand."""

    redis_gib_month: float = 11.5  #: a cache.r6g.large: $0.206 an hour for 13.07 GiB, without replicas
    s3_gib_month: float = 0.023
    put_thousand: float = 0.005
    get_thousand: float = 0.0004
    delete_thousand: float = 0.0  #: S3 asks nothing for deletions, of which Coatcheck sends up to 1,000 in a request

    def memory(self, redis_bytes: float) -> float:
        """For a month."""
        return redis_bytes / GIB * self.redis_gib_month

    def stored(self, s3_bytes: float) -> float:
        """For a month."""
        return s3_bytes / GIB * self.s3_gib_month

    @property
    def offloaded_job(self) -> float:
        """Requests of one offloaded job's life: one PUT, one GET, one object deleted."""
        return (self.put_thousand + self.get_thousand + self.delete_thousand) / 1000
