"""HTTP: parse, call, map errors to status. No logic.

app.py        the application: which call is where
jobs.py       one job: accept, look up, cancel, reschedule
batch.py      many jobs in one request
queues.py     what queues hold, in figures and in pages; pause and resume
dead.py       dead jobs: revive, purge
health.py     alive, ready, metrics
incoming.py   what requests hold: references, headers, times, bodies
room.py       how many bytes of bodies are held at once
lines.py      a body as lines, each of them a job
problems.py   errors as RFC 9457 problems
routes.py     how a request reaches its call
openapi.py    the reference, by example
"""

from service.api.app import create_app

__all__ = ["create_app"]
