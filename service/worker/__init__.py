"""The consuming side: a worker that takes jobs from ready queues and runs an application's handlers.

    worker.py     Worker: the handlers of an application
    tasks.py      Task, Context, Retry, Discard, Backoff
    shift.py      one process's work on some queues: start, stop
    crew.py       so many jobs at once; waiting.py: what has not begun; weights.py: whose turn it is
    lane.py       one queue's way through this worker; held.py: what it has in hand; outgoing.py: what Redis is to hear
    upkeep.py     heartbeats, and the return of dead workers' jobs
    source.py     where jobs come from, as a Protocol; ready.py: ready queues, lists.py and streams.py the two kinds;
                  sleeper.py: asleep in Redis
    handling.py   one attempt at one job; verdicts.py: what becomes of it; once.py: not twice
    placing.py    where retried and dead jobs go
    opening.py    builds all of it

A job is done at least once. The envelope of tasks is in service/envelope.py.
"""

from service.worker.tasks import Context, Discard, Retry
from service.worker.worker import Worker

__all__ = ["Context", "Discard", "Retry", "Worker"]
