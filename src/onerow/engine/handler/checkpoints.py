"""Checkpoints, handler side: steps remembered across attempts, waits that free the slot, and children."""

import asyncio
import inspect
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any

import msgspec

from onerow.core import steps, values
from onerow.core.addition import Addition, ChildOptions, check_list
from onerow.core.errors import BadInput
from onerow.core.keywords import check_keywords
from onerow.core.outcomes import Asleep, ChildrenFailed, Parked, WaitExpired
from onerow.core.status import Status
from onerow.core.steps import Record
from onerow.core.task import Task
from onerow.engine.handler.requests import (
    AwaitSignal,
    BeginSpawn,
    ChildPage,
    EndSpawn,
    Join,
    Remember,
    Request,
    Spawn,
)
from onerow.pipelines.decoding import decode_result
from onerow.pipelines.pipeline import Pipeline, not_a_pipeline

_read = msgspec.json.Decoder(Record | None).decode


class ChildCounts(msgspec.Struct, frozen=True):
    """Number of ended children by status."""

    completed: int = 0  # ended with a result
    failed: int = 0  # ended failed
    cancelled: int = 0  # ended cancelled

    @property
    def total(self) -> int:
        """The sum."""
        return self.completed + self.failed + self.cancelled


class Child(msgspec.Struct, frozen=True):
    """A child as seen by its parent."""

    task_id: str
    status: Status  # as it is now
    payload: Any = None  # as it was added
    result: Any = None  # the result of its last phase, if it is completed
    error: str | None = None  # its last error
    error_class: str | None = None  # the class of this error


class _Page(msgspec.Struct, frozen=True):
    children: list[Child]
    next: str | None = None


_read_page = msgspec.json.Decoder(_Page).decode


class Additions:
    """Children that a handler asked to spawn."""

    def __init__(
        self,
        pipeline: Pipeline[Any] | str,
        payloads: Iterable[Any],
        key: Callable[[Any], str] | None,
        options: ChildOptions,
    ) -> None:
        check_keywords("spawn", options, ChildOptions)
        check_list(payloads)
        if not isinstance(pipeline, Pipeline | str):
            raise not_a_pipeline(pipeline)
        self.pipeline = pipeline if isinstance(pipeline, str) else pipeline.name
        self._payloads = payloads
        self._key = key
        self._options: dict[str, Any] = {**options}

    def in_pages(self) -> Iterator[list[tuple[str, dict[str, Any]]]]:
        page: list[tuple[str, dict[str, Any]]] = []
        known: set[str] = set()
        for position, item in enumerate(self._payloads):
            payload, options = item, self._options
            if isinstance(item, Addition):
                payload = item.payload
                options = {field: getattr(item, field) for field in _OPTIONS if _is_set(item, field)}
            # Checked in the handler's own process, so that the traceback points to the mistake.
            values.encode(payload, f"payload of child {position}")
            key = str(position)
            if self._key is not None:
                key = str(self._key(payload))
                if key in known:
                    continue  # the same key is the same child
                known.add(key)
            page.append((key, {**options, "payload": values.to_plain(payload, "payload")}))
            if len(page) == _PAGE:
                yield page
                page = []
        if page:
            yield page


def _is_set(item: Addition, field: str) -> bool:
    return bool(getattr(item, field) != getattr(_DEFAULTS, field))


_DEFAULTS = Addition()
_PAGE = 500
_OPTIONS = tuple(ChildOptions.__annotations__)


class Checkpoints:
    """The checkpoint records of one phase: those of earlier attempts and those this attempt adds."""

    def __init__(self, task: Task, ask: Callable[[Request], str]) -> None:
        self._phase = task.phase
        self._ask = ask
        self._records = steps.records(task)
        self._used: set[str] = set()
        self._counts: Counter[str] = Counter()

    # ── steps ──

    def step(self, name: str, function: Callable[..., Any], args: Any, named: Any) -> Any:
        if (text := self._recall(name)) is None:
            text = self._remember(name, values.encode(function(*args, **named), f"step {name!r}"))
        return decode_result(function, text, f"step {name!r}")

    async def astep(self, name: str, function: Callable[..., Any], args: Any, named: Any) -> Any:
        if (text := self._recall(name)) is None:
            if inspect.iscoroutinefunction(function):
                result = await function(*args, **named)
            else:
                result = await asyncio.to_thread(function, *args, **named)
                if inspect.isawaitable(result):
                    result = await result
            # In a thread, so that a slow store does not block the other handlers of this event loop.
            text = await asyncio.to_thread(self._remember, name, values.encode(result, f"step {name!r}"))
        return decode_result(function, text, f"step {name!r}")

    def remembers(self, name: str) -> bool:
        return name in self._records or name in self._used

    def _recall(self, name: str) -> str | None:
        if name in self._used:
            raise BadInput(
                f"{self._phase} has two steps named {name!r}", fix="each needs a name of its own", field="step"
            )
        record = self._records.get(name)
        if record is not None:
            self._used.add(name)
        return None if record is None else bytes(record.result).decode()

    def _remember(self, name: str, result: str) -> str:
        self._used.add(name)
        self._ask(Remember(name, result))
        return result

    # ── waits ──

    def wait(self, signal: str, timeout: timedelta | None) -> Any:
        name = self._next_name(f"wait:{signal}")
        record = self._records.get(name)
        if record is None or record.open:
            record = _read(self._ask(AwaitSignal(name, signal)))
        if record is None:
            raise Parked(name, f"signal:{signal}", timeout)
        return _value_of(record, f"no signal {signal!r} was received in {self._phase} in time")

    def sleep(self, name: str, for_: timedelta) -> None:
        record_name = self._next_name(f"sleep:{name}")
        if record_name not in self._records:
            raise Asleep(record_name, for_)

    # ── children ──

    def spawn(self, name: str, additions: "Additions") -> int:
        spawn_name = self._next_name(f"spawn:{name}")
        done = values.decode(self._ask(BeginSpawn(spawn_name)))
        if done is not None:
            return int(done["count"])
        count = 0
        for page in additions.in_pages():
            count += int(self._ask(Spawn(spawn_name, additions.pipeline, page)))
        self._ask(EndSpawn(spawn_name, count))
        return count

    def join(self, timeout: timedelta | None, all_must_succeed: bool) -> "ChildCounts":
        name = self._next_name("join")
        answer = values.decode(self._ask(Join(name)))
        if answer is None:
            raise Parked(name, "children", timeout)
        if answer.get("expired"):
            raise WaitExpired(f"the children of {self._phase} had not ended in time")
        tally = ChildCounts(**answer["counts"])
        if all_must_succeed and tally.completed < tally.total:
            raise ChildrenFailed(
                f"{tally.total - tally.completed} of {tally.total} children of {self._phase} did not complete"
            )
        return tally

    def children(self) -> Iterator["Child"]:
        after: str | None = None
        while True:
            page = _read_page(self._ask(ChildPage(after)))
            yield from page.children
            if (after := page.next) is None:
                return

    async def achildren(self) -> AsyncIterator["Child"]:
        after: str | None = None
        while True:
            page = _read_page(await asyncio.to_thread(self._ask, ChildPage(after)))
            for child in page.children:
                yield child
            if (after := page.next) is None:
                return

    def _next_name(self, kind: str) -> str:
        """Return the name of this call; repeated calls of one kind are numbered."""
        self._counts[kind] += 1
        count = self._counts[kind]
        return kind if count == 1 else f"{kind}#{count}"


def _value_of(record: Record, otherwise: str) -> Any:
    if record.expired:
        raise WaitExpired(otherwise)
    return record.value
