"""Acts on one task and on many, one operation for each line of the table of acts."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from onerow.core.durations import parse_duration
from onerow.core.errors import BadInput, OnerowError
from onerow.core.filters import Filter
from onerow.core.status import ENDS, Status
from onerow.core.task import Task
from onerow.engine.queue.progress import Progress
from onerow.web.acts import TASK_ACTS, TaskAct, audit, chosen
from onerow.web.api.operation import Answer, operation
from onerow.web.api.tasks import Brief, Query, Span
from onerow.web.problems import Problem, Refused
from onerow.web.routing import Call, Endpoint
from onerow.web.security.roles import Role

AT_ONCE = 500
"""More tasks than this, or a pace, are processed after the answer 202."""
_PURGED_AT_ONCE = 2_000


class Bulk(Struct, frozen=True, kw_only=True):
    """What became of an act on many tasks. started: it continues; GET /operations shows its progress."""

    act: str
    matched: int
    done: int = 0
    refused: int = 0
    problems: list[tuple[str, str]] = []
    started: bool = False
    command: str = ""


class Selected(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The tasks of a bulk act."""

    ids: Annotated[list[Annotated[str, Meta(min_length=1, max_length=200)]], Meta(min_length=1, max_length=1000)] | None = None  # fmt: skip
    where: Query | None = None
    expected: Annotated[
        int | None, Meta(description="The number of tasks that you mean to change; another number is refused.")
    ] = None
    dry_run: bool = False
    pace: Annotated[str, Meta(max_length=50, description="At most this number in a time: 20/min.")] | None = None
    limit: Annotated[int, Meta(ge=1)] | None = None


def _on_one(act: TaskAct) -> Endpoint:
    @operation(
        "POST", f"/tasks/{{task_id}}/{act.name}", act.role, "acts", act.summary,
        request=act.arguments, answers={200: Brief},
    )  # fmt: skip
    def run(call: Call, arguments: Any, query: Any) -> Brief:
        changed: list[Task] = []

        def each(task: Task, error: OnerowError | None) -> None:
            if error is not None:
                raise error
            changed.append(task)

        ids = [call.path["task_id"]]
        act.run(call.queue, act.select(call.queue, ids=ids), arguments, call.by, chosen(ids, None), each=each)
        return Brief.of(changed[0])

    return run


def _on_many(act: TaskAct) -> Endpoint:
    request = msgspec.defstruct(
        f"Bulk{act.name.title().replace('-', '')}",
        [("arguments", act.arguments, _no_arguments(act))],
        bases=(Selected,), frozen=True, kw_only=True, forbid_unknown_fields=True,
    )  # fmt: skip

    @operation(
        "POST", f"/acts/{act.name}", act.role, "acts", f"{act.summary} By ids, or all that match a query.",
        request=request, answers={200: Bulk, 202: Bulk},
    )  # fmt: skip
    def run(call: Call, asked: Any, query: Any) -> Answer:
        return run_bulk(call, act, asked, asked.arguments)

    return run


def _no_arguments(act: TaskAct) -> Any:
    """Return the default of `arguments`: none, if the act has no required ones."""
    required = [each for each in msgspec.structs.fields(act.arguments) if each.required]
    return msgspec.NODEFAULT if required else act.arguments()


def run_bulk(call: Call, act: TaskAct, asked: Selected, arguments: Any) -> Answer:
    """Apply an act to many tasks: a few at once, many or paced ones in the background."""
    act.check(call.queue, arguments, asked.pace)
    tasks = act.select(call.queue, ids=asked.ids, where=asked.where)
    count = tasks.count
    bulk = Bulk(
        act=act.name, matched=count, command=act.command(arguments, ids=asked.ids, where=asked.where, pace=asked.pace)
    )
    if asked.dry_run:
        return Answer(200, bulk)
    if asked.expected is None and act.final and asked.where is not None:
        raise BadInput(
            f"this would {act.name} {count:,} tasks, and nothing undoes it",
            fix=f"confirm with expected: {count}",
            field="expected",
        )
    if asked.expected is not None and asked.expected != count:
        raise Refused(
            Problem(
                409, "another number of tasks", f"{count:,} tasks match, not {asked.expected:,}",
                fix="look at them again",
            )
        )  # fmt: skip
    on, how = chosen(asked.ids, asked.where), {"pace": asked.pace, "limit": asked.limit}

    def run(**more: Any) -> Progress:
        return act.run(call.queue, tasks, arguments, call.by, on, **how, **more)

    if count > AT_ONCE or asked.pace is not None:
        call.site.background.start(f"{act.name} by {call.by}", run)
        return Answer(202, msgspec.structs.replace(bulk, started=True))
    done = run()
    return Answer(
        200,
        msgspec.structs.replace(bulk, done=done.done, refused=done.refused, problems=list(done.problems)),
    )


class Purge(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which ended tasks to delete."""

    older_than: Span
    statuses: list[Status] = []
    pipeline: Annotated[str, Meta(max_length=200)] | None = None
    dry_run: bool = False


class Purged(Struct, frozen=True):
    """count: tasks deleted now (or that would be). more: there are others; repeat the request."""

    count: int
    more: bool


@operation(
    "POST", "/purge", Role.ADMIN, "acts", "Delete tasks that ended long ago, some thousand for each request.",
    request=Purge, answers={200: Purged}, all_users=True,
)  # fmt: skip
def _purge(call: Call, asked: Purge, query: Any) -> Purged:
    statuses = frozenset(asked.statuses) or ENDS
    if not statuses <= ENDS:
        raise BadInput("only ended tasks are purged", fix=f"statuses: {', '.join(sorted(ENDS))}", field="statuses")
    queue, span = call.queue, parse_duration(asked.older_than, "older_than")
    if asked.dry_run:
        before = queue.store.now() - span
        where = Filter(statuses=statuses, ended_before=before, pipeline=asked.pipeline)
        return Purged(sum(line.count for line in queue.count(where)), False)
    gone = queue.purge(older_than=span, statuses=statuses, pipeline=asked.pipeline, limit=_PURGED_AT_ONCE)
    audit(call.by, f"onerow purge --older-than {asked.older_than}: {gone} tasks deleted")
    return Purged(gone, gone == _PURGED_AT_ONCE)


class Operations(Struct, frozen=True):
    operations: list[Mapping[str, Any]]


@operation(
    "GET", "/operations", Role.VIEWER, "acts", "List recent acts on many tasks, latest first.",
    answers={200: Operations}, all_users=True,
)  # fmt: skip
def _operations(call: Call, body: None, query: Any) -> Operations:
    return Operations([msgspec.structs.asdict(each) for each in call.queue.bulk_operations()])


def act_routes() -> list[Endpoint]:
    one = [_on_one(act) for act in TASK_ACTS.values()]
    return [*one, *(_on_many(act) for act in TASK_ACTS.values()), _purge, _operations]
