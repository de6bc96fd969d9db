"""Query plans: the cost of queries that workers repeat must not depend on the number of tasks."""

import re
from datetime import timedelta
from typing import Any

import pytest
from pymongo.cursor import Cursor

from onerow.core import rules
from onerow.core.filters import SORTING, Filter, Order
from onerow.core.status import COMPLETED, FAILED, PROCESSING, WAITING
from onerow.ports import PhaseClaim
from onerow.stores.mongo import MongoStore, claiming, counts
from onerow.stores.mongo.claiming import ORDER, PIPELINES_WAITING, due_filter
from onerow.stores.mongo.filters import query_of
from onerow.stores.mongo.schema import A_TIME, BY_KEY_INDEX, CHILD_INDEX, READY, READY_INDEX
from onerow.stores.mongo.slots import keys_waiting
from tests.conformance.kit import HOUR, claim, new, put
from tests.stores.mongo.commands import Document, recorded

MINUTE = timedelta(minutes=1)
CROWD = 3_000


@pytest.fixture
def crowd(store: MongoStore) -> MongoStore:
    """Many tasks that no query should read (not due, ended, of another phase), and a few others."""
    now = store.now()
    ahead = [new(store, f"n{n:05d}", priority=n % 3 - 5, run_at=now + HOUR) for n in range(CROWD)]
    ended = [rules.cancel(new(store, f"e{n:05d}"), now - HOUR) for n in range(CROWD)]
    for batch in (ahead, ended):
        store.insert(batch)
    put(store, "due", priority=7)
    put(store, "parked", awaiting="signal:go")
    put(store, "running", phase="video", user_id="ann")
    claim(store, 1, phase="video", worker="w1", lease_for=MINUTE)
    return store


def examined(store: MongoStore, query: Document, order: list[tuple[str, int]], **more: Any) -> int:
    """Return how many index entries or documents the server examined."""
    collections = store._connections.collections()
    command = {"find": collections.tasks.name, "filter": query, "sort": dict(order), "limit": 500} | more
    plan = collections.database.command("explain", command, verbosity="executionStats")
    assert "COLLSCAN" not in str(plan["queryPlanner"]["winningPlan"]), plan["queryPlanner"]["winningPlan"]
    stats = plan["executionStats"]
    return int(max(stats["totalKeysExamined"], stats["totalDocsExamined"]))


def test_p14_a_claim_skips_tasks_that_are_not_due(crowd: MongoStore) -> None:
    want = PhaseClaim(pipeline="videos", phase="script", limit=500, lease_for=MINUTE)
    due = due_filter(want, crowd.now(), None)
    assert examined(crowd, due, ORDER, hint=READY_INDEX, limit=1) < 10
    assert examined(crowd, due, ORDER, hint=READY_INDEX) < 10


def test_p14_finding_due_tasks_skips_tasks_that_are_not_due(crowd: MongoStore) -> None:
    query = claiming.due(crowd._connections.collections(), "videos", "script", crowd.now(), 500)
    assert isinstance(query, Cursor)
    plan = query.explain()
    assert "'SORT'" not in str(plan["queryPlanner"]["winningPlan"]), "in the index's own order"
    stats = plan["executionStats"]
    assert stats["nReturned"] == 1
    assert max(stats["totalKeysExamined"], stats["totalDocsExamined"]) < 10


def test_an_index_covers_the_choice_of_a_claim(crowd: MongoStore) -> None:
    collections = crowd._connections.collections()
    want = PhaseClaim(pipeline="videos", phase="script", limit=500, lease_for=MINUTE)
    query = collections.tasks.find(due_filter(want, crowd.now(), None), {"_id": 1}, hint=READY_INDEX).sort(ORDER)
    assert query.explain()["executionStats"]["totalDocsExamined"] == 0


def test_p14_counting_claimable_tasks_reads_only_the_index(crowd: MongoStore) -> None:
    collections = crowd._connections.collections()
    crowd.insert([new(crowd, f"more{n:04d}") for n in range(500)])
    want = PhaseClaim(pipeline="videos", phase="script", limit=20, lease_for=MINUTE)
    assert crowd.claimable(want, crowd.now()) == 20
    # What count_documents sends.
    counted = [
        {"$match": due_filter(want, crowd.now(), None)},
        {"$limit": 20},
        {"$group": {"_id": 1, "n": {"$sum": 1}}},
    ]
    command = {"aggregate": collections.tasks.name, "pipeline": counted, "cursor": {}, "hint": READY_INDEX}
    plan = collections.database.command("explain", command, verbosity="executionStats")
    stages = plan["stages"][0]["$cursor"] if "stages" in plan else plan
    stats = stages["executionStats"]
    assert stats["totalKeysExamined"] < 40
    assert stats["totalDocsExamined"] == 0


def queries(store: MongoStore) -> list[tuple[Filter, Order]]:
    """Return the queries that a worker or a page repeats; see engine/worker and engine/views."""
    now = store.now()
    running, waiting = frozenset({PROCESSING}), frozenset({WAITING})
    return [
        (Filter(statuses=running, leased_by="w1", cancel_requested=True), "oldest"),
        (Filter(statuses=running, lease_ended_before=now), "oldest"),
        (Filter(statuses=running, leased_by="w2"), "oldest"),
        (Filter(statuses=waiting, parked=True, due_before=now), "due"),
        (Filter(statuses=waiting, pipeline="videos", phases=frozenset({"old"})), "due"),
        (Filter(held_until_before=now, hidden=True), "oldest"),
        (Filter(parent_id="p"), "oldest"),
        (Filter(held_key="k", pipeline="videos", user_id=""), "oldest"),
        (Filter(statuses=frozenset({COMPLETED, FAILED}), ended_before=now - 2 * HOUR), "ended"),
        (Filter(statuses=frozenset({FAILED})), "ended"),
        (Filter(user_id="ann"), "newest"),
        (Filter(leased_by="w1"), "newest"),
        (Filter(awaiting="signal:go"), "newest"),
        (Filter(parked=True), "newest"),
        (Filter(any_of=(Filter(leased_by="w1"), Filter(awaiting="signal:go"))), "newest"),
    ]


