"""Tasks on their way into the store: all are checked before one is stored."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from onerow.core import rules
from onerow.core.addition import Addition, new_task
from onerow.core.errors import BadInput, UnknownName
from onerow.core.plan import Plan
from onerow.core.task import Task
from onerow.engine.handler.call import check_payload
from onerow.engine.queue.ids import new_ids
from onerow.ports import Existing, Inserted, Move, Store


def new_tasks(
    store: Store, plan: Plan, declared: Any, items: Sequence[Any], common: Addition, user: str | None
) -> list[Task]:
    """The rows as they will first stand; nothing is stored yet. `declared`: the payload's type; `user`: only for them."""
    now = store.now()
    tasks: list[Task] = []
    pattern: Task | None = None  # the first of those that differ in nothing but id and payload
    for number, (item, new_id) in enumerate(zip(items, new_ids(now, len(items)), strict=True)):
        own_terms = isinstance(item, Addition)
        try:
            text = check_payload(declared, item.payload if own_terms else item, plan.required)
            if pattern is not None and not own_terms:
                tasks.append(replace(pattern, task_id=new_id, payload_json=text))
                continue
            task = new_task(plan, item if own_terms else common, text, new_id, now, user)
        except BadInput as error:
            if len(items) > 1:
                error.args = (f"item {number}: {error.args[0]}",)
            raise
        if not own_terms and not plan.timed and not plan.title:
            pattern = task
        tasks.append(task)
    given = {
        task.task_id: task
        for task, item in zip(tasks, items, strict=True)
        if isinstance(item, Addition) and item.task_id
    }
    parents = {task.parent_id for task in tasks if task.parent_id} if user is not None else set()
    if given or parents:
        _check_strangers(store, given, parents, user)
    return tasks


def _check_strangers(store: Store, given: dict[str, Task], parents: set[str], user: str | None) -> None:
    """Refuse ids that belong to another user, and (for one user's queue) parents that do, before anything is stored."""
    for known in store.fetch([*given, *parents]):
        if known.task_id in given:
            own(given[known.task_id], Existing(known))
        if known.task_id in parents and known.user_id == user:
            parents.remove(known.task_id)
    if parents:
        raise UnknownName(f"parent_id: no task {min(parents)!r}", field="parent_id")


def insert(store: Store, tasks: list[Task], tx: Any) -> list[Inserted | Existing]:
    """Put them in, all or none; a remembered key whose time is over stands in nobody's way."""
    answers = store.insert(tasks, tx=tx)
    for index, answer in enumerate(answers):
        # Such a key is free, whoever notices. (Not in the caller's transaction, which may hold the lock that this
        # write needs: there the next sweep does it.)
        if type(answer) is Existing and tx is None and (held_until := answer.task.held_until) is not None:
            now = store.now()
            if held_until <= now:
                store.swap([Move(answer.task, rules.release_key(answer.task, now))])
                answers[index] = store.insert([tasks[index]])[0]
    return answers


def own(asked: Task, answer: Inserted | Existing) -> Task:
    """The task that was added or found; one of another user is an error that shows nothing of it."""
    if answer.task.user_id != asked.user_id:
        raise BadInput("task_id is taken; choose another or leave it out", field="task_id")
    return answer.task


def for_all(terms: dict[str, Any]) -> dict[str, Any]:
    """Terms that many tasks can share; an error names those that they can't."""
    unknown = set(terms) - set(Addition.__struct_fields__) | ({"payload", "task_id"} & set(terms))
    if unknown:
        raise BadInput(
            f"add_many can't take {', '.join(sorted(unknown))} for all; use Addition items", field="add_many"
        )
    return terms
