"""Find, count, search and remove tasks."""

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, get_args

import msgspec
import pytest

from onerow.core import rules
from onerow.core.errors import BadInput
from onerow.core.filters import Filter, Order
from onerow.core.status import CANCELLED, COMPLETED, FAILED, PROCESSING, WAITING, Status
from onerow.core.task import Task
from onerow.engine.views.counts import count_matching
from onerow.ports import LogLine, Searchable, Store, TaskCount
from tests.conformance.kit import HOUR, MINUTE, claim_one, new, put, put_many, stored, swap
from tests.samples import BROKEN, HOPELESS, PLAN, SECOND


def found(store: Store, **where: Any) -> set[str]:
    return {task.task_id for task in store.find(Filter(**where), limit=1_000).tasks}


def test_due_returns_tasks_in_claim_order_and_changes_nothing(store: Store) -> None:
    now = store.now()
    put(store, "second", run_at=now - MINUTE)
    put(store, "first", run_at=now - HOUR)
    put(store, "twin b", run_at=now - SECOND)
    put(store, "twin a", run_at=now - SECOND)
    put(store, "urgent", priority=-9)
    put(store, "idle", priority=9, run_at=now - 2 * HOUR)
    put(store, "urgent, but not yet", priority=-10, run_at=now + HOUR)
    put(store, "parked", awaiting="signal:go", run_at=now - HOUR)
    put(store, "elsewhere", phase="video")
    put(store, "another pipeline", pipeline="posts")
    put(store, "keyed", priority=8, limit_key="k")
    put(store, "running", phase="image")
    claim_one(store, phase="image")
    before = stored(store, "urgent")
    due = store.due("videos", "script", store.now(), 10)
    assert [task.task_id for task in due] == ["urgent", "first", "second", "twin a", "twin b", "keyed", "idle"]
    assert due[0] == before == stored(store, "urgent")
    assert [task.task_id for task in store.due("videos", "script", store.now(), 2)] == ["urgent", "first"]
    assert [task.task_id for task in store.due("videos", "script", now - 90 * MINUTE, 2)] == ["idle"]
    assert store.due("videos", "script", store.now(), 0) == []
    assert store.due("videos", "image", store.now(), 10) == store.due("unknown", "x", store.now(), 10) == []


@pytest.fixture
def rows(store: Store) -> dict[str, Task]:
    """One row for each condition of a filter; each differs from the plain row in one filtered field."""
    now = store.now()
    put(store, "plain")
    put(store, "posts", pipeline="posts", phase="tag")
    put(store, "video", phase="video", title="Tides of the Moon 100%", user_id="ann", limit_key="k1")
    put(store, "child", parent_id="video", payload={"user": {"name": "bob", "tags": ["x", "y"]}, "n": 5, "ok": True})
    put(store, "later", run_at=now + HOUR, unique="u1", payload={"n": 7, "none": None, "f": 1.5, "text": "조수 Tides"})
    put(store, "old", created_at=now - HOUR, unique="u2", unique_for="1h", title="달")
    put(store, "parked", awaiting="signal:go", run_at=now + MINUTE)
    put(store, "waits for children", awaiting="children", run_at=now + 2 * HOUR)
    for task_id in ("running", "asked", "done", "failed", "broken", "buried"):
        put(store, task_id)
    moves: dict[str, Callable[[Task], Task]] = {
        "asked": lambda task: rules.cancel(task, now),
        "done": lambda task: rules.finish(task, '"x"', now),
        "failed": lambda task: rules.fail(task, HOPELESS, PLAN, now + MINUTE),
        "broken": lambda task: rules.fail(task, BROKEN, PLAN, now),
        "buried": lambda task: rules.stop_cancelled(task, now),
    }
    claim_one(store, ids=["running"], worker="w1")
    for task_id, move in moves.items():
        held = claim_one(store, ids=[task_id], worker="w2", lease_for=HOUR)
        swap(store, held, move(held))
    old = stored(store, "old")
    swap(store, old, rules.cancel(old, now))
    buried = stored(store, "buried")
    swap(store, buried, rules.bury(buried, now))
    return {task.task_id: task for task in store.find(Filter(hidden=True), limit=1_000).tasks}


