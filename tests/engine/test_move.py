"""Moving house: everything comes along, nothing is lost, and whoever is interrupted goes on."""

import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from onerow.cli.main import main
from onerow.core import rules
from onerow.core.errors import BadInput, IllegalMove, QueueRelocated
from onerow.core.status import COMPLETED, Status
from onerow.core.task import Task
from onerow.engine.control import definitions, rates, schedules
from onerow.engine.control.relocation import CHECK_EVERY, RELOCATION, relocation_of, undo
from onerow.engine.events.events import WorkerOutdated
from onerow.engine.queue.move import Moved, move
from onerow.engine.queue.queue import Queue
from onerow.engine.worker import Worker
from onerow.pipelines.pipeline import Pipeline
from onerow.ports import Existing, Filter, LogLine, Note, Store
from onerow.stores.mongo import MongoStore
from onerow.stores.postgres import PostgresStore
from onerow.stores.sqlite import SqliteStore
from tests.conformance.kit import HOUR, claim_one, every_row, new, put, put_many, same, stored, swap
from tests.samples import BROKEN, PLAN

WAYS = ["sqlite to postgres", "postgres to sqlite", "sqlite to mongo", "mongo to sqlite", "mongo to postgres"]


class Interrupted(Exception):
    """Someone pressed Ctrl-C."""


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


@pytest.fixture(params=WAYS)
def houses(request: pytest.FixtureRequest) -> tuple[Store, Store]:
    """Where it moves from, prepared, and where to."""
    old: Store
    new_house: Store
    old, new_house = map(request.getfixturevalue, request.param.split(" to "))
    old.prepare()
    return old, new_house


def furnish(store: Store) -> dict[str, Task]:
    """Tasks in every state that a task may be left in."""
    now = store.now()
    definitions.publish(store, [PLAN])
    definitions.set_limit(store, "videos", "script", {"concurrency": 3})
    definitions.set_pause(store, "videos", "youtube", "ann", "quota")
    store.write_notes([Note("cron", "nightly", {"at": "2026-01-01"}), Note("worker", "w1", {"pid": 1})])
    put(store, "waiting", payload={"제목": "조수 🌊", "n": [1.0, 5e-324, -0.0, 2**63 - 1]}, title="조수", priority=-3)
    put(store, "later", run_at=now + HOUR, scheduled_time=now + HOUR, user_id="ann", metadata_json='{"b":1,"a":2}')
    put(store, "unique", unique="k", unique_for="forever", limit_key="ann")
    put(store, "child", parent_id="waiting")
    held = [claim_one(store, ids=[put(store, f"claimed{n}").task_id]) for n in range(5)]
    swap(store, held[0], rules.complete(held[0], '{"ok":true}', now))
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


def test_everything_comes_along(houses: tuple[Store, Store]) -> None:
    old, new_house = houses
    rows = furnish(old)
    moved = move(old, new_house, wait=nap)
    assert (moved.added, moved.renewed, moved.lines) == (len(rows), 0, 2_301)
    assert all_same(rows, new_house)
    page = new_house.read_log("claimed0", limit=10_000)
    assert [line.text for line in page.lines] == [f"line {n} 조수" for n in range(2_300)]
    assert definitions.load_plans(new_house) == {"videos": PLAN}
    assert definitions.load_controls(new_house).limits == {("videos", "script"): (3, None)}
    assert [note.body for note in new_house.notes("cron")] == [{"at": "2026-01-01"}]
    assert new_house.notes("worker") == []


def test_the_old_house_is_paused_and_the_new_one_is_not(houses: tuple[Store, Store]) -> None:
    old, new_house = houses
    furnish(old)
    move(old, new_house, wait=nap)
    assert definitions.load_controls(old).pause_of("videos", "script") is not None
    controls = definitions.load_controls(new_house)
    assert controls.pause_of("videos", "script") is None
    pause = controls.pause_of("videos", "youtube")
    assert pause is not None
    assert pause.reason == "quota"


def test_life_goes_on_in_the_new_house(houses: tuple[Store, Store]) -> None:
    old, new_house = houses
    furnish(old)
    move(old, new_house, wait=nap)
    (answer,) = new_house.insert([new(new_house, "again", unique="k")])
    assert isinstance(answer, Existing)
    assert answer.task.task_id == "unique"
    held = claim_one(new_house, ids=["claimed3"])
    assert (held.token, held.steps) == (2, {"a": 1})
    assert swap(new_house, held, rules.complete(held, None, new_house.now())).status is COMPLETED


def test_moving_again_changes_nothing(houses: tuple[Store, Store]) -> None:
    old, new_house = houses
    rows = furnish(old)
    move(old, new_house, wait=nap)
    moved = move(old, new_house, wait=nap)
    assert (moved.seen, moved.added, moved.renewed, moved.lines, moved.notes) == (len(rows), 0, 0, 0, 0)
    assert all_same(rows, new_house)


