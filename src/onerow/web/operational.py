"""Endpoints for other machines: /healthz, /readyz, /metrics, /scale."""

import msgspec
from starlette.responses import Response

from onerow.core.errors import OnerowError, SchemaMissing
from onerow.engine.queue.scope import plan_of
from onerow.ports import Administrable
from onerow.scaling.server import metrics as scale_metrics
from onerow.telemetry.prometheus import CONTENT_TYPE
from onerow.web.problems import problem_of, problem_response
from onerow.web.routing import Call, Endpoint, get
from onerow.web.security.roles import Role


@get("/healthz", Role.PUBLIC, kind="api")
async def _healthz(call: Call) -> Response:
    """Whether this process answers; it says nothing about the store."""
    return Response(b'{"status":"ok"}', media_type="application/json")


@get("/readyz", Role.PUBLIC, kind="api")
def _readyz(call: Call) -> Response:
    """Whether the store can be reached and has the tables that this code needs."""
    store = call.site.queue._store  # not `store`, which would create the tables
    try:
        store.now()
        if isinstance(store, Administrable):
            there = store.migration()
            if there.stored < there.known:
                raise SchemaMissing(f"the store has schema {there.stored}, this code needs {there.known}")
    except OnerowError as error:
        problem = problem_of(error)
        return problem_response(type(problem)(503, problem.title, "the store is not ready", retry_after=5))
    return Response(b'{"status":"ready"}', media_type="application/json")


@get("/metrics", Role.VIEWER, kind="api", all_users=True)
def _metrics(call: Call) -> Response:
    text = call.site.metrics.text()
    if b"onerow_store_up 1" not in text:  # asked again, an absent store would take as long again; scrapes have 10 s
        return Response(text, media_type=CONTENT_TYPE)
    try:
        text += scale_metrics(call.site.scale.decision()).encode()
    except OnerowError:
        pass  # onerow_store_up says that the store does not answer
    return Response(text, media_type=CONTENT_TYPE)


@get("/scale", Role.VIEWER, kind="api", all_users=True)
def _scale(call: Call) -> Response:
    """How many workers the work needs, and why; for KEDA's metrics-api. `onerow scale --serve` has more settings."""
    return _decision(call, "")


@get("/scale/{pipeline}", Role.VIEWER, kind="api", all_users=True)
def _scale_pipeline(call: Call) -> Response:
    return _decision(call, call.path["pipeline"])


def _decision(call: Call, pipeline: str) -> Response:
    if pipeline:
        plan_of(call.queue, pipeline)  # an unknown name is an error
    found = call.site.scale.decision(pipeline).answer()
    return Response(msgspec.json.encode(found), media_type="application/json")


def operational_routes() -> list[Endpoint]:
    return [_healthz, _readyz, _metrics, _scale, _scale_pipeline]
