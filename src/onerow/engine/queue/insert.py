"""Inserting tasks: all of them get their ids and are validated before any is stored."""

import os
import threading
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from msgspec.structs import replace

from onerow.core import rules
from onerow.core.addition import Addition, AddManyOptions, new_task
from onerow.core.errors import BadInput
from onerow.core.keywords import check_keywords
from onerow.core.plan import Plan
from onerow.core.task import Task
from onerow.core.times import since_epoch
from onerow.pipelines.decoding import check_payload
from onerow.ports import Existing, Inserted, Move, Store

_COUNTER = tuple(f"{count:03x}" for count in range(1 << 12))
_lock = threading.Lock()
_last = 0


def new_tasks(
    store: Store,
    plan: Plan,
    declared: Any,
    items: Sequence[Any],
    common: Addition,
    user: str | None,
    parent_id: str | None = None,
    *,
    check_owners: bool = True,
) -> list[Task]:
    """Build the rows without storing them. `declared`: the payload's type; `user`: the only user allowed.

    check_owners: refuse given ids that belong to other users; a caller that stores some rows without the others checks
    each answer with `own` instead.
    """
    now = store.now()
    tasks: list[Task] = []
    template: Task | None = None  # the first task without terms of its own; the others differ only in id and payload
    for number, (item, new_id) in enumerate(zip(items, new_ids(now, len(items)), strict=True)):
        own_terms = isinstance(item, Addition)
        try:
            text = check_payload(declared, item.payload if own_terms else item, plan.required)
            if template is not None and not own_terms:
                tasks.append(replace(template, task_id=new_id, payload_json=text))
                continue
            task = new_task(plan, item if own_terms else common, text, new_id, now, user, parent_id)
        except BadInput as error:
            if len(items) > 1:
                error.args = (f"item {number}: {error.args[0]}",)
            raise
        if not own_terms and not plan.timed and not plan.title:
            template = task
        tasks.append(task)
    given = {
        task.task_id: task
        for task, item in zip(tasks, items, strict=True)
        if check_owners and isinstance(item, Addition) and item.task_id
    }
    for known in store.fetch(list(given)) if given else ():
        own(given[known.task_id], Existing(known))  # raises if the id belongs to another user
    return tasks


def insert(store: Store, tasks: list[Task], tx: Any) -> list[Inserted | Existing]:
    """Insert all tasks or none; a unique key whose hold has expired is released first."""
    answers = store.insert(tasks, tx=tx)
    for index, answer in enumerate(answers):
        # An expired key is released here, before the next sweep does it. Not inside the caller's transaction, because
        # that may hold the lock that this write needs.
        if type(answer) is Existing and tx is None and (held_until := answer.task.held_until) is not None:
            now = store.now()
            if held_until <= now:
                store.swap([Move(answer.task, rules.release_key(answer.task, now))])
                answers[index] = store.insert([tasks[index]])[0]
    return answers


def own(asked: Task, answer: Inserted | Existing) -> Task:
    """Return the inserted or existing task; raise, without details, if it belongs to another user."""
    if answer.task.user_id != asked.user_id:
        raise BadInput("task_id is taken", fix="choose another or leave it out", field="task_id")
    return answer.task


def for_all(options: AddManyOptions) -> AddManyOptions:
    """Return the options if many tasks can share them; raise otherwise."""
    if "task_id" in options or "payload" in options:
        raise BadInput("add_many can't take a task_id or payload for all", fix="use Addition items", field="add_many")
    check_keywords("add_many", options, AddManyOptions)
    return options


def new_ids(now: datetime, count: int) -> list[str]:
    """Return time-ordered UUIDs (version 7); those of one process also sort in creation order."""
    global _last
    noise = os.urandom(8 * count).hex()  # 64 random bits for each id, of which 60 are used
    with _lock:
        # A 12-bit counter below the milliseconds keeps the ids of a batch in order.
        start = max(since_epoch(now) << 12, _last + 1)
        _last = start + count - 1
    out = []
    for index in range(count):
        stamp = start + index
        if index == 0 or not stamp & 0xFFF:
            millis = f"{stamp >> 12:012x}"
            head = f"{millis[:8]}-{millis[8:]}-7"
        offset = 16 * index
        out.append(f"{head}{_COUNTER[stamp & 0xFFF]}-8{noise[offset : offset + 3]}-{noise[offset + 4 : offset + 16]}")
    return out


def child_id(parent_id: str, phase: str, generation: int, key: str) -> str:
    """Return the id of a child; repeating a spawn yields the same id."""
    return str(uuid5(NAMESPACE_OID, f"{parent_id}\n{phase}\n{generation}\n{key}"))
