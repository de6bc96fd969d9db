"""Moving a queue to another store: nothing is lost, and an interrupted move can be started again."""

import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from onerow.cli.main import main
from onerow.core import rules
from onerow.core.errors import BadInput, IllegalMove, QueueRelocated
from onerow.core.filters import Filter
from onerow.core.plan import PhasePlan
from onerow.core.status import COMPLETED, Status
from onerow.core.task import Task
from onerow.engine.control import definitions, rates, schedules
from onerow.engine.control.relocation import CHECK_EVERY, RELOCATION, relocation_of, undo
from onerow.engine.events.events import WorkerOutdated
from onerow.engine.queue.move import Moved, move
from onerow.engine.queue.queue import Queue
from onerow.engine.worker import Worker
from onerow.pipelines.pipeline import Pipeline
from onerow.ports import Existing, LogLine, Note, Store
from onerow.stores.mongo import MongoStore
from onerow.stores.postgres import PostgresStore
from onerow.stores.sqlite import SqliteStore
from tests.conformance.kit import HOUR, claim_one, every_row, new, put, put_many, same, stored, swap
from tests.samples import BROKEN, PLAN

MOVES = ["sqlite to postgres", "postgres to sqlite", "sqlite to mongo", "mongo to sqlite", "mongo to postgres"]


class Interrupted(Exception):
    """Simulates Ctrl-C."""


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Store]:
    store = SqliteStore(tmp_path / "old.db")
    yield store
    store.close()


@pytest.fixture
def postgres(postgres_url: str) -> Iterator[Store]:
    store = PostgresStore(postgres_url)
    yield store
    store.close()


@pytest.fixture
def mongo(mongo_url: str) -> Iterator[Store]:
    store = MongoStore(mongo_url)
    yield store
    store.close()


@pytest.fixture(params=MOVES)
def stores(request: pytest.FixtureRequest) -> tuple[Store, Store]:
    """The prepared source and the target."""
    source: Store
    target: Store
    source, target = map(request.getfixturevalue, request.param.split(" to "))
    source.prepare()
    return source, target


def fill(store: Store) -> dict[str, Task]:
    """Add tasks in every state that a store may contain."""
    now = store.now()
    definitions.publish(store, [PLAN])
    definitions.set_limit(store, "videos", PhasePlan(name="script"), {"concurrency": 3})
    definitions.set_pause(store, "videos", "youtube", "ann", "quota")
    store.write_notes([Note("cron", "nightly", {"at": "2026-01-01"}), Note("worker", "w1", {"pid": 1})])
    put(store, "waiting", payload={"제목": "조수 🌊", "n": [1.0, 5e-324, -0.0, 2**63 - 1]}, title="조수", priority=-3)
    put(store, "later", run_at=now + HOUR, scheduled_time=now + HOUR, user_id="ann", metadata_json='{"b":1,"a":2}')
    put(store, "unique", unique="k", unique_for="forever", limit_key="ann")
    put(store, "child", parent_id="waiting")
    held = [claim_one(store, ids=[put(store, f"claimed{n}").task_id]) for n in range(5)]
    swap(store, held[0], rules.finish(held[0], '{"ok":true}', now))
    swap(store, held[1], rules.fail(held[1], BROKEN, PLAN, now))
    swap(store, held[2], rules.park(held[2], "signal:go", now + HOUR, now))
    swap(store, held[3], rules.report(held[3], now, progress='{"done":1}', steps='{"a":1}'))
    swap(store, stored(store, "claimed3"), rules.hand_back(stored(store, "claimed3"), now))
    buried = swap(store, held[4], rules.cancel(rules.hand_back(held[4], now), now))
    swap(store, buried, rules.bury(buried, now))
    store.append_log([LogLine("claimed0", now, "script", 1, "out", f"line {n} 조수") for n in range(2_300)])
    store.append_log([LogLine("waiting", now, "script", 1, "err", "")])
    return every_row(store)


def all_same(rows: dict[str, Task], store: Store) -> bool:
    found = every_row(store)
    return set(found) == set(rows) and all(same(found[task_id], task) for task_id, task in rows.items())