def test_p14_the_cost_of_repeated_queries_does_not_depend_on_other_tasks(crowd: MongoStore) -> None:
    for where, order in queries(crowd):
        key, descending = SORTING[order]
        direction = -1 if descending else 1
        query = query_of(where)
        if order == "ended":
            query = {"$and": [query, {"completed_at": A_TIME}]}
        assert examined(crowd, query, [(key, direction), ("_id", direction)]) < 50, where


def test_an_index_serves_the_query_for_leases(crowd: MongoStore) -> None:
    query = crowd._connections.collections().tasks.find({"status": "processing", "leased_until": A_TIME})
    assert query.explain()["executionStats"]["totalDocsExamined"] < 50


def test_a_page_of_the_newest_tasks_reads_only_that_page(crowd: MongoStore) -> None:
    assert examined(crowd, query_of(Filter()), [("created_at", -1), ("_id", -1)], limit=50) <= 51


def test_an_index_covers_the_count_of_open_tasks(crowd: MongoStore) -> None:
    collections = crowd._connections.collections()
    match = {"$match": query_of(Filter(statuses=frozenset({WAITING}), parked=False))}
    stages = [match, {"$group": {"_id": counts._BY_PHASE, "n": {"$sum": 1}, "oldest": {"$min": "$run_at"}}}]
    plan = collections.database.command(
        "explain", {"aggregate": collections.tasks.name, "pipeline": stages, "cursor": {}}, verbosity="executionStats"
    )
    assert "COLLSCAN" not in str(plan)
    assert "'totalDocsExamined': 0" in str(plan)


@pytest.mark.parametrize("title", [None, "a film"], ids=["in the server", "in the client"])
def test_children_are_counted_through_their_own_index(mongo_url: str, title: str | None) -> None:
    """A change of status moves no entry of this index, so a child that changes during the query is counted once.

    Here the server would choose the index by age, which has fewer entries to read.
    """
    with recorded(mongo_url) as (store, sent):
        now = store.now()
        store.insert(
            [new(store, f"old{n}", parent_id="p", title="a film", created_at=now - 2 * HOUR) for n in range(300)]
        )
        store.insert([new(store, f"new{n}", parent_id="p", title="a film", created_at=now) for n in range(3)])
        sent.clear()
        counted = store.count(Filter(parent_id="p", created_after=now - HOUR, title_text=title))
        assert [each.count for each in counted] == [3]
        (command,) = [each for each in sent if {"find", "aggregate"} & set(each)]
        asked = {name: value for name, value in command.items() if name not in ("lsid", "$db", "readConcern")}
        plan = store._connections.collections().database.command("explain", asked, verbosity="queryPlanner")
    planner = plan["stages"][0]["$cursor"]["queryPlanner"] if "stages" in plan else plan["queryPlanner"]
    assert re.findall(r"'indexName': '(\w+)'", str(planner["winningPlan"])) == [CHILD_INDEX]


def test_waiting_keys_are_listed_without_reading_every_task(store: MongoStore) -> None:
    store.insert([new(store, f"a{n:05d}", limit_key=f"k{n % 5}") for n in range(CROWD)])
    collections = store._connections.collections()
    ready = READY | {"pipeline": "videos", "type": "script"}
    query = {"aggregate": collections.tasks.name, "pipeline": keys_waiting(ready), "cursor": {}, "hint": BY_KEY_INDEX}
    plan = str(collections.database.command("explain", query, verbosity="executionStats"))
    assert "'totalDocsExamined': 0" in plan
    assert max(int(found) for found in re.findall(r"'totalKeysExamined': (\d+)", plan)) < 20


def test_waiting_pipelines_are_listed_without_reading_every_task(store: MongoStore) -> None:
    store.insert([new(store, f"a{n:05d}", pipeline=f"p{n % 5}") for n in range(CROWD)])
    collections = store._connections.collections()
    query = {
        "aggregate": collections.tasks.name, "pipeline": PIPELINES_WAITING, "cursor": {}, "hint": READY_INDEX
    }  # fmt: skip
    plan = str(collections.database.command("explain", query, verbosity="executionStats"))
    assert "'totalDocsExamined': 0" in plan
    assert max(int(found) for found in re.findall(r"'totalKeysExamined': (\d+)", plan)) < 20


def test_a_task_without_a_key_is_found_behind_many_with_a_full_key(store: MongoStore) -> None:
    store.insert([new(store, f"a{n:05d}", limit_key="ann") for n in range(CROWD)])
    put(store, "free")
    want = PhaseClaim(pipeline="videos", phase="script", limit=500, lease_for=MINUTE, key_slots=1)
    without_key = due_filter(want, store.now(), None) | {"limit_key": ""}
    assert examined(store, without_key, ORDER, hint=BY_KEY_INDEX) < 10
    assert [task.task_id for task in claim(store, 5, key_slots=1)] == ["a00000", "free"]


def test_a_full_key_is_skipped(store: MongoStore) -> None:
    """A key with many tasks and no free slot adds no cost for the others."""
    store.insert([new(store, f"a{n:05d}", limit_key="ann", priority=-5) for n in range(CROWD)])
    put(store, "b", limit_key="bob")
    assert len(claim(store, 1, key_slots=1)) == 1
    seen = store.count_statements()
    assert [task.task_id for task in claim(store, 5, key_slots=1)] == ["b"]
    assert seen() <= 20
