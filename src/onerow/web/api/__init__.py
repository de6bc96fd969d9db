"""The HTTP API under /api/v1; OpenAPI is written from the same table of operations."""

from onerow.web.api.figures import figure_routes
from onerow.web.api.logs import log_routes
from onerow.web.api.openapi import openapi_routes
from onerow.web.api.phases import phase_routes
from onerow.web.api.pull import pull_routes
from onerow.web.api.task_acts import act_routes
from onerow.web.api.tasks import task_routes
from onerow.web.routing import Endpoint


def api_routes() -> list[Endpoint]:
    """Return every operation of the API."""
    found = [*task_routes(), *act_routes(), *log_routes(), *pull_routes(), *phase_routes(), *figure_routes()]
    return [*found, *openapi_routes(found)]