def test_every_filter_selects_the_right_tasks(store: Store, rows: dict[str, Task]) -> None:
    now = rows["done"].completed_at
    assert now is not None
    lease_end = rows["running"].leased_until
    assert lease_end is not None
    everything = set(rows) - {"buried"}
    ended = {"done", "failed", "old"}
    cases: list[tuple[dict[str, Any], set[str]]] = [
        ({}, everything),
        ({"hidden": True}, set(rows)),
        ({"statuses": frozenset({PROCESSING})}, {"running", "asked"}),
        ({"statuses": frozenset({COMPLETED})}, {"done"}),
        ({"statuses": frozenset({FAILED})}, {"failed"}),
        ({"statuses": frozenset({CANCELLED})}, {"old"}),
        ({"statuses": frozenset({CANCELLED}), "hidden": True}, {"old", "buried"}),
        ({"statuses": frozenset({COMPLETED, FAILED, CANCELLED})}, ended),
        ({"statuses": frozenset({WAITING, FAILED})}, everything - {"running", "asked", "done", "old"}),
        ({"statuses": frozenset(Status)}, everything),
        ({"pipeline": "posts"}, {"posts"}),
        ({"pipeline": "unknown"}, set()),
        ({"phases": frozenset({"video"})}, {"video"}),
        ({"phases": frozenset({"video", "tag"})}, {"video", "posts"}),
        ({"user_id": "ann"}, {"video"}),
        ({"user_id": ""}, everything - {"video"}),
        ({"parent_id": "video"}, {"child"}),
        ({"parked": True}, {"parked", "waits for children"}),
        ({"parked": False}, everything - {"parked", "waits for children"}),
        ({"awaiting": "signal:go"}, {"parked"}),
        ({"awaiting": "children"}, {"waits for children"}),
        ({"leased_by": "w1"}, {"running"}),
        ({"leased_by": "w2"}, {"asked"}),
        ({"cancel_requested": True}, {"asked"}),
        ({"cancel_requested": False}, everything - {"asked"}),
        ({"error_class": "network"}, {"broken"}),
        ({"error_class": "permanent"}, {"failed"}),
        ({"error_text": "REFUSED"}, {"broken"}),
        ({"error_text": "no such"}, {"failed"}),
        ({"title_text": "tides OF"}, {"video"}),
        ({"title_text": "달"}, {"old"}),
        ({"title_text": "%"}, {"video"}),
        ({"title_text": "_"}, set()),
        ({"text": "TIDES"}, {"video", "later"}),
        ({"text": "조수"}, {"later"}),
        ({"text": "refused"}, {"broken"}),
        ({"text": "park"}, {"parked"}),
        ({"text": "Children"}, {"waits for children"}),
        ({"text": "100%"}, {"video"}),
        ({"payload": (("n", "5"),)}, {"child"}),
        ({"payload": (("n", "7"), ("f", "1.5"))}, {"later"}),
        ({"payload": (("n", "5"), ("f", "1.5"))}, set()),
        ({"payload": (("user.name", "bob"),)}, {"child"}),
        ({"payload": (("user.tags.1", "y"),)}, {"child"}),
        ({"payload": (("user.tags.5", "y"),)}, set()),
        ({"payload": (("ok", "true"),)}, {"child"}),
        ({"payload": (("nowhere.at.all", "x"),)}, set()),
        ({"payload": (("text", "조수 Tides"),)}, {"later"}),
        ({"limit_key": "k1"}, {"video"}),
        ({"unique_key": "u1"}, {"later"}),
        ({"unique_key": "u2"}, {"old"}),
        ({"held_key": "u2"}, {"old"}),
        ({"held_key": "unknown"}, set()),
        ({"due_before": now + 2 * MINUTE, "statuses": frozenset({WAITING})},
         {"plain", "posts", "video", "child", "parked", "broken"}),
        ({"due_before": now - HOUR}, set()),
        ({"due_before": now + MINUTE, "parked": True}, {"parked"}),
        ({"lease_ended_before": lease_end}, {"running"}),
        ({"lease_ended_before": lease_end - SECOND}, set()),
        ({"lease_ended_before": now + 2 * HOUR}, {"running", "asked"}),
        ({"held_until_before": now + 2 * HOUR}, {"old"}),
        ({"held_until_before": now}, set()),
        ({"ended_before": now}, {"done", "old"}),
        ({"ended_before": now + HOUR}, ended),
        ({"ended_after": now + SECOND}, {"failed"}),
        ({"ended_after": now}, ended),
        ({"created_before": now - MINUTE}, {"old"}),
        ({"created_after": now - MINUTE}, everything - {"old"}),
        ({"ahead_of": (0, rows["child"].run_at, "child"), "statuses": frozenset({WAITING}), "phases": frozenset({"script"})},
         {"broken"} if rows["broken"].run_at < rows["child"].run_at else set()),
        ({"ahead_of": (1, now - HOUR, ""), "statuses": frozenset({WAITING}), "phases": frozenset({"tag"})}, {"posts"}),
        ({"metadata": (("order.id", "7"),)}, set()),
        ({"id_prefix": "do"}, {"done"}),
        ({"id_prefix": "w"}, {"waits for children"}),
        ({"any_of": (Filter(id_prefix="do"), Filter(statuses=frozenset({FAILED})))}, {"done", "failed"}),
        ({"all_of": (Filter(id_prefix="p"), Filter(parked=True))}, {"parked"}),
        ({"none_of": (Filter(user_id=""),)}, {"video"}),
        ({"pipeline": "videos", "phases": frozenset({"script"}), "statuses": frozenset({FAILED}), "user_id": ""},
         {"failed"}),
    ]  # fmt: skip
    covered = {field for case, _ in cases for field in case}
    assert covered == set(Filter.__struct_fields__), "each field of Filter has a case"
    for where, expected in cases:
        assert found(store, **where) == expected, where
        assert sum(tally.count for tally in store.count(Filter(**where))) == len(expected), where


