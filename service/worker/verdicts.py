"""What becomes of a job after one attempt, and what is kept of it if it is dead."""

import json
import traceback
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

#: Of what is kept beside a dead job: enough to find the fault, and little beside the payload.
_ERROR_CHARACTERS: Final = 1_000
_TRACEBACK_CHARACTERS: Final = 8_000
_FRAMES: Final = 30  #: the innermost
_CALLER: Final = "service.worker.handling"  #: whose frames, and those above, are the same for every handler


@dataclass(frozen=True, slots=True)
class Over:
    """Nothing more is to be done."""

    outcome: str  #: done, discarded, skipped (it was finished before)
    task: str
    once_key: str | None = None
    once_ms: int = 0


@dataclass(frozen=True, slots=True)
class Again:
    """Another attempt."""

    task: str
    wait_ms: int
    envelope: bytes  #: as the next attempt is to see it
    attempts: int | None  #: of a payload that does not say it itself


@dataclass(frozen=True, slots=True)
class Dead:
    """Given up on."""

    task: str
    reason: str  #: of service.catalogue.FAILURE_KINDS
    envelope: bytes  #: as a revived job is to see it: with all its retries before it
    record: str


Verdict = Over | Again | Dead


def record_of(reason: str, error: str | BaseException, *, attempts: int, at_ms: int, **more: Any) -> str:
    """What the dead set keeps beside the payload, JSON: reason, error, traceback, attempts, time, `more`."""
    told: dict[str, Any] = {"reason": reason, "attempts": attempts, "expiries": 0, "at": at_ms}
    if isinstance(error, BaseException):
        told["error"] = f"{type(error).__name__}: {_text(error)}"[:_ERROR_CHARACTERS]
        told["traceback"] = _trace(error)[-_TRACEBACK_CHARACTERS:]
    else:
        told["error"] = error[:_ERROR_CHARACTERS]
    return json.dumps(told | more)


def place_of(error: BaseException) -> str:
    """Where it was raised, `module:line`: for log lines, which hold no error text, for that may hold payload."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return f"{last.tb_frame.f_globals.get('__name__', '?')}:{last.tb_lineno}" if last is not None else "?"


def _theirs(trace: TracebackType | None) -> TracebackType | None:
    """From the handler's frame on, where people look first; all of it where no handler is."""
    frame, theirs = trace, trace
    while frame is not None:
        if frame.tb_frame.f_globals.get("__name__") == _CALLER:
            theirs = frame.tb_next
        frame = frame.tb_next
    return trace if theirs is None else theirs


def _trace(error: BaseException) -> str:
    """Its parts may be anything, and stand where Python expects its own: the text of a SyntaxError, or notes."""
    theirs = _theirs(error.__traceback__)
    try:
        return "".join(traceback.format_exception(type(error), error, theirs, limit=-_FRAMES))
    except Exception:  # noqa: BLE001  then where it was raised is all that there is to keep
        return "".join(traceback.format_tb(theirs, limit=-_FRAMES))


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as failed:  # noqa: BLE001  somebody's __str__; it must not keep the job from being settled
        return f"(no text: {type(failed).__name__})"
