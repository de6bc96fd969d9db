"""The read model: the same numbers for every user interface, and only one user's on that user's queue."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from onerow.core import rules
from onerow.core.errors import UnknownName
from onerow.core.plan import PhasePlan, Plan
from onerow.engine.control import definitions
from onerow.engine.control.definitions import WORKER
from onerow.engine.control.stats import STATS, note_name
from onerow.engine.queue.queue import Queue
from onerow.engine.views import Views
from onerow.ports import Claim, Note, PhaseClaim, Search, Searchable, Store
from onerow.stores.memory import MemoryStore
from onerow.stores.sqlite import SqliteStore
from tests.samples import BROKEN, HOPELESS, NOW, SECOND, a_task, claimed

PLAN = Plan(
    name="videos",
    phases=(PhasePlan(name="script", concurrency=2), PhasePlan(name="image", kind="wait_for", signal="go"), PhasePlan(name="video")),
)  # fmt: skip
HOUR = timedelta(hours=1)


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A store with its own search and counts (SQLite), and one counted by the engine (memory)."""
    store = MemoryStore(lambda: NOW) if request.param == "memory" else SqliteStore(tmp_path / "v.db", clock=lambda: NOW)
    store.prepare()
    yield store
    store.close()


@pytest.fixture
def queue(store: Store) -> Queue:
    definitions.publish(store, [PLAN])
    store.insert(
        [
            a_task("w1", run_at=NOW - HOUR, user_id="u1", title="tides"),
            a_task("w2", run_at=NOW - SECOND),
            a_task("w3", run_at=NOW + HOUR),
            a_task("p1", phase="image", awaiting="signal:go", run_at=NOW + HOUR),
            a_task("r1", run_at=NOW - 2 * HOUR, priority=-1),
            a_task("odd", phase="film"),
            rules.finish(claimed(a_task("d1", phase="video", user_id="u1")), None, NOW),
            rules.fail(claimed(a_task("f1")), HOPELESS, PLAN, NOW - SECOND),
            rules.fail(claimed(a_task("f2", user_id="u1")), HOPELESS, PLAN, NOW),
            rules.fail(claimed(a_task("f3", max_retries=0)), BROKEN, PLAN, NOW),
            rules.cancel(a_task("c1"), NOW),
        ]
    )
    store.claim(Claim("w1", [PhaseClaim(pipeline="videos", phase="script", limit=1, lease_for=30 * SECOND)]))
    store.write_notes([Note(WORKER, "w1", {"phases": [["videos", "script"]], "concurrency": 4})])
    body = {"done": 10, "failed": 2, "run": {"10": 9, "40": 1}, "wait": {"3": 10}}
    store.write_notes([Note(STATS, note_name("2026-11-15T02:28", "videos", "script", worker), body) for worker in "ab"])
    store.write_notes([Note(STATS, note_name("2026-11-15T01:00", "videos", "script", "a"), body)])
    return Queue(store)


def test_the_overview_counts_everything(queue: Queue) -> None:
    found = Views(queue).overview()
    assert (found.waiting, found.parked, found.processing) == (4, 1, 1)
    assert (found.completed, found.failed, found.cancelled) == (1, 3, 1)
    assert found.oldest == NOW - HOUR
    assert (found.workers, found.per_minute) == (1, 4.0)


def test_the_board_has_phases_in_order_and_unknown_phases_last(queue: Queue) -> None:
    (pipeline,) = Views(queue).board().pipelines
    assert [lane.phase for lane in pipeline.lanes] == ["script", "image", "video", "film"]
    script, image, video, film = pipeline.lanes
    assert (script.waiting, script.processing, script.failed, script.cancelled) == (3, 1, 3, 1)
    assert (script.limit, script.workers, script.oldest) == (2, 1, NOW - HOUR)
    assert (script.per_minute, script.run_p50, script.wait_p95) == (4.0, 10, 3)
    assert (image.parked, image.waiting, image.kind) == (1, 0, "wait_for")
    assert (video.completed, video.workers) == (1, 0)
    assert (film.kind, film.waiting) == ("", 1)


def test_the_board_shows_pauses_limits_and_holds(queue: Queue) -> None:
    queue.pause("videos", reason="why not", by="ann")
    queue.set_limit("videos", "video", concurrency=7)
    definitions.set_hold(queue.store, "videos", "script", NOW + SECOND, "429")
    script, image, video, _ = Views(queue).board().pipelines[0].lanes
    assert [lane.paused is not None for lane in (script, image, video)] == [True] * 3
    assert (video.limit, script.held_until) == (7, NOW + SECOND)