def test_p13_a_filter_with_a_user_returns_no_tasks_of_other_users(store: Store, rows: dict[str, Task]) -> None:
    for more in ({}, {"text": "Tides"}, {"hidden": True}, {"statuses": frozenset(Status)}):
        page = store.find(Filter(user_id="ann", **more))
        assert [task.task_id for task in page.tasks] == ["video"]
    assert [tally.count for tally in store.count(Filter(user_id="ann"))] == [1]
    assert store.count(Filter(user_id="unknown")) == []


@pytest.mark.parametrize(
    "order, expected",
    [
        ("newest", ["d", "c", "b", "a"]),
        ("oldest", ["a", "b", "c", "d"]),
        ("due", ["c", "d", "a", "b"]),
        ("ended", ["d", "a", "b"]),
        ("latest", ["b", "a", "d"]),
    ],
)
def test_each_order_sorts_by_its_time_and_then_by_id(store: Store, order: Order, expected: list[str]) -> None:
    now = store.now()
    for task_id, created, due in (("c", 2, 0), ("a", 1, 1), ("b", 1, 1), ("d", 3, 0)):
        put(store, task_id, created_at=now + created * SECOND, run_at=now + due * HOUR)
    for task_id, ended in (("a", 2), ("b", 2), ("d", 1)):
        task = stored(store, task_id)
        swap(store, task, rules.cancel(task, now + ended * SECOND))
    assert [task.task_id for task in store.find(Filter(), order=order).tasks] == expected


@pytest.mark.parametrize("order", get_args(Order))
@pytest.mark.parametrize("size", [1, 3, 10, 100])
def test_pages_have_no_gaps_and_no_duplicates(store: Store, order: Order, size: int) -> None:
    now = store.now()
    tasks = [new(store, f"t{n:02d}", created_at=now + (n % 4) * SECOND, run_at=now + (n % 3) * HOUR) for n in range(25)]
    store.insert([rules.cancel(task, now + (n % 5) * SECOND) for n, task in enumerate(tasks)])
    whole = [task.task_id for task in store.find(Filter(), order=order, limit=1_000).tasks]
    seen: list[str] = []
    after = None
    while True:
        page = store.find(Filter(), limit=size, order=order, after=after)
        assert len(page.tasks) <= size
        seen += [task.task_id for task in page.tasks]
        after = page.next
        if after is None:
            break
    assert seen == whole
    assert sorted(seen) == sorted(task.task_id for task in tasks)


@pytest.mark.parametrize("order", ["newest", "oldest", "due"])
def test_concurrent_inserts_and_deletes_cause_no_gaps_and_no_duplicates(store: Store, order: Order) -> None:
    now = store.now()
    store.insert([new(store, f"t{n:02d}", created_at=now + n * SECOND, run_at=now + n * SECOND) for n in range(20)])
    seen: list[str] = []
    after, round_ = None, 0
    while True:
        page = store.find(Filter(), limit=4, order=order, after=after)
        seen += [task.task_id for task in page.tasks]
        after = page.next
        if after is None or round_ == 30:
            break
        for index, moment in enumerate((now - HOUR, now + 7 * SECOND, now + HOUR)):
            put(store, f"new{round_}-{index}", created_at=moment, run_at=moment)
        assert store.remove([page.tasks[-1]]) == 1
        round_ += 1
    assert len(seen) == len(set(seen))
    assert {f"t{n:02d}" for n in range(20)} <= set(seen)


def test_the_last_page_has_no_cursor(store: Store) -> None:
    put_many(store, 4)
    assert store.find(Filter(), limit=4).next is None
    assert store.find(Filter(), limit=3).next is not None
    assert store.find(Filter(user_id="unknown")).tasks == []
    assert store.find(Filter(user_id="unknown")).next is None