def test_cut_off_it_goes_on_where_it_was(houses: tuple[Store, Store]) -> None:
    old, new_house = houses
    furnish(old)
    put_many(old, 1_200)
    rows = every_row(old)

    def interrupt(far: Moved) -> None:
        if far.seen >= 1_000:
            raise Interrupted

    with pytest.raises(Interrupted):
        move(old, new_house, interrupt)
    assert len(every_row(new_house)) == 1_000
    moved = move(old, new_house, wait=nap)
    assert moved.added == len(rows) - 1_000
    assert all_same(rows, new_house)
    assert len(new_house.read_log("claimed0", limit=10_000).lines) == 2_300


def test_a_row_that_came_without_its_output_gets_it(houses: tuple[Store, Store]) -> None:
    """Cut off between the two: the row is there, and only some of its lines."""
    old, new_house = houses
    furnish(old)
    new_house.prepare()
    new_house.insert([stored(old, "claimed0")])
    new_house.append_log(old.read_log("claimed0", limit=700).lines)
    assert move(old, new_house, wait=nap).lines == 1_601
    assert len(new_house.read_log("claimed0", limit=10_000).lines) == 2_300


def test_what_is_added_meanwhile_comes_along(houses: tuple[Store, Store]) -> None:
    old, new_house = houses
    furnish(old)
    late = iter(range(3))

    def add(far: Moved) -> None:
        if (number := next(late, None)) is not None:
            put(old, f"late{number}")
            task = stored(old, "waiting")
            swap(old, task, rules.annotate(task, f'{{"n":{number}}}', old.now()))

    moved = move(old, new_house, add, wait=nap)
    assert moved.renewed >= 1
    assert all_same(every_row(old), new_house)
    assert stored(new_house, "waiting").metadata == {"n": 2}


def test_it_refuses_while_tasks_are_being_worked_on(houses: tuple[Store, Store]) -> None:
    old, new_house = houses
    put(old)
    held = claim_one(old)
    with pytest.raises(IllegalMove, match="1 task"):
        move(old, new_house, wait=nap)
    assert every_row(new_house) == {}
    swap(old, held, rules.hand_back(held, old.now()))
    assert move(old, new_house, wait=nap).added == 1


def test_it_refuses_a_house_that_is_lived_in(houses: tuple[Store, Store]) -> None:
    old, new_house = houses
    furnish(old)
    new_house.prepare()
    put(new_house, "stranger")
    with pytest.raises(BadInput, match="tasks of its own, like stranger"):
        move(old, new_house, wait=nap)
    assert set(every_row(new_house)) == {"stranger"}
    assert definitions.load_controls(old).pause_of("videos", "script") is None


def test_moving_again_leaves_alone_what_was_done_in_the_new_store(houses: tuple[Store, Store]) -> None:
    old, new_house = houses
    rows = furnish(old)
    move(old, new_house, wait=nap)
    held = claim_one(new_house, ids=["waiting"])
    put(new_house, "added there")
    definitions.set_limit(new_house, "videos", "script", {"concurrency": 9})
    moved = move(old, new_house, wait=nap)
    assert (moved.seen, moved.added, moved.renewed, moved.notes, moved.left) == (len(rows), 0, 0, 0, 0)
    assert stored(new_house, "waiting") == held
    assert definitions.load_controls(new_house).limits == {("videos", "script"): (9, None)}


def test_moving_again_adds_what_the_old_store_was_given_since(houses: tuple[Store, Store]) -> None:
    old, new_house = houses
    furnish(old)
    move(old, new_house, wait=nap)
    ended = relocation_of(old)
    assert ended is not None
    assert ended.ended is not None
    put(new_house, "added there", unique="taken", unique_for="forever")
    for name, more in (("late", {}), ("twin", {"unique": "taken"})):
        put(old, name, created_at=ended.ended + HOUR, **more)
    put(old, "committed late", created_at=ended.ended - HOUR)
    moved = move(old, new_house, wait=nap)
    assert (moved.added, moved.left) == (1, 2)
    assert same(stored(new_house, "late"), stored(old, "late"))
    assert new_house.fetch(["committed late", "twin"]) == []
    new_house.remove([stored(new_house, "late")])
    assert move(old, new_house, wait=nap).added == 0, "what was purged at the new store does not come back"