def test_everything_is_moved(stores: tuple[Store, Store]) -> None:
    source, target = stores
    rows = fill(source)
    moved = move(source, target, wait=no_wait)
    assert (moved.added, moved.renewed, moved.lines) == (len(rows), 0, 2_301)
    assert all_same(rows, target)
    page = target.read_log("claimed0", limit=10_000)
    assert [line.text for line in page.lines] == [f"line {n} 조수" for n in range(2_300)]
    assert definitions.load_plans(target) == {"videos": PLAN}
    assert definitions.load_controls(target).limits == {("videos", "script"): {"concurrency": 3}}
    assert [note.body for note in target.notes("cron")] == [{"at": "2026-01-01"}]
    assert target.notes("worker") == []


def test_the_source_is_paused_and_the_target_is_not(stores: tuple[Store, Store]) -> None:
    source, target = stores
    fill(source)
    move(source, target, wait=no_wait)
    assert definitions.load_controls(source).pause_of("videos", ["script"]) is not None
    controls = definitions.load_controls(target)
    assert controls.pause_of("videos", ["script"]) is None
    pause = controls.pause_of("videos", ["youtube"])
    assert pause is not None
    assert pause.reason == "quota"


def test_tasks_run_in_the_target_after_the_move(stores: tuple[Store, Store]) -> None:
    source, target = stores
    fill(source)
    move(source, target, wait=no_wait)
    (answer,) = target.insert([new(target, "again", unique="k")])
    assert isinstance(answer, Existing)
    assert answer.task.task_id == "unique"
    held = claim_one(target, ids=["claimed3"])
    assert (held.token, held.steps) == (2, {"a": 1})
    assert swap(target, held, rules.finish(held, None, target.now())).status is COMPLETED


def test_moving_again_changes_nothing(stores: tuple[Store, Store]) -> None:
    source, target = stores
    rows = fill(source)
    move(source, target, wait=no_wait)
    moved = move(source, target, wait=no_wait)
    assert (moved.seen, moved.added, moved.renewed, moved.lines, moved.notes) == (len(rows), 0, 0, 0, 0)
    assert all_same(rows, target)


@pytest.mark.parametrize(
    "stores", ["sqlite to postgres", *(pytest.param(m, marks=pytest.mark.slow) for m in MOVES[1:])], indirect=True
)
def test_an_interrupted_move_can_be_started_again(stores: tuple[Store, Store]) -> None:
    source, target = stores
    fill(source)
    put_many(source, 1_200)
    rows = every_row(source)

    def interrupt(far: Moved) -> None:
        if far.seen >= 1_000:
            raise Interrupted

    with pytest.raises(Interrupted):
        move(source, target, interrupt)
    assert len(every_row(target)) == 1_000
    moved = move(source, target, wait=no_wait)
    assert moved.added == len(rows) - 1_000
    assert all_same(rows, target)
    assert len(target.read_log("claimed0", limit=10_000).lines) == 2_300


def test_a_row_moved_without_its_log_gets_the_missing_lines(stores: tuple[Store, Store]) -> None:
    """The move was interrupted after the row and before all of its log lines."""
    source, target = stores
    fill(source)
    target.prepare()
    target.insert([stored(source, "claimed0")])
    target.append_log(source.read_log("claimed0", limit=700).lines)
    assert move(source, target, wait=no_wait).lines == 1_601
    assert len(target.read_log("claimed0", limit=10_000).lines) == 2_300


def test_tasks_added_during_the_move_are_moved(stores: tuple[Store, Store]) -> None:
    source, target = stores
    fill(source)
    late = iter(range(3))

    def add(far: Moved) -> None:
        if (number := next(late, None)) is not None:
            put(source, f"late{number}")
            task = stored(source, "waiting")
            swap(source, task, rules.annotate(task, f'{{"n":{number}}}', source.now()))

    moved = move(source, target, add, wait=no_wait)
    assert moved.renewed >= 1
    assert all_same(every_row(source), target)
    assert stored(target, "waiting").metadata == {"n": 2}


def test_a_move_is_refused_while_tasks_are_processing(stores: tuple[Store, Store]) -> None:
    source, target = stores
    put(source)
    held = claim_one(source)
    with pytest.raises(IllegalMove, match="1 task"):
        move(source, target, wait=no_wait)
    assert every_row(target) == {}
    swap(source, held, rules.hand_back(held, source.now()))
    assert move(source, target, wait=no_wait).added == 1


