"""The guard of handlers that must not run twice for one id: which jobs are finished.

A job is marked in the step in which it leaves its worker's hands, also if that worker was taken for dead meanwhile.
What the mark cannot cover: a handler that was running, or had ended before that step, when its worker died or was taken
for dead, is run again by another; and two jobs of one id that run at the same moment both run.
"""

from service.keys import Keys
from service.runner import Runner


class Once:
    """Asks; the mark is set by the script that lets go of a finished job."""

    def __init__(self, runner: Runner, keys: Keys) -> None:
        self._runner = runner
        self._keys = keys

    def key(self, queue: str, job_id: str) -> str:
        return self._keys.queue(queue).once(job_id)

    async def finished(self, key: str) -> bool:
        """Raises RetryLater."""
        return bool((await self._runner.read([("EXISTS", key)]))[0])
