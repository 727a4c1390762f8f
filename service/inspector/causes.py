"""What each kind of problem means, and what usually causes it: one table for all layouts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Cause:
    means: str
    usually: str


CAUSES: Final[Mapping[str, Cause]] = {
    "wrong-type": Cause(
        "A key of the queue holds another type than its library writes there.",
        "Two programs share a key name or a prefix, or somebody wrote by hand.",
    ),
    "unreadable": Cause(
        "Redis refused to show a key.",
        "The user of the inspector lacks a right (ops/redis/inspector.acl grants what it needs).",
    ),
    "not-all-looked-at": Cause(
        "There was more than one look may read; what is told is true of the part that was read.",
        "A large queue. Nothing is wrong with it.",
    ),
    "inspector-failed": Cause(
        "The inspector itself could not make sense of what it read.",
        "Damage of a kind that nobody thought of: a bug in the inspector, please report it.",
    ),
    "state-differs": Cause(
        "What a job's record says and the structure that holds its id disagree.",
        "A process died between two writes, or a release changed one of them.",
    ),
    "in-two-places": Cause(
        "More than one structure holds the same job's id.",
        "A process died between two writes, a script half failed when Redis was full, or somebody wrote by hand.",
    ),
    "id-without-record": Cause(
        "A structure holds an id whose record is gone: whoever takes it finds nothing to do.",
        "The record expired, was evicted (maxmemory-policy must be noeviction) or was deleted alone.",
    ),
    "record-without-id": Cause(
        "A job's record is there, but no structure holds its id: nobody will ever run it.",
        "A consumer popped the id and died, or a script half failed when Redis was full.",
    ),
    "record-incomplete": Cause(
        "A job's record lacks what its library always writes: nobody can run it, show it or delete it.",
        "Asynq: a handler wrote its result after the task was deleted, which makes a hash of the result alone; "
        "a task of that id, or of its unique key, is refused until the hash is deleted by hand.",
    ),
    "group-unlisted": Cause(
        "Jobs wait in a group that the queue's list of groups does not name: nobody looks into it.",
        "Asynq puts tasks back into their group without listing it, after a retry or an aggregation that failed; "
        "the next task that joins the group lists it.",
    ),
    "lease-without-active": Cause(
        "A lease is left of a job that is not active.",
        "Asynq's recoverer stumbles over it every minute (`NOT FOUND`) until the lease is removed by hand.",
    ),
    "active-without-lease": Cause(
        "A job counts as being worked on, but nobody holds a lease or a lock on it.",
        "Its worker died or lost its connection; it comes back when the library next looks for such jobs, if it does.",
    ),
    "lease-expired": Cause(
        "A job is in the hands of a worker whose deadline has passed.",
        "The worker died, hangs, or is slower than its lease.",
    ),
    "due-not-moving": Cause(
        "Jobs are due, and have been for longer than the library takes to move them.",
        "No scheduler or worker of this queue is running, it is paused, or its ready queue is full.",
    ),
    "score-no-time": Cause(
        "A score that should be a time cannot be one.",
        "Seconds, milliseconds or nanoseconds were mixed up, or somebody wrote by hand. "
        "A job with such a score runs at once, or never.",
    ),
    "does-not-parse": Cause(
        "An entry or a record is not what its library writes there.",
        "Another release, another program with the same key, or a value that was cut short.",
    ),
    "kept-for-nobody": Cause(
        "Something is kept for a job that does not exist: it costs memory, and does no other harm.",
        "Jobs were removed by hand, or Redis was restored from parts of a backup.",
    ),
    "trash-not-emptied": Cause(
        "Payloads whose jobs have ended have waited for their deletion for longer than that takes.",
        "No dispatcher is running, or their backend is away or not configured any more.",
    ),
    "index-wrong": Cause(
        "The index of queues does not say when this queue needs its next look: its jobs may be late by a minute.",
        "Somebody wrote to the queue by hand. The service repairs it within a minute, if it is running.",
    ),
    "legacy-marker": Cause(
        "An entry of a list is no job, but what an older release put there to wake its workers.",
        "BullMQ before 5 did; newer releases pass over it and remove it. Nothing is lost.",
    ),
    "left-in-paused": Cause(
        "Jobs are in the list of a paused queue, but the queue is not paused: no worker looks there.",
        "BullMQ 6 moves at most 7,000 of the jobs that 5 left there with each resume: resume the queue again.",
    ),
    "waits-for-nothing": Cause(
        "A parent waits for its children, and there is none left that it waits for.",
        "Its last child was removed by hand, or a script half failed when Redis was full: nothing will wake it.",
    ),
    "worker-overdue": Cause(
        "A worker has not been heard of for too long, and nobody has returned the jobs that it has in hand.",
        "It died or hangs, and no other worker of this queue is running: the next one to start returns them.",
    ),
    "worker-died-twice": Cause(
        "More than one worker died with these jobs in hand. They are run one at a time, and are dead after a few more.",
        "A handler that kills its process, most often for want of memory; or a host that died twice.",
    ),
    "value-too-large": Cause(
        "A value is so large that the inspector did not read it.",
        "A payload that belongs in an object store; `coatcheck advise` tells what that would save.",
    ),
}


def cause_of(kind: str) -> Cause:
    """Of every kind that a layout reports; a test holds layouts to the table."""
    return CAUSES[kind]