@pytest.mark.parametrize("nonsense", ["nonsense", "", "💥", "WyJhIl0="])
def test_an_invalid_cursor_is_rejected(store: Store, nonsense: str) -> None:
    put(store)
    with pytest.raises(BadInput) as caught:
        store.find(Filter(), after=nonsense)
    assert caught.value.field == "after"


def test_counts_are_by_pipeline_phase_and_status_with_the_oldest_run_at(store: Store, rows: dict[str, Task]) -> None:
    tallies = {(t.pipeline, t.phase, t.status, t.parked): t for t in store.count(Filter())}
    assert {key: tally.count for key, tally in tallies.items()} == {
        ("posts", "tag", WAITING, False): 1,
        ("videos", "video", WAITING, False): 1,
        ("videos", "script", WAITING, False): 4,
        ("videos", "script", WAITING, True): 2,
        ("videos", "script", PROCESSING, False): 2,
        ("videos", "script", COMPLETED, False): 1,
        ("videos", "script", FAILED, False): 1,
        ("videos", "script", CANCELLED, False): 1,
    }
    assert tallies["videos", "script", WAITING, False].oldest == rows["plain"].run_at
    assert tallies["videos", "script", WAITING, True].oldest == rows["parked"].run_at
    assert tallies["videos", "script", COMPLETED, False].oldest is None


def test_a_child_that_changes_its_status_during_the_count_is_counted_once(
    store: Store, again: Callable[[], Store]
) -> None:
    put(store, "child", parent_id="parent")
    elsewhere = again()
    done = threading.Event()

    def move() -> None:
        while not done.is_set():
            task = claim_one(elsewhere, lease_for=HOUR)
            swap(elsewhere, task, rules.hand_back(task, elsewhere.now()))

    mover = threading.Thread(target=move)
    mover.start()
    counts = [sum(tally.count for tally in store.count(Filter(parent_id="parent"))) for _ in range(300)]
    done.set()
    mover.join()
    assert set(counts) == {1}


def test_an_empty_store_has_no_counts_and_no_tasks(store: Store) -> None:
    assert store.count(Filter()) == []
    assert store.find(Filter()).tasks == []


def test_a_count_obeys_its_filter(store: Store) -> None:
    put_many(store, 3)
    now = stored(store, "t0000").run_at
    assert store.count(Filter(statuses=frozenset({WAITING}))) == [TaskCount("videos", "script", WAITING, False, 3, now)]


def test_store_counts_include_every_task(store: Store, rows: dict[str, Task]) -> None:
    if not isinstance(store, Searchable):
        return  # optional; without it the engine counts
    counted = {(t.pipeline, t.phase, t.status, t.parked): t for t in store.count(Filter())}

    def store_counts() -> dict[tuple[str, str, Status, bool], int]:
        return {(t.pipeline, t.phase, t.status, t.parked): t.count for t in store.store_counts().counts}

    assert store_counts() == {opened: tally.count for opened, tally in counted.items()}
    failed, done = rows["failed"], rows["done"]
    failed = swap(store, failed, rules.retry(failed, PLAN, store.now()))
    assert store.remove([done]) == 1
    put(store, "born ended", status=COMPLETED, completed_at=store.now())
    assert store_counts() == {(t.pipeline, t.phase, t.status, t.parked): t.count for t in store.count(Filter())}


def test_a_search_with_enough_time_returns_the_same_as_find(store: Store, rows: dict[str, Task]) -> None:
    if not isinstance(store, Searchable):
        return
    for where in (Filter(), Filter(text="tides"), Filter(statuses=frozenset({WAITING})), Filter(user_id="ann")):
        found = store.search(where, limit=3, within=HOUR)
        page = store.find(where, limit=3)
        assert (found.tasks, found.next, found.looked_back_to) == (page.tasks, page.next, None)


def test_a_count_by_text_stops_at_its_time_limit_and_reports_it(store: Store) -> None:
    now = store.now()
    store.insert([new(store, f"t{n:04d}", title="Tides", created_at=now + n * SECOND) for n in range(1_200)])
    put(store, "another", created_at=now - HOUR)
    where = Filter(text="tides", statuses=frozenset({WAITING}))
    whole = count_matching(store, where, HOUR)
    assert (whole.tallies, whole.looked_back_to) == (store.count(where), None)
    assert whole.count == 1_200
    stopped = count_matching(store, where, timedelta(0))
    assert stopped.looked_back_to is not None or stopped.count == 1_200
    assert stopped.count <= 1_200


