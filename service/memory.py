"""How full Redis is, as this process last heard: what the router and the producer go by."""

from service.census import Census

INTERVAL_S = 1.0  #: a Redis that fills up at 100 MB/s is noticed within 100 MB; one INFO a second costs it nothing


class RedisMemory:
    """`round` is a loop's round. Before the first one, and without a maxmemory, the ratio is 0."""

    def __init__(self, census: Census) -> None:
        self._census = census
        self.ratio = 0.0

    async def round(self) -> None:
        self.ratio = await self._census.memory_ratio()
