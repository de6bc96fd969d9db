"""Filters with groups select on every store what a plain Python function selects."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onerow.core import rules
from onerow.core.filters import Filter, narrowed
from onerow.core.query import parse_query
from onerow.core.status import CANCELLED, COMPLETED, ENDS, FAILED, PROCESSING, WAITING
from onerow.core.task import Task
from onerow.ports import Searchable, Store
from tests.conformance.kit import HOUR, claim_one, put, swap
from tests.samples import BROKEN, PLAN


class Condition(NamedTuple):
    """A filter, and the function that says what it means."""

    where: Filter
    holds: Callable[[Task], bool]


LEAVES = [
    Condition(Filter(), lambda t: True),
    Condition(Filter(statuses=frozenset({FAILED})), lambda t: t.status is FAILED),
    Condition(Filter(statuses=frozenset({WAITING})), lambda t: t.status is WAITING),
    Condition(Filter(statuses=frozenset({PROCESSING})), lambda t: t.status is PROCESSING),
    Condition(Filter(statuses=ENDS), lambda t: t.status in (COMPLETED, FAILED, CANCELLED)),
    Condition(Filter(parked=True), lambda t: t.awaiting is not None),
    Condition(Filter(parked=False), lambda t: t.awaiting is None),
    Condition(Filter(awaiting="signal:go"), lambda t: t.awaiting == "signal:go"),
    Condition(Filter(phases=frozenset({"script", "other"})), lambda t: t.phase in ("script", "other")),
    Condition(Filter(pipeline="videos"), lambda t: t.pipeline == "videos"),
    Condition(Filter(user_id="u1"), lambda t: t.user_id == "u1"),
    Condition(Filter(user_id=""), lambda t: t.user_id == ""),
    Condition(Filter(parent_id="a1"), lambda t: t.parent_id == "a1"),
    Condition(Filter(leased_by="w1"), lambda t: t.leased_by == "w1"),
    Condition(Filter(error_class="network"), lambda t: t.error_class == "network"),
    Condition(Filter(error_text="DOWN"), lambda t: "down" in (t.error or "")),
    Condition(Filter(title_text="Ebbe"), lambda t: "ebbe" in t.title.lower()),
    Condition(Filter(text="flut"), lambda t: "flut" in f"{t.title} {t.error} {t.task_id} {t.payload_json}".lower()),
    Condition(Filter(payload=(("a.b", "x"),)), lambda t: t.payload == {"a": {"b": "x"}}),
    Condition(Filter(payload=(("n", "null"),)), lambda t: t.payload == {"n": None}),
    Condition(Filter(metadata=(("order.id", "7"),)), lambda t: t.metadata == {"order": {"id": 7}}),
    Condition(Filter(id_prefix="a"), lambda t: t.task_id[0] == "a"),
    Condition(Filter(id_prefix="b2"), lambda t: t.task_id == "b2"),
    Condition(Filter(cancel_requested=True), lambda t: t.cancel_requested),
    Condition(Filter(limit_key="k"), lambda t: t.limit_key == "k"),
    Condition(Filter(unique_key="u"), lambda t: t.unique_key == "u"),
]


def _all(parts: list[Condition]) -> Condition:
    where = Filter(all_of=tuple(part.where for part in parts))
    return Condition(where, lambda t: all(part.holds(t) for part in parts))


def _any(parts: list[Condition]) -> Condition:
    where = Filter(any_of=tuple(part.where for part in parts))
    return Condition(where, lambda t: any(part.holds(t) for part in parts))


def _none(parts: list[Condition]) -> Condition:
    where = Filter(none_of=tuple(part.where for part in parts))
    return Condition(where, lambda t: not any(part.holds(t) for part in parts))


def _groups(children: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
    parts = st.lists(children, min_size=1, max_size=3)
    return st.one_of(parts.map(_all), parts.map(_any), parts.map(_none))


def _beside(pair: tuple[Condition, Condition]) -> Condition:
    """Put the groups of one condition beside the fields of a plain one, as the query language does."""
    plain, group = pair
    fields = {name: getattr(group.where, name) for name in ("all_of", "any_of", "none_of")}
    if group.where != Filter(**fields):
        return plain
    fields = {name: getattr(plain.where, name) for name in plain.where.__struct_fields__} | fields
    return Condition(Filter(**fields), lambda t: plain.holds(t) and group.holds(t))


leaves = st.sampled_from(LEAVES)
trees = st.recursive(leaves, _groups, max_leaves=8)
conditions = st.one_of(trees, st.tuples(leaves, trees).map(_beside))


@pytest.fixture
def tasks(store: Store) -> list[Task]:
    """Fill the store with tasks that differ in every condition; return them as stored."""
    put(store, "a1", title="Ebbe und Flut", metadata_json='{"order":{"id":7}}', user_id="u1")
    put(store, "a2", payload_json='{"a":{"b":"x"}}', limit_key="k", unique_key="u", held_key="u")
    put(store, "a3", payload_json='{"n":null}', parent_id="a1", run_at=store.now() + HOUR)
    put(store, "b1", awaiting="signal:go", run_at=store.now() + HOUR, user_id="u1")
    put(store, "b2", awaiting="children", run_at=store.now() + HOUR, phase="other", metadata_json='{"order":{"id":8}}')
    put(store, "b3", pipeline="books", title="EBBE", phase="other")
    for task_id in ("c1", "c2", "c3", "c4", "c5"):
        put(store, task_id, user_id="u1" if task_id < "c3" else "u2", priority=-5)
    claimed = {task.task_id: task for task in (claim_one(store, ids=[f"c{n}"]) for n in range(1, 6))}
    now = store.now()
    swap(store, claimed["c2"], rules.fail(claimed["c2"], BROKEN, PLAN, now))
    swap(store, claimed["c3"], rules.finish(claimed["c3"], None, now))
    swap(store, claimed["c4"], rules.cancel(claimed["c4"], now))
    failed = claimed["c5"]
    while failed.status is not FAILED:
        failed = rules.fail(failed, BROKEN, PLAN, now) if failed.status is PROCESSING else rules.fail_by_hand(failed, BROKEN, now)  # fmt: skip
    swap(store, claimed["c5"], failed)
    put(store, "d1")
    (gone,) = store.fetch(["d1"])
    cancelled = swap(store, gone, rules.cancel(gone, store.now()))
    swap(store, cancelled, rules.bury(cancelled, store.now()))
    return store.find(Filter(hidden=True), order="oldest").tasks


def found(store: Store, where: Filter, **how: Any) -> list[str]:
    return sorted(task.task_id for task in store.find(where, **how).tasks)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_groups_select_what_a_plain_function_selects(store: Store, tasks: list[Task], data: st.DataObject) -> None:
    condition = data.draw(conditions)
    expected = sorted(task.task_id for task in tasks if task.purged_at is None and condition.holds(task))
    for where in (condition.where, narrowed(condition.where)):
        assert found(store, where) == expected
        assert sum(line.count for line in store.count(where)) == len(expected)
    with_hidden = Filter(hidden=True, all_of=(condition.where,))
    assert found(store, with_hidden) == sorted(task.task_id for task in tasks if condition.holds(task))


@pytest.mark.parametrize("order", ["newest", "oldest", "due", "ended", "latest"])
def test_a_search_pages_through_every_order(store: Store, tasks: list[Task], order: Any) -> None:
    if not isinstance(store, Searchable):
        pytest.skip("this store has no bounded search")
    where = narrowed(parse_query("-phase:nowhere -user:another", store.now()).where)
    seen: list[str] = []
    after = None
    while True:
        page = store.search(where, limit=1, order=order, after=after, within=HOUR)
        seen += [task.task_id for task in page.tasks]
        after = page.next
        if after is None:
            break
    assert seen == [task.task_id for task in store.find(where, order=order).tasks]
    assert len(seen) > 1