def test_counts_of_ended_tasks_may_be_cached_and_those_of_open_tasks_never(queue: Queue) -> None:
    store = queue.store
    views = Views(queue)
    before = views.overview()
    store.insert([rules.cancel(a_task("c2"), NOW), a_task("w9")])
    after = views.overview()
    assert after.waiting == before.waiting + 1
    if isinstance(store, Searchable):
        assert after.cancelled == before.cancelled + 1
    else:
        assert after.cancelled == before.cancelled
        store._clock = lambda: NOW + 11 * SECOND  # type: ignore[attr-defined]
        assert views.overview().cancelled == before.cancelled + 1


def test_tasks_are_found_by_query(queue: Queue) -> None:
    views = Views(queue)
    assert {row.task_id for row in views.find("user:u1").tasks} == {"w1", "d1", "f2"}
    assert [row.task_id for row in views.find("status:failed").tasks] == ["f3", "f2", "f1"], "the last to end first"
    assert [row.task_id for row in views.find("title:TIDE is:due").tasks] == ["w1"]
    page = views.find("phase:script", limit=2)
    assert page.next is not None
    rest = views.find("phase:script", limit=100, after=page.next)
    assert len({row.task_id for row in [*page.tasks, *rest.tasks]}) == 8


def test_a_search_for_a_text_may_take_a_second_and_any_other_60_ms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(tmp_path / "v.db")
    asked: list[timedelta] = []
    search = store.search

    def record(*given: Any, **options: Any) -> Search:
        asked.append(options["within"])
        return search(*given, **options)

    monkeypatch.setattr(store, "search", record)
    views = Views(Queue(store))
    for query in ("title:tides", "tides", "status:failed or payload.topic:tides", "status:failed", ""):
        views.find(query)
    views.table("title:tides", ["title"])
    views.find("title:tides", within=SECOND / 2)
    assert [each.total_seconds() for each in asked] == [1, 1, 1, 0.06, 0.06, 1, 0.5]
    store.close()


def test_failures_are_grouped_by_cause(queue: Queue) -> None:
    found = Views(queue).failures()
    assert found.all
    first, second = found.groups
    assert (first.count, first.error_class, first.error, first.task_ids) == (2, "permanent", "no such topic", ["f2", "f1"])  # fmt: skip
    assert (second.exception, second.where) == ("ConnectionError", "studio.py:12 in script")
    assert (first.first_at, first.last_at) == (NOW - SECOND, NOW)
    assert not Views(queue).failures(limit=1).all
    assert [group.count for group in Views(queue).failures("user:u1").groups] == [1]


def test_workers_are_listed_with_the_tasks_they_hold(queue: Queue) -> None:
    queue.store.claim(Claim("pull-7", [PhaseClaim(pipeline="videos", phase="film", limit=1, lease_for=30 * SECOND)]))
    on_roll, puller = Views(queue).workers()
    assert (on_roll.name, on_roll.alive, [held.task_id for held in on_roll.holds]) == ("w1", True, ["r1"])
    assert (puller.name, puller.alive, [held.task_id for held in puller.holds]) == ("pull-7", False, ["odd"])


def test_one_task_has_its_timeline_and_its_reason(queue: Queue) -> None:
    view = Views(queue).task("f3")
    assert view.task["status"] == "failed"
    assert view.task["payload"] is None
    assert view.phases == ["script", "image", "video"]
    assert [(moment.what, moment.ms) for moment in view.timeline] == [("added", None), ("failed", 0)]
    assert view.why.code == "failed"
    running = Views(queue).task("r1")
    assert (running.timeline[-1].what, running.timeline[-1].by) == ("running", "w1")


def test_statistics_of_a_period(queue: Queue) -> None:
    views = Views(queue)
    assert views.statistics(timedelta(minutes=5))["videos", "script"].done == 20
    assert views.statistics(2 * HOUR)["videos", "script"].done == 30
    assert list(views.minutes(2 * HOUR)) == ["2026-11-15T01:00", "2026-11-15T02:28"]


def test_p13_one_user_sees_only_that_users_data(queue: Queue) -> None:
    views = Views(queue.for_user("u1"))
    found = views.overview()
    assert (found.waiting, found.processing, found.completed, found.failed, found.cancelled) == (1, 0, 1, 1, 0)
    assert {row.task_id for row in views.find().tasks} == {"w1", "d1", "f2"}
    assert sum(lane.waiting + lane.failed for lane in views.board().pipelines[0].lanes) == 2
    assert all(not worker.holds for worker in views.workers())
    assert [group.count for group in views.failures().groups] == [1]
    for look in (views.task, views.why):
        with pytest.raises(UnknownName):
            look("w2")
    with pytest.raises(UnknownName):
        views.find("user:u2")


def test_an_empty_store_has_an_empty_board(store: Store) -> None:
    views = Views(Queue(store))
    assert views.board().pipelines == []
    assert views.overview().waiting == 0
    assert views.find().tasks == []
    assert views.failures().groups == []