@pytest.mark.parametrize("where", [Filter(text="tides"), Filter(title_text="tides")], ids=["text", "title"])
def test_a_search_that_ran_out_of_time_reports_its_position_and_can_continue(store: Store, where: Filter) -> None:
    if not isinstance(store, Searchable):
        return
    now = store.now()
    store.insert([new(store, f"t{n:04d}", created_at=now + n * SECOND) for n in range(1_200)])
    put(store, "needle", title="tides", created_at=now - HOUR)
    found = store.search(where, within=timedelta(0))
    assert found.tasks == []
    assert found.looked_back_to == stored(store, f"t{1_200 - found.looked_at:04d}").created_at
    seen = 0
    while found.next is not None:
        found = store.search(where, after=found.next, within=timedelta(0))
        seen += 1
    assert [task.task_id for task in found.tasks] == ["needle"]
    assert seen >= 1


# ── removing ──────────────────────────────────────────────────────────────────────────────────────────────────────


def ended(store: Store, task_id: str) -> Task:
    task = put(store, task_id)
    return swap(store, task, rules.cancel(task, store.now()))


def test_remove_deletes_the_row_and_its_output(store: Store) -> None:
    gone, stays = ended(store, "gone"), ended(store, "stays")
    store.append_log([LogLine(task_id, store.now(), "script", 1, "out", "x") for task_id in ("gone", "stays")])
    assert store.remove([gone]) == 1
    assert store.fetch(["gone", "stays"]) == [stays]
    assert store.read_log("gone").lines == []
    assert len(store.read_log("stays").lines) == 1
    put(store, "gone")
    assert store.read_log("gone").lines == []


def test_remove_keeps_a_row_whose_version_changed(store: Store) -> None:
    old, same_ = ended(store, "changed"), ended(store, "same")
    store.append_log([LogLine("changed", store.now(), "script", 1, "out", "x")])
    current = swap(store, old, rules.annotate(old, '{"keep":true}', store.now()))
    assert store.remove([old, same_, msgspec.structs.replace(old, task_id="unknown")]) == 1
    assert store.fetch(["changed", "same"]) == [current]
    assert len(store.read_log("changed").lines) == 1
    assert store.remove([same_]) == 0
    assert store.remove([]) == 0


def test_remove_releases_the_unique_key(store: Store) -> None:
    first = put(store, "a", unique="k", unique_for="forever")
    first = swap(store, first, rules.cancel(first, store.now()))
    assert store.remove([first]) == 1
    put(store, "b", unique="k")


def test_tombstones_are_found_only_with_hidden(store: Store, later: Callable[[timedelta], None]) -> None:
    task = put(store, unique="k", unique_for="1h", title="Tides", payload={"a": 1})
    task = swap(store, task, rules.cancel(task, store.now()))
    tombstone = swap(store, task, rules.bury(task, store.now()))
    assert store.find(Filter()).tasks == []
    assert store.count(Filter()) == []
    assert store.find(Filter(hidden=True)).tasks == [tombstone]
    assert store.find(Filter(hidden=True, held_until_before=store.now() + HOUR)).tasks == [tombstone]


def test_ready_returns_every_phase_with_due_tasks(store: Store) -> None:
    """A store may return more of the given phases, because an approximate answer costs less than an exact one."""
    now = store.now()
    given = {(f"p{n:02d}", phase) for n in range(20) for phase in ("script", "video")}
    assert store.ready(given, now) == []
    put(store, "a", pipeline="p03")
    put(store, "b", pipeline="p07", phase="video", priority=5, limit_key="k")
    put(store, "early", pipeline="p07", phase="video", priority=-5, run_at=now + HOUR)
    put(store, "parked", pipeline="p11", awaiting="signal:x")
    put(store, "not given", pipeline="other")
    held = put(store, "held", pipeline="p13")
    claim_one(store, pipeline="p13")
    assert stored(store, held.task_id).status is PROCESSING
    found = store.ready(given, now)
    assert {("p03", "script"), ("p07", "video")} <= set(found) <= given
    assert len(found) == len(set(found))
    assert not {"p11", "p13"} & {pipeline for pipeline, _ in found}
    assert ("p07", "video") in store.ready({("p07", "video")}, now)


@pytest.mark.parametrize(
    "where", [{"text": "a\0b"}, {"user_id": "\0"}, {"phases": ["a\0"]}, {"payload": (("n", "\0"),)}, {"pipeline": "\0"}]
)
def test_a_filter_refuses_a_nul_character(where: dict[str, Any]) -> None:
    (field,) = where
    with pytest.raises(BadInput, match=f"{field} contains a NUL character"):
        Filter(**where)