def test_a_target_with_tasks_of_its_own_is_refused(stores: tuple[Store, Store]) -> None:
    source, target = stores
    fill(source)
    target.prepare()
    put(target, "stranger")
    with pytest.raises(BadInput, match="tasks of its own, like stranger"):
        move(source, target, wait=no_wait)
    assert set(every_row(target)) == {"stranger"}
    assert definitions.load_controls(source).pause_of("videos", ["script"]) is None


def test_moving_again_does_not_change_tasks_processed_in_the_target(stores: tuple[Store, Store]) -> None:
    source, target = stores
    rows = fill(source)
    move(source, target, wait=no_wait)
    held = claim_one(target, ids=["waiting"])
    put(target, "added there")
    definitions.set_limit(target, "videos", PhasePlan(name="script"), {"concurrency": 9})
    moved = move(source, target, wait=no_wait)
    assert (moved.seen, moved.added, moved.renewed, moved.notes, moved.left) == (len(rows), 0, 0, 0, 0)
    assert stored(target, "waiting") == held
    assert definitions.load_controls(target).limits == {("videos", "script"): {"concurrency": 9}}


def test_moving_again_adds_tasks_added_to_the_source_since(stores: tuple[Store, Store]) -> None:
    source, target = stores
    fill(source)
    move(source, target, wait=no_wait)
    ended = relocation_of(source)
    assert ended is not None
    assert ended.ended is not None
    put(target, "added there", unique="taken", unique_for="forever")
    for name, more in (("late", {}), ("twin", {"unique": "taken"})):
        put(source, name, created_at=ended.ended + HOUR, **more)
    put(source, "committed late", created_at=ended.ended - HOUR)
    moved = move(source, target, wait=no_wait)
    assert (moved.added, moved.left) == (1, 2)
    assert same(stored(target, "late"), stored(source, "late"))
    assert target.fetch(["committed late", "twin"]) == []
    target.remove([stored(target, "late")])
    assert move(source, target, wait=no_wait).added == 0, "what was purged at the new store does not come back"


def test_a_moved_store_refuses_new_tasks_and_workers_and_names_the_new_one(stores: tuple[Store, Store]) -> None:
    source, target = stores
    posts = Pipeline("posts")
    posts.phase(name="tag")(lambda job: None)
    queue = Queue(source).serve(posts)
    queue.publish()
    user = queue.for_user("ann")
    user.add(posts, {})
    waited: list[float] = []

    def wait(seconds: float) -> None:
        """Add a task as a process that checked just before the move was recorded; it is moved too."""
        waited.append(seconds)
        user.add(posts, {"late": True})

    assert move(source, target, wait=wait).added == 2
    assert waited == [CHECK_EVERY]
    user._check_relocation._due_at = 0.0  # as if CHECK_EVERY seconds had passed
    adders: list[tuple[Queue, Pipeline | str]] = [(queue, posts), (user, "posts"), (Queue(source), "posts")]
    for adder, pipeline in adders:
        with pytest.raises(QueueRelocated, match=re.escape(f"was moved to {target.url}")):
            adder.add(pipeline, {})
    assert len(queue.find().tasks) == 2, "it can still be looked at"
    with pytest.raises(QueueRelocated):
        Worker(queue).run()
    assert Queue(target).add("posts", {}).pipeline == "posts"


def test_a_running_worker_of_a_moved_store_stops(sqlite: Store, tmp_path: Path) -> None:
    posts = Pipeline("posts")
    posts.phase(name="tag")(lambda job: None)
    queue = Queue(sqlite).serve(posts)
    worker = Worker(queue)
    heard: list[WorkerOutdated] = []
    queue.on(WorkerOutdated, heard.append)
    thread = threading.Thread(target=worker.run)
    thread.start()
    assert worker.ready.wait(900)
    other = SqliteStore(tmp_path / "new.db")
    move(sqlite, other, wait=no_wait)
    thread.join(900)
    assert not thread.is_alive()
    assert worker.exit_code == 78
    assert other.url in heard[0].error
    other.close()


def test_after_an_undo_the_source_accepts_tasks_again(stores: tuple[Store, Store]) -> None:
    source, target = stores
    fill(source)
    move(source, target, wait=no_wait)
    assert undo(source)
    assert not undo(source)
    assert Queue(source).add("videos", {"scheduled_time": "2026-01-01T00:00:00Z"}).pipeline == "videos"
    controls = definitions.load_controls(source)
    assert controls.pause_of("videos", ["script"]) is None
    assert controls.pause_of("videos", ["youtube"]) is not None


