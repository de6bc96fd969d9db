"""Add, read and wait for tasks."""

import asyncio
import hashlib
from datetime import datetime, timedelta
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
from msgspec import Meta, Struct

from onerow.core import values
from onerow.core.addition import Addition
from onerow.core.durations import parse_duration, spell_duration
from onerow.core.errors import BadInput, WaitTimeout
from onerow.core.status import Status
from onerow.core.task import Task
from onerow.core.trace_context import is_traceparent
from onerow.engine.views import Reason, TaskPage, TaskView
from onerow.engine.views.counts import Matching
from onerow.web.api.operation import Answer, operation
from onerow.web.problems import Problem, Refused
from onerow.web.routing import Call, Endpoint
from onerow.web.security.roles import Role

MOST_AT_ONCE = 1_000
_MAX_BODY = 16_000_000
_LONGEST_WAIT = timedelta(seconds=60)
_LONGEST_KEY = 200

Span = Annotated[str, Meta(max_length=50, description="A duration: 500ms, 5s, 15m, 1h30m, 2d.", examples=["10m"])]
Moment = Annotated[
    str, Meta(max_length=50, description="A time with a zone (ISO 8601).", examples=["2030-01-31T09:00:00+09:00"])
]
Query = Annotated[str, Meta(max_length=2000, description="A query: status:failed phase:video …", examples=["status:failed"])]  # fmt: skip


