"""Exit codes, by remedy, as service/errors.py sorts errors."""

from enum import IntEnum
from typing import Final


class Exit(IntEnum):
    """What a script may rely on."""

    DONE = 0
    FAILED = 1  #: refused, not there, could not start or could not finish: repeating it will not help
    MISUSED = 2  #: a wrong argument, a setting that cannot be, or a request that the service calls malformed
    LATER = 3  #: Redis, a backend or the service itself is away, or the outcome is unknown: try again later
    INTERRUPTED = 130  #: Ctrl-C


CODES: Final = (
    "Exit codes: 0 done; 1 refused, not there, or failed; 2 misused: a wrong argument or setting; "
    "3 try again later: the service, Redis or a backend is away; 130 interrupted."
)
