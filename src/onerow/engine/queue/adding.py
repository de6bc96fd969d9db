"""Adding tasks: one or many, in a transaction of the store or of the caller, in a thread or on an event loop."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from typing import Any, Unpack, overload

from msgspec.structs import replace

from onerow.core.addition import Addition, AddManyOptions, AddOptions, check_list, with_carried
from onerow.core.caller import to_thread
from onerow.core.keywords import check_keywords
from onerow.core.task import Task
from onerow.engine import import_guard
from onerow.engine.events.events import TaskAdded
from onerow.engine.queue import insert
from onerow.engine.queue.scope import Scope, plan_of
from onerow.pipelines.pipeline import Pipeline
from onerow.pipelines.typed import Payload, Untyped
from onerow.ports import Existing, Inserted

_CARRY_NOTHING: AbstractContextManager[Mapping[str, str]] = nullcontext({})
_Answers = tuple[list[Task], list[Inserted | Existing]]  # the tasks asked for, and what the store answered


class Queue(Scope):
    """The methods of Queue that add tasks, in a class of this name because type checkers and Python's errors show it.

    The async ones are written out, because a transaction must stay in the thread of its connection.
    """

    @overload
    def add(
        self,
        pipeline: Pipeline[Payload],
        payload: Payload,
        *,
        tx: Any = None,
        **options: Unpack[AddOptions],
    ) -> Task: ...

    @overload
    def add(
        self,
        pipeline: Pipeline[Untyped] | str,
        payload: Any = None,
        *,
        tx: Any = None,
        **options: Unpack[AddOptions],
    ) -> Task: ...

    def add(
        self,
        pipeline: Pipeline[Any] | str,
        payload: Any = None,
        *,
        tx: Any = None,
        **options: Unpack[AddOptions],
    ) -> Task:
        """Add one task and return it; if the unique key or id is taken, return the existing task.

        tx: your own open transaction on the same database; the task becomes visible when you commit.
        """
        addition = _addition("add", payload, options)
        return _tasks(self._add(pipeline, [addition], addition, tx))[0]

    @overload
    async def add_async(
        self,
        pipeline: Pipeline[Payload],
        payload: Payload,
        *,
        tx: Any = None,
        **options: Unpack[AddOptions],
    ) -> Task: ...

    @overload
    async def add_async(
        self,
        pipeline: Pipeline[Untyped] | str,
        payload: Any = None,
        *,
        tx: Any = None,
        **options: Unpack[AddOptions],
    ) -> Task: ...

    async def add_async(
        self,
        pipeline: Pipeline[Any] | str,
        payload: Any = None,
        *,
        tx: Any = None,
        **options: Unpack[AddOptions],
    ) -> Task:
        """Async `add`; `tx` may be a connection of the event loop."""
        addition = _addition("add_async", payload, options)
        return _tasks(await self._add_async(pipeline, [addition], addition, tx))[0]

    @overload
    def add_new(
        self,
        pipeline: Pipeline[Payload],
        payload: Payload,
        *,
        tx: Any = None,
        **options: Unpack[AddOptions],
    ) -> Task | None: ...

    @overload
    def add_new(
        self,
        pipeline: Pipeline[Untyped] | str,
        payload: Any = None,
        *,
        tx: Any = None,
        **options: Unpack[AddOptions],
    ) -> Task | None: ...

    def add_new(
        self,
        pipeline: Pipeline[Any] | str,
        payload: Any = None,
        *,
        tx: Any = None,
        **options: Unpack[AddOptions],
    ) -> Task | None:
        """Like `add`, but return None if the unique key or id is taken. tx: as for `add`."""
        addition = _addition("add_new", payload, options)
        return _new_task(self._add(pipeline, [addition], addition, tx))

    @overload
    async def add_new_async(
        self,
        pipeline: Pipeline[Payload],
        payload: Payload,
        *,
        tx: Any = None,
        **options: Unpack[AddOptions],
    ) -> Task | None: ...

    @overload
    async def add_new_async(
        self,
        pipeline: Pipeline[Untyped] | str,
        payload: Any = None,
        *,
        tx: Any = None,
        **options: Unpack[AddOptions],
    ) -> Task | None: ...

    async def add_new_async(
        self,
        pipeline: Pipeline[Any] | str,
        payload: Any = None,
        *,
        tx: Any = None,
        **options: Unpack[AddOptions],
    ) -> Task | None:
        """Async `add_new`; `tx` may be a connection of the event loop."""
        addition = _addition("add_new_async", payload, options)
        return _new_task(await self._add_async(pipeline, [addition], addition, tx))

    @overload
    def add_many(
        self,
        pipeline: Pipeline[Payload],
        payloads: Iterable[Payload | Addition],
        *,
        tx: Any = None,
        **options: Unpack[AddManyOptions],
    ) -> list[Task]: ...

    @overload
    def add_many(
        self,
        pipeline: Pipeline[Untyped] | str,
        payloads: Iterable[Any],
        *,
        tx: Any = None,
        **options: Unpack[AddManyOptions],
    ) -> list[Task]: ...

    def add_many(
        self,
        pipeline: Pipeline[Any] | str,
        payloads: Iterable[Any],
        *,
        tx: Any = None,
        **options: Unpack[AddManyOptions],
    ) -> list[Task]:
        """Add many tasks in one transaction, all or none.

        payloads: each is a payload, or an Addition with its own options. tx: as for `add`.
        """
        check_list(payloads)
        items, common = list(payloads), Addition(None, **insert.for_all(options))
        return _tasks(self._add(pipeline, items, common, tx)) if items else []

    @overload
    async def add_many_async(
        self,
        pipeline: Pipeline[Payload],
        payloads: Iterable[Payload | Addition],
        *,
        tx: Any = None,
        **options: Unpack[AddManyOptions],
    ) -> list[Task]: ...

    @overload
    async def add_many_async(
        self,
        pipeline: Pipeline[Untyped] | str,
        payloads: Iterable[Any],
        *,
        tx: Any = None,
        **options: Unpack[AddManyOptions],
    ) -> list[Task]: ...

    async def add_many_async(
        self,
        pipeline: Pipeline[Any] | str,
        payloads: Iterable[Any],
        *,
        tx: Any = None,
        **options: Unpack[AddManyOptions],
    ) -> list[Task]:
        """Async `add_many`; `tx` may be a connection of the event loop."""
        check_list(payloads)
        items, common = list(payloads), Addition(None, **insert.for_all(options))
        return _tasks(await self._add_async(pipeline, items, common, tx)) if items else []

    def _add(
        self,
        pipeline: Pipeline[Any] | str,
        items: Sequence[Any],
        common: Addition,
        tx: Any,
        not_before: datetime | None = None,
        parent_id: str | None = None,
    ) -> _Answers:
        with self._around_add(pipeline, len(items)) as carried:
            tasks = with_carried(self._new_tasks(pipeline, items, common, tx, parent_id), carried)
            if not_before is not None:
                tasks = [t if t.created_at >= not_before else replace(t, created_at=not_before) for t in tasks]
            answers = self._insert(tasks, tx)
        return tasks, answers

    async def _add_async(
        self, pipeline: Pipeline[Any] | str, items: Sequence[Any], common: Addition, tx: Any
    ) -> _Answers:
        if tx is None:
            return await to_thread(self._add, pipeline, items, common, None)
        with self._around_add(pipeline, len(items)) as carried:
            tasks = with_carried(await to_thread(self._new_tasks, pipeline, items, common, tx), carried)
            # In the caller's thread, because connections must not change threads.
            insert_async = getattr(self.store, "insert_async", None)
            answers = self.store.insert(tasks, tx=tx) if insert_async is None else await insert_async(tasks, tx)
        return tasks, answers

    def _around_add(self, pipeline: Pipeline[Any] | str, count: int) -> AbstractContextManager[Mapping[str, str]]:
        if self.around_add is None:
            return _CARRY_NOTHING
        return self.around_add(pipeline.name if isinstance(pipeline, Pipeline) else str(pipeline), count)

    def _new_tasks(
        self,
        pipeline: Pipeline[Any] | str,
        items: Sequence[Any],
        common: Addition,
        tx: Any,
        parent_id: str | None = None,
    ) -> list[Task]:
        import_guard.check("adds a task")
        store = self._store_for(tx)
        if isinstance(pipeline, str) and pipeline in self.pipelines:
            pipeline = self.pipelines[pipeline]
        declared = pipeline.payload_type if isinstance(pipeline, Pipeline) else None
        plan = plan_of(self, pipeline)
        self._check_relocation(store)
        return insert.new_tasks(store, plan, declared, items, common, self._user, parent_id)

    def _insert(self, tasks: list[Task], tx: Any) -> list[Inserted | Existing]:
        answers = insert.insert(self.store, tasks, tx)
        if self.events.wanted(TaskAdded) and tx is None:
            for answer in answers:
                if isinstance(answer, Inserted):
                    self.events.send(TaskAdded(answer.task))
        return answers


def add_children(
    queue: Queue, pipeline: Pipeline[Any] | str, children: Sequence[Addition], parent_id: str, since: datetime | None
) -> list[Task]:
    """Insert the children of a task, for `ctx.spawn`; the worker sets their ids.

    created_at is at least `since`, even if clocks differ: the parent counts only children created from then on.
    """
    return _tasks(queue._add(pipeline, children, Addition(None), None, since, parent_id)) if children else []


def _addition(function: str, payload: Any, options: AddOptions) -> Addition:
    try:
        return Addition(payload, **options)
    except TypeError as error:
        unexpected = error
    check_keywords(function, options, AddOptions, "what the handlers take is in the payload, the second argument")
    raise unexpected


def _tasks(answers: _Answers) -> list[Task]:
    return [insert.own(task, answer) for task, answer in zip(*answers, strict=True)]


def _new_task(answers: _Answers) -> Task | None:
    (asked,), (answer,) = answers
    task = insert.own(asked, answer)
    return task if isinstance(answer, Inserted) else None