def test_a_moved_store_refuses_new_tasks_and_workers_and_names_the_new_one(houses: tuple[Store, Store]) -> None:
    old, new_house = houses
    posts = Pipeline("posts")
    posts.phase(name="tag")(lambda job: None)
    queue = Queue(old).serve(posts)
    queue.publish()
    user = queue.for_user("ann")
    user.add(posts, {})
    waited: list[float] = []

    def wait(seconds: float) -> None:
        """A process that looked just before the store was marked still adds: that comes along."""
        waited.append(seconds)
        user.add(posts, {"late": True})

    assert move(old, new_house, wait=wait).added == 2
    assert waited == [CHECK_EVERY]
    user._check_relocation._due_at = 0.0  # as if CHECK_EVERY were over
    adders: list[tuple[Queue, Pipeline | str]] = [(queue, posts), (user, "posts"), (Queue(old), "posts")]
    for adder, pipeline in adders:
        with pytest.raises(QueueRelocated, match=re.escape(f"was moved to {new_house.url}")):
            adder.add(pipeline, {})
    assert len(queue.find().tasks) == 2, "it can still be looked at"
    with pytest.raises(QueueRelocated):
        Worker(queue).run()
    assert Queue(new_house).add("posts", {}).pipeline == "posts"


def test_a_running_worker_of_a_moved_store_stops(sqlite: Store, tmp_path: Path) -> None:
    posts = Pipeline("posts")
    posts.phase(name="tag")(lambda job: None)
    queue = Queue(sqlite).serve(posts)
    worker = Worker(queue)
    heard: list[WorkerOutdated] = []
    queue.on(WorkerOutdated, heard.append)
    thread = threading.Thread(target=worker.run)
    thread.start()
    assert worker.ready.wait(60)
    other = SqliteStore(tmp_path / "new.db")
    move(sqlite, other, wait=nap)
    thread.join(60)
    assert not thread.is_alive()
    assert worker.exit_code == 78
    assert other.url in heard[0].error
    other.close()


def test_undone_the_old_store_takes_tasks_again(houses: tuple[Store, Store]) -> None:
    old, new_house = houses
    furnish(old)
    move(old, new_house, wait=nap)
    assert undo(old)
    assert not undo(old)
    assert Queue(old).add("videos", {"scheduled_time": "2026-01-01T00:00:00Z"}).pipeline == "videos"
    controls = definitions.load_controls(old)
    assert controls.pause_of("videos", "script") is None
    assert controls.pause_of("videos", "youtube") is not None


def test_a_queue_can_come_back(houses: tuple[Store, Store]) -> None:
    old, new_house = houses
    furnish(old)
    move(old, new_house, wait=nap)
    task = stored(new_house, "waiting")
    swap(new_house, task, rules.annotate(task, '{"n":1}', new_house.now()))
    moved = move(new_house, old, wait=nap)
    assert moved.renewed == 1
    assert relocation_of(old) is None
    assert Queue(old).add("videos", {"scheduled_time": "2026-01-01T00:00:00Z"}).pipeline == "videos"
    assert definitions.load_controls(old).pause_of("videos", "script") is None


def test_a_moved_queue_moves_on_from_where_it_is(sqlite: Store, tmp_path: Path) -> None:
    sqlite.prepare()
    move(sqlite, SqliteStore(tmp_path / "second.db"), wait=nap)
    with pytest.raises(BadInput, match=r"was moved to sqlite:///.*second.db; move it on from there"):
        move(sqlite, SqliteStore(tmp_path / "third.db"), wait=nap)


@pytest.mark.parametrize("way", ["symlink", "hard link", "relative", "folder link"])
def test_a_file_does_not_move_into_itself(
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


def test_a_postgresql_database_does_not_move_into_itself(postgres: Store, postgres_url: str) -> None:
    postgres.prepare()
    put(postgres, "t")
    refuses_itself(postgres, postgres)
    refuses_itself(postgres, PostgresStore(renamed(postgres_url)))


def test_a_mongodb_database_does_not_move_into_itself(mongo: Store, mongo_url: str) -> None:
    mongo.prepare()
    put(mongo, "t")
    refuses_itself(mongo, MongoStore(renamed(mongo_url)))


def renamed(url: str) -> str:
    """The same server by another name."""
    assert "127.0.0.1" in url or "localhost" in url
    return url.replace("127.0.0.1", "localhost") if "127.0.0.1" in url else url.replace("localhost", "127.0.0.1")


def refuses_itself(store: Store, other: Store) -> None:
    with pytest.raises(BadInput, match="same store"):
        move(store, other, wait=nap)
    assert definitions.load_controls(store).pauses == {}
    assert store.notes(RELOCATION) == []
    if other is not store:
        other.close()


def nap(seconds: float) -> None:
    """No other process adds tasks in these tests."""


def test_by_the_command(sqlite: Store, postgres: Store, postgres_url: str) -> None:
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


def test_what_was_used_of_a_rate_moves_along(houses: tuple[Store, Store]) -> None:
    old, new_house = houses
    put(old)
    old.write_notes(
        [Note(rates.RATE, "videos/script", {"used": 3}), Note(schedules.MARK, "videos/hourly", {"last": "x"})]
    )
    move(old, new_house)
    for kind in (rates.RATE, schedules.MARK):
        assert [(note.name, note.body) for note in new_house.notes(kind)] == [
            (note.name, note.body) for note in old.notes(kind)
        ]
        assert new_house.notes(kind), kind
