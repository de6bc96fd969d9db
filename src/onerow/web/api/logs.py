"""The log of a task: a range of its lines, or a stream of new ones."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from starlette.responses import StreamingResponse

from onerow.core.errors import OnerowError
from onerow.engine.queue.task_log import Wanted
from onerow.ports import LogPage
from onerow.web.api.operation import operation
from onerow.web.problems import Problem, Refused, problem_of
from onerow.web.routing import Call, Endpoint
from onerow.web.security.roles import Role

_LOOK_EVERY = 0.5
_COMMENT_EVERY = 15.0  # seconds; keeps proxies from closing a silent stream
_MOST_STREAMS = 200
_PAGE = 1_000
Seq = Annotated[int, Meta(ge=0, le=2**53)]


class LogQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    after: Annotated[Seq, Meta(description="Lines after this one: `next` of the page before.")] = 0
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 1_000
    tail: Annotated[int, Meta(ge=1, le=10_000, description="The last lines instead.")] | None = None
    level: Annotated[str, Meta(max_length=10, description="Lowest level, or out or err.")] | None = None
    phase: Annotated[str, Meta(max_length=200)] | None = None
    attempt: Annotated[int, Meta(ge=0, le=2**31)] | None = None


class StreamQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    after: Annotated[Seq, Meta(description="Lines after this one; the header Last-Event-ID goes before it.")] = 0


@operation(
    "GET", "/tasks/{task_id}/logs", Role.VIEWER, "tasks", "Return lines of a task's log.",
    query=LogQuery, answers={200: LogPage},
)  # fmt: skip
def _range(call: Call, body: None, query: LogQuery) -> LogPage:
    wanted = Wanted(level=query.level, phase=query.phase, attempt=query.attempt)
    page = call.queue.logs(call.path["task_id"], after=query.after, limit=query.limit, tail=query.tail)
    return LogPage([line for line in page.lines if wanted.includes(line)], page.next, page.dropped)


class _Streams:
    open = 0


@operation(
    "GET", "/tasks/{task_id}/logs/stream", Role.VIEWER, "tasks",
    "Stream a task's log as server-sent events until the task has ended: `line` for each line, then `end`.",
    query=StreamQuery, answers={200: str}, content_type="text/event-stream",
)  # fmt: skip
async def _stream(call: Call, body: None, query: StreamQuery) -> StreamingResponse:
    resumed = call.request.headers.get("last-event-id", "")
    after = int(resumed) if resumed.isascii() and resumed.isdigit() and len(resumed) < 16 else query.after
    await call.site.pool.run(call.queue.get, call.path["task_id"])  # an unknown task is an error, not a stream
    if _Streams.open >= _MOST_STREAMS:
        raise Refused(Problem(503, "too busy", "too many streams are open", retry_after=30))
    return StreamingResponse(_events(call, call.path["task_id"], after), media_type="text/event-stream")


async def _events(call: Call, task_id: str, after: int) -> AsyncIterator[bytes]:
    _Streams.open += 1
    silent = 0.0
    try:
        while await call.still_allowed():
            try:
                # Read first: once a task has ended, its whole log is in the store.
                ended = (await call.site.pool.run(call.queue.get, task_id)).ended
                page = await call.site.pool.run(_read, call, task_id, after)
            except (OnerowError, Refused) as error:
                problem = error.problem if isinstance(error, Refused) else problem_of(error)
                yield _event("problem", msgspec.json.encode({"status": problem.status, "detail": problem.detail}))
                return
            for line in page.lines:
                yield _event("line", msgspec.json.encode(line), line.seq)
            after = page.next
            if ended and len(page.lines) < _PAGE:
                yield _event("end", b"{}")
                return
            if page.lines:
                silent = 0.0
                continue
            await asyncio.sleep(_LOOK_EVERY)
            silent += _LOOK_EVERY
            if silent >= _COMMENT_EVERY:
                silent = 0.0
                yield b": waiting\n\n"
    finally:
        _Streams.open -= 1


def _read(call: Call, task_id: str, after: int) -> LogPage:
    return call.queue.logs(task_id, after=after, limit=_PAGE)


def _event(name: str, data: bytes, seq: int | None = None) -> bytes:
    head = f"event: {name}\n" + (f"id: {seq}\n" if seq is not None else "")
    return head.encode() + b"data: " + data + b"\n\n"


def log_routes() -> list[Endpoint]:
    return [_range, _stream]