class NewTask(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task to add; the same options as `Queue.add`."""

    payload: Any = None
    task_id: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    user_id: Annotated[str, Meta(max_length=200)] = ""
    title: Annotated[str, Meta(max_length=500)] | None = None
    run_at: Moment | None = None
    delay: Span | None = None
    priority: Annotated[int, Meta(ge=-100, le=100)] = 0
    unique: Annotated[str, Meta(min_length=1, max_length=500)] | None = None
    unique_for: Span | None = None
    limit_key: Annotated[str, Meta(max_length=200)] = ""
    max_retries: Annotated[int, Meta(ge=0, le=1000)] | None = None
    metadata: dict[str, Any] | None = None

    def addition(self) -> Addition:
        return Addition(**msgspec.structs.asdict(self))


class NewTasks(Struct, frozen=True, forbid_unknown_fields=True):
    """Tasks to add in one transaction: all or none."""

    tasks: Annotated[list[NewTask], Meta(min_length=1, max_length=MOST_AT_ONCE)]


class Brief(Struct, frozen=True, kw_only=True):
    """A task, in short."""

    task_id: str
    pipeline: str
    phase: str
    status: Status
    run_at: datetime

    @classmethod
    def of(cls, task: Task) -> "Brief":
        return cls(**{name: getattr(task, name) for name in cls.__struct_fields__})


class Added(Struct, frozen=True, kw_only=True):
    """The task of an add. created: false if the unique key, the id or the Idempotency-Key found an existing one."""

    task: Brief
    created: bool


class AddedMany(Struct, frozen=True):
    tasks: list[Brief]


class Result(Struct, frozen=True, kw_only=True):
    """How a task stands. result: that of the phase in which it ended, unmasked."""

    task_id: str
    status: Status
    phase: str
    ended: bool
    result: Any = None
    results: dict[str, Any] = {}
    error: str | None = None
    error_class: str | None = None


class ListQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    query: Query = ""
    limit: Annotated[int, Meta(ge=1, le=500, description="Tasks on a page.")] = 50
    after: Annotated[str, Meta(max_length=2000, description="`next` of the page before.")] | None = None


class CountQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    query: Query = ""


class WaitQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    timeout: Annotated[Span, Meta(description="How long to wait for the end, at most 60s.")] = "0s"


_IDEMPOTENCY = {"Idempotency-Key": "A key of the caller: a repeated request with it returns the task of the first one."}


@operation(
    "POST", "/pipelines/{pipeline}/tasks", Role.OPERATOR, "tasks", "Add one task.",
    request=NewTask, answers={201: Added, 200: Added}, headers=_IDEMPOTENCY, max_body=3_000_000,
)  # fmt: skip
def _add(call: Call, new: NewTask, query: Any) -> Answer:
    addition, key = _traced(call, new.addition()), call.request.headers.get("idempotency-key")
    pipeline = call.path["pipeline"]
    if key is not None:
        if new.task_id is not None:
            raise BadInput("task_id and Idempotency-Key both name the task", fix="send one of them", field="task_id")
        addition = msgspec.structs.replace(addition, task_id=_id_of_key(call, pipeline, key))
    options = {name: value for name, value in msgspec.structs.asdict(addition).items() if name != "payload"}
    added = call.queue.add_new(pipeline, addition.payload, **options)
    created = added is not None
    task = added or call.queue.add(pipeline, addition.payload, **options)
    if not created and key is not None and values.decode(values.encode(new.payload)) != task.payload:
        raise Refused(
            Problem(
                422, "idempotency key used again", "an earlier request with this Idempotency-Key had another payload",
                fix="use a new key for a new task",
            )
        )  # fmt: skip
    location = {"Location": f"{call.base}api/v1/tasks/{quote(task.task_id, safe='')}"}
    return Answer(201 if created else 200, Added(task=Brief.of(task), created=created), location)


def _traced(call: Call, addition: Addition) -> Addition:
    """Return the addition with the caller's trace context, so that workers continue its trace."""
    given = call.request.headers.get("traceparent", "")
    if not is_traceparent(given):
        return addition
    return msgspec.structs.replace(addition, metadata={"traceparent": given, **(addition.metadata or {})})


def _id_of_key(call: Call, pipeline: str, key: str) -> str:
    """Return the task id of an idempotency key; the caller and its user are part of it, so keys of others don't clash."""
    if not 1 <= len(key) <= _LONGEST_KEY:
        raise BadInput(f"an Idempotency-Key has 1 to {_LONGEST_KEY} characters", field="Idempotency-Key")
    owner = "\0".join([call.identity.name, call.identity.user_id or "", pipeline, key])
    return f"idem-{hashlib.sha256(owner.encode()).hexdigest()[:32]}"


@operation(
    "POST", "/pipelines/{pipeline}/tasks/batch", Role.OPERATOR, "tasks", "Add many tasks, all or none.",
    request=NewTasks, answers={201: AddedMany}, max_body=_MAX_BODY,
)  # fmt: skip
def _add_many(call: Call, new: NewTasks, query: Any) -> AddedMany:
    tasks = call.queue.add_many(call.path["pipeline"], [_traced(call, each.addition()) for each in new.tasks])
    return AddedMany([Brief.of(task) for task in tasks])


@operation(
    "GET", "/tasks", Role.VIEWER, "tasks", "List tasks that match a query, newest first.",
    query=ListQuery, answers={200: TaskPage},
)  # fmt: skip
def _list(call: Call, body: None, query: ListQuery) -> TaskPage:
    return call.views.find(query.query, limit=query.limit, after=query.after)


@operation(
    "GET", "/counts", Role.VIEWER, "tasks", "Count tasks that match a query, by phase and status.",
    query=CountQuery, answers={200: Matching},
)  # fmt: skip
def _count(call: Call, body: None, query: CountQuery) -> Matching:
    return call.views.count(query.query)


@operation(
    "GET", "/tasks/{task_id}", Role.VIEWER, "tasks", "Show one task: columns, timeline, why. Secrets are masked.",
    answers={200: TaskView},
)  # fmt: skip
def _show(call: Call, body: None, query: Any) -> TaskView:
    return call.views.task(call.path["task_id"])


@operation(
    "GET", "/tasks/{task_id}/why", Role.VIEWER, "tasks", "Explain why a task is not running.", answers={200: Reason}
)
def _why(call: Call, body: None, query: Any) -> Reason:
    return call.views.why(call.path["task_id"])


class _Waits:
    """Bounds the number of requests that wait at once."""

    most = 500
    now = 0


@operation(
    "GET", "/tasks/{task_id}/result", Role.OPERATOR, "tasks", "Wait until a task has ended, and return its results.",
    query=WaitQuery, answers={200: Result, 202: Result},
)  # fmt: skip
async def _result(call: Call, body: None, query: WaitQuery) -> Answer:
    span = parse_duration(query.timeout, "timeout")
    if span > _LONGEST_WAIT:
        raise BadInput("timeout must be at most 60s", fix="ask again after each answer 202", field="timeout")
    task = await call.site.pool.run(call.queue.get, call.path["task_id"])
    if not task.ended and span and _Waits.now < _Waits.most:
        _Waits.now += 1
        waiting = asyncio.ensure_future(call.queue.wait_async(task.task_id, timeout=spell_duration(span)))
        gone = asyncio.ensure_future(_disconnected(call))
        try:
            await asyncio.wait({waiting, gone}, return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                task = waiting.result()
        except WaitTimeout:
            task = await call.site.pool.run(call.queue.get, task.task_id)
        finally:
            _Waits.now -= 1
            waiting.cancel()
            gone.cancel()
    result = Result(
        task_id=task.task_id, status=task.status, phase=task.phase, ended=task.ended, result=task.result,
        results=task.results, error=task.error, error_class=task.error_class,
    )  # fmt: skip
    return Answer(200 if task.ended else 202, result)


async def _disconnected(call: Call) -> None:
    """Return when the client has closed the connection."""
    while (await call.request.receive())["type"] != "http.disconnect":
        continue


def task_routes() -> list[Endpoint]:
    return [_add, _add_many, _list, _count, _show, _why, _result]
