"""The application: which call is where."""

from fastapi import FastAPI
from starlette.responses import Response

from service.api import openapi, problems
from service.api.batch import BatchCall
from service.api.dead import DeadCalls
from service.api.health import HealthCalls
from service.api.jobs import JobCalls
from service.api.queues import QueueCalls
from service.api.room import Room
from service.api.routes import Answered, Call, PlainRoute
from service.metrics import Metrics
from service.services import JobServices, Services


def create_app(services: Services) -> FastAPI:
    """The ASGI application for one role. Opens nothing and closes nothing: what it is given belongs to the caller."""
    app = FastAPI(
        title="Coatcheck",
        version=services.version,
        description=openapi.DESCRIPTION,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.router.route_class = PlainRoute
    problems.install(app)
    openapi.install(app)
    app.add_middleware(Answered, metrics=services.metrics)
    _add_health(app, services)
    if services.jobs is not None:
        _add_jobs(app, services.jobs, services.metrics)
    return app


def _add_health(app: FastAPI, services: Services) -> None:
    health = HealthCalls(services)
    _add(app, "GET", "/healthz", health.healthz)
    _add(app, "GET", "/readyz", health.readyz)
    _add(app, "GET", "/metrics", health.metrics)


def _add_jobs(app: FastAPI, services: JobServices, metrics: Metrics) -> None:
    room = Room(services.body_budget_bytes)
    jobs, batch = JobCalls(services, room, metrics), BatchCall(services, room)
    queues, dead = QueueCalls(services), DeadCalls(services, metrics)
    _add(app, "POST", "/v1/queues/{queue}/jobs", jobs.enqueue)
    _add(app, "POST", "/v1/queues/{queue}/jobs/batch", batch.enqueue_batch)
    _add(app, "GET", "/v1/queues", queues.list_queues)
    _add(app, "GET", "/v1/queues/{queue}", queues.counts)
    _add(app, "GET", "/v1/queues/{queue}/jobs", queues.list_jobs)
    _add(app, "POST", "/v1/queues/{queue}/pause", queues.pause)
    _add(app, "POST", "/v1/queues/{queue}/resume", queues.resume)
    _add(app, "POST", "/v1/queues/{queue}/dead/revive", dead.revive)
    _add(app, "POST", "/v1/queues/{queue}/dead/purge", dead.purge)
    _add(app, "GET", "/v1/jobs/{reference}", jobs.look_up)
    _add(app, "DELETE", "/v1/jobs/{reference}", jobs.cancel)
    _add(app, "PATCH", "/v1/jobs/{reference}", jobs.reschedule)
    _add(app, "GET", "/v1/jobs/{reference}/payload", jobs.payload)


def _add(app: FastAPI, method: str, path: str, call: Call) -> None:
    """The endpoint's own name is that of the route, in OpenAPI and in metrics."""
    name = call.__name__
    app.add_api_route(
        path, call, methods=[method], name=name, operation_id=name, response_class=Response, **openapi.about(name)
    )
