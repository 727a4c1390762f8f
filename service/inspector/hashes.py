"""Records in hashes, whose fields may be of any number and size: names first, then what is small enough to read."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from service.inspector.payloads import READ_BYTES
from service.inspector.reading import ReadOnly

FIELDS: Final = 200  #: of one hash at most


@dataclass(frozen=True, slots=True)
class Record:
    """One hash. A field that was too large to be read is in `sizes_bytes` alone."""

    fields: dict[bytes, bytes]
    sizes_bytes: dict[bytes, int]
    total: int  #: fields that it has; more than `sizes_bytes` if it has very many

    def get(self, name: str) -> bytes | None:
        return self.fields.get(name.encode())


async def record_of(reader: ReadOnly, key: str, read_bytes: int = READ_BYTES) -> Record | None:
    """The hash, field by field; None if there is none. Raises ResponseError for a key of another type."""
    total, names = await reader.send([("HLEN", key), ("HRANDFIELD", key, FIELDS)], raising=True)
    if not total:
        return None
    return await _read(reader, key, sorted(names), total, read_bytes)


async def _read(reader: ReadOnly, key: str, names: Sequence[bytes], total: int, read_bytes: int) -> Record:
    sizes = await reader.send([("HSTRLEN", key, name) for name in names], raising=True)
    small = [name for name, size in zip(names, sizes, strict=True) if size <= read_bytes]
    values = await reader.ask("HMGET", key, *small) if small else []
    fields = {name: value for name, value in zip(small, values, strict=True) if value is not None}
    return Record(fields, dict(zip(names, sizes, strict=True)), total)