def test_a_queue_can_be_moved_back(stores: tuple[Store, Store]) -> None:
    source, target = stores
    fill(source)
    move(source, target, wait=no_wait)
    task = stored(target, "waiting")
    swap(target, task, rules.annotate(task, '{"n":1}', target.now()))
    moved = move(target, source, wait=no_wait)
    assert moved.renewed == 1
    assert relocation_of(source) is None
    assert Queue(source).add("videos", {"scheduled_time": "2026-01-01T00:00:00Z"}).pipeline == "videos"
    assert definitions.load_controls(source).pause_of("videos", ["script"]) is None


def test_a_moved_queue_is_moved_further_from_its_current_store(sqlite: Store, tmp_path: Path) -> None:
    sqlite.prepare()
    move(sqlite, SqliteStore(tmp_path / "second.db"), wait=no_wait)
    with pytest.raises(BadInput, match=r"was moved to sqlite:///.*second.db\nmove it on from there"):
        move(sqlite, SqliteStore(tmp_path / "third.db"), wait=no_wait)


@pytest.mark.parametrize("way", ["symlink", "hard link", "relative", "folder link"])
def test_a_file_cannot_be_moved_into_itself(
    sqlite: Store, tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sqlite.prepare()
    put(sqlite, "t")
    other = tmp_path / "other.db"
    match way:
        case "symlink":
            other.symlink_to("old.db")
        case "hard link":
            other.hardlink_to(tmp_path / "old.db")
        case "relative":
            monkeypatch.chdir(tmp_path)
            other = Path("./old.db")
        case "folder link":
            (tmp_path / "folder").symlink_to(tmp_path)
            other = tmp_path / "folder" / "old.db"
    refuses_itself(sqlite, SqliteStore(other))


def test_a_postgresql_database_cannot_be_moved_into_itself(postgres: Store, postgres_url: str) -> None:
    postgres.prepare()
    put(postgres, "t")
    refuses_itself(postgres, postgres)
    refuses_itself(postgres, PostgresStore(renamed(postgres_url)))


def test_a_mongodb_database_cannot_be_moved_into_itself(mongo: Store, mongo_url: str) -> None:
    mongo.prepare()
    put(mongo, "t")
    refuses_itself(mongo, MongoStore(renamed(mongo_url)))


def renamed(url: str) -> str:
    """Return the URL of the same server with another host name."""
    assert "127.0.0.1" in url or "localhost" in url
    return url.replace("127.0.0.1", "localhost") if "127.0.0.1" in url else url.replace("localhost", "127.0.0.1")


def refuses_itself(store: Store, other: Store) -> None:
    with pytest.raises(BadInput, match="same store"):
        move(store, other, wait=no_wait)
    assert definitions.load_controls(store).pauses == {}
    assert store.notes(RELOCATION) == []
    if other is not store:
        other.close()


def no_wait(seconds: float) -> None:
    """Do not wait, because no other process adds tasks in these tests."""


def test_a_move_with_the_command(sqlite: Store, postgres: Store, postgres_url: str) -> None:
    posts = Pipeline("posts")
    posts.phase(name="tag")(lambda job: None)
    queue = Queue(sqlite)
    queue.add_many(posts, [{"n": n} for n in range(10)])
    result = CliRunner().invoke(main, ["move", sqlite.url.replace("sqlite:///", "sqlite:////"), postgres_url])
    assert result.exit_code == 0, result.output
    assert "has all 10 tasks" in result.output
    assert [tally.count for tally in postgres.count(Filter(statuses=frozenset({Status.WAITING})))] == [10]
    again = CliRunner().invoke(main, ["move", sqlite.url.replace("sqlite:///", "sqlite:////"), postgres_url, "--json"])
    assert '"added": 0' in again.output or '"added":0' in again.output


def test_the_used_part_of_a_rate_limit_is_moved(stores: tuple[Store, Store]) -> None:
    source, target = stores
    put(source)
    source.write_notes(
        [Note(rates.RATE, "videos/script", {"used": 3}), Note(schedules.PROGRESS, "videos/hourly", {"last": "x"})]
    )
    move(source, target)
    for kind in (rates.RATE, schedules.PROGRESS):
        assert [(note.name, note.body) for note in target.notes(kind)] == [
            (note.name, note.body) for note in source.notes(kind)
        ]
        assert target.notes(kind), kind
