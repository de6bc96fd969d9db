"""Bad rows and store outages: a bad row affects no other task, and a lost answer loses no outcome."""

import asyncio
import random
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from onerow import Pipeline, Queue, Retry, Status, StoreUnavailable
from onerow.core.errors import CodeTooOld
from onerow.engine.events.events import RoleFailed, StoreBack, StoreUnreachable
from onerow.stores.memory import MemoryStore
from tests.engine.kit import ended, everything, finish_all, history_of, reached, until, work, working


def two_phases() -> Pipeline:
    pipeline = Pipeline("clips")

    @pipeline.phase(retry=Retry(1, wait="1ms"))
    def cut(job: Any) -> str:
        return "cut"

    @pipeline.phase
    async def post(job: Any, cut: str) -> str:
        return f"{cut} and posted"

    return pipeline


@dataclass
class Old:
    topic: str


@dataclass
class New:
    subject: str


def test_a_payload_that_no_longer_fits_fails_permanently_and_other_tasks_run(queue: Queue) -> None:
    before, after = Pipeline("posts"), Pipeline("posts")

    @before.phase(name="run")
    def old(job: Old) -> None: ...

    @after.phase(name="run")
    def new(job: New) -> str:
        return job.subject

    bad = queue.add(before, Old("tides"))
    good = queue.add(after, New("tides"))
    work(queue, after)
    task = queue.get(bad.task_id)
    assert (task.status, task.error_class, task.retry_count) == (Status.FAILED, "permanent", 0)
    assert "subject" in (task.error or "")
    assert queue.get(good.task_id).results == {"run": "tides"}


def test_an_earlier_result_that_no_longer_fits_fails_permanently(queue: Queue) -> None:
    pipeline = Pipeline("posts")

    @pipeline.phase
    def first(job: object) -> dict[str, str]:
        return {"topic": "tides"}

    @pipeline.phase
    async def second(job: object, first: New) -> None: ...

    task = queue.add(pipeline)
    work(queue, pipeline)
    done = queue.get(task.task_id)
    assert (done.status, done.phase, done.error_class) == (Status.FAILED, "second", "permanent")
    assert "result of first" in (done.error or "")


def write(path: Path, sql: str, *given: object) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")  # as a row that an older schema let in
        assert connection.execute(sql, given).rowcount == 1


@pytest.mark.parametrize("column, text", [("payload", "no json"), ("results", "no json"), ("payload", '{"cut')])
def test_a_corrupt_row_fails_permanently_and_other_tasks_complete(
    sqlite_queue: Queue, tmp_path: Path, column: str, text: str
) -> None:
    pipeline = two_phases()
    tasks = sqlite_queue.add_many(pipeline, range(10))
    write(tmp_path / "onerow.db", f"UPDATE task_queue SET {column} = ? WHERE task_id = ?", text, tasks[4].task_id)
    with working(sqlite_queue, pipeline):
        for task in tasks:
            if task is not tasks[4]:
                assert ended(sqlite_queue, task).status is Status.COMPLETED
        until(lambda: sqlite_queue.get(tasks[4].task_id).ended)
    spoilt = sqlite_queue.get(tasks[4].task_id)
    assert (spoilt.status, spoilt.error_class) == (Status.FAILED, "corrupt")


def test_a_row_at_a_phase_without_code_waits_and_other_tasks_run(sqlite_queue: Queue, tmp_path: Path) -> None:
    pipeline = two_phases()
    lost, good = sqlite_queue.add_many(pipeline, range(2))
    write(tmp_path / "onerow.db", "UPDATE task_queue SET type = 'unheard-of' WHERE task_id = ?", lost.task_id)
    work(sqlite_queue, pipeline)
    assert sqlite_queue.get(good.task_id).status is Status.COMPLETED
    assert (sqlite_queue.get(lost.task_id).status, sqlite_queue.get(lost.task_id).attempt) == (Status.WAITING, 0)
    assert sqlite_queue.cancel(lost.task_id).status is Status.CANCELLED


@pytest.mark.slow  # a worker assumes the default lease for a phase that it does not know
def test_a_task_whose_phase_was_removed_while_it_ran_elsewhere_is_rescued_and_waits(queue: Queue) -> None:
    pipeline = two_phases()
    queue.serve(pipeline)
    task = queue.add(pipeline)
    queue.claim(pipeline, lease_for="100ms", worker="gone")
    shorter = Pipeline("clips")
    shorter.phase(name="post", lease="1s")(lambda job: None)
    elsewhere = type(queue)(queue.store)
    with working(elsewhere, shorter):
        until(lambda: queue.get(task.task_id).status is Status.WAITING)
        ended(elsewhere, elsewhere.add(shorter))
    assert queue.get(task.task_id).phase == "cut"


def test_a_row_added_by_plain_sql_runs(sqlite_queue: Queue, tmp_path: Path) -> None:
    pipeline = two_phases()
    sqlite_queue.publish(pipeline)
    write(
        tmp_path / "onerow.db",
        "INSERT INTO task_queue (task_id, pipeline, type, payload) VALUES ('by-hand', 'clips', 'cut', ?)",
        '{"n": 1}',
    )
    work(sqlite_queue, pipeline)
    assert sqlite_queue.get("by-hand").results["post"] == "cut and posted"


# ── renamed phases ────────────────────────────────────────────────────────────────────────────────────────────────


def test_rows_in_flight_follow_a_renamed_phase_and_keep_their_results(queue: Queue) -> None:
    before, after = Pipeline("clips"), Pipeline("clips")
    before.phase(name="cut")(lambda job: "old cut")
    before.phase(name="post")(lambda job: "never")

    @after.phase(name="trim", renamed_from="cut")
    def trim(job: object) -> str:
        return "new cut"

    @after.phase(name="publish", renamed_from=["post", "upload"])
    def publish(job: object, trim: str) -> str:
        return f"published {trim}"

    first, second = queue.add_many(before, range(2))
    queue.serve(before)
    queue.claim(before, ids=[first.task_id])[0].complete("old cut")
    later = type(queue)(queue.store)
    with working(later, after):
        assert ended(later, first).results == {"cut": "old cut", "publish": "published old cut"}
        assert ended(later, second).results == {"trim": "new cut", "publish": "published new cut"}


@pytest.mark.parametrize("early", [False, True], ids=["parked", "signalled before the rename"])
def test_tasks_in_wait_phases_follow_the_new_names(queue: Queue, early: bool) -> None:
    before, after = Pipeline("clips"), Pipeline("clips")
    before.wait_until("later", field="at")
    before.wait_for("approval", signal="approved", timeout="1d")
    before.wait_children("parts")
    after.wait_until("start", field="at", renamed_from="later")
    after.wait_for("review", signal="approved", timeout="1d", renamed_from="approval")
    after.wait_children("pieces", renamed_from="parts")
    at = (queue.store.now() + timedelta(hours=1)).isoformat()
    scheduled, waits, gathers = queue.add_many(before, [{"at": at}, None, None])
    queue.signal(scheduled.task_id, "approved", "early")
    queue.serve(before)
    for task in (waits, gathers):
        queue.finish(task.task_id, phase_only=True)
    queue.finish(gathers.task_id, phase_only=True)
    if early:
        queue.signal(waits.task_id, "approved", "yes")
    deadlines = {task.task_id: queue.get(task.task_id).run_at for task in (scheduled, waits)}
    later = type(queue)(queue.store)
    with working(later, after):
        assert ended(later, gathers).phase == "pieces"
        moved = reached(later, scheduled, Status.WAITING, "start")
        assert moved.run_at == deadlines[scheduled.task_id]
        if not early:
            moved = reached(later, waits, Status.WAITING, "review")
            assert (moved.awaiting, moved.run_at) == ("signal:approved", deadlines[waits.task_id])
            later.signal(waits.task_id, "approved", "yes")
        assert ended(later, waits).results["review"] == "yes"
        later.reschedule(scheduled.task_id, later.store.now())
        assert ended(later, scheduled).results["review"] == "early"


def test_a_holder_with_the_old_name_settles_into_the_new_plan(queue: Queue) -> None:
    before, after = Pipeline("clips"), Pipeline("clips")
    before.phase(name="cut")(lambda job: None)
    before.phase(name="post")(lambda job: None)
    after.phase(name="cut")(lambda job: None)
    after.phase(name="publish", renamed_from="post")(lambda job: "published")
    task = queue.add(before)
    (held,) = queue.claim(before, worker="old worker")
    later = type(queue)(queue.store)
    with working(later, after):
        assert held.complete("cut by the old").phase == "publish"
        assert ended(later, task).results == {"cut": "cut by the old", "publish": "published"}


# ── purge ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_purge_removes_tasks_that_ended_long_ago_with_their_logs(queue: Queue) -> None:
    pipeline = Pipeline("clips")

    @pipeline.phase
    def run(job: str) -> None:
        print("a line")
        if job == "bad":
            raise ValueError

    good, bad, open_ = queue.add_many(pipeline, ["good", "bad", "open"], max_retries=0)
    queue.cancel(open_.task_id)
    work(queue, pipeline)
    waiting = queue.add(pipeline, "waits")
    assert queue.purge(older_than="1h") == 0
    assert queue.purge(older_than=0, statuses=["failed"]) == 1
    assert queue.purge(older_than=0, pipeline="other") == 0
    assert queue.purge(older_than=0, limit=1) == 1
    assert queue.purge(older_than=0) == 1
    assert [task.task_id for task in everything(queue)] == [waiting.task_id]
    for gone in (good, bad):
        assert queue.store.read_log(gone.task_id).lines == []


def test_a_queue_that_keeps_tasks_for_a_time_purges_by_itself(queue: Queue) -> None:
    brief = Queue(queue.store, keep="10ms")
    pipeline = two_phases()
    task = brief.add(pipeline)
    work(Queue(queue.store), pipeline)
    until(
        lambda: queue.store.now() - (queue.get(task.task_id).completed_at or queue.store.now()) > timedelta(seconds=0.1)
    )
    with working(brief, pipeline):
        until(lambda: brief.store.fetch([task.task_id]) == [])


# ── store outages ─────────────────────────────────────────────────────────────────────────────────────────────────


class Unreliable(MemoryStore):
    """A store with an unreliable connection: any call may fail before or after it was executed."""

    def __init__(self, seed: int, *, loses_answers: bool = True) -> None:
        super().__init__()
        self._random = random.Random(seed)
        self._random_lock = threading.Lock()
        self._loses_answers = loses_answers
        self.unreliable = False
        self.broken = 0
        self.settled_by: set[str] = set()  # names of the threads that settled and claimed

    def _unreliably(self, call: Callable[[], Any]) -> Any:
        with self._random_lock:
            fate = self._random.random() if self.unreliable else 1.0
            self.broken += fate < 0.2
        if fate < (0.1 if self._loses_answers else 0.2):
            raise StoreUnavailable("the line broke on the way there")
        answer = call()
        if fate < 0.2:
            raise StoreUnavailable("the line broke on the way back")
        return answer

    def settle_and_claim(self, *given: Any, **more: Any) -> Any:
        self.settled_by.add(threading.current_thread().name)
        return self._unreliably(lambda: super(Unreliable, self).settle_and_claim(*given, **more))

    def extend(self, *given: Any, **more: Any) -> Any:
        return self._unreliably(lambda: super(Unreliable, self).extend(*given, **more))

    def fetch(self, ids: Sequence[str]) -> Any:
        return self._unreliably(lambda: super(Unreliable, self).fetch(ids))

    def find(self, *given: Any, **more: Any) -> Any:
        return self._unreliably(lambda: super(Unreliable, self).find(*given, **more))

    def notes(self, *given: Any, **more: Any) -> Any:
        return self._unreliably(lambda: super(Unreliable, self).notes(*given, **more))

    def append_log(self, lines: Any) -> None:
        self._unreliably(lambda: super(Unreliable, self).append_log(lines))


def noted(name: str, runs: list[tuple[str, int]]) -> Callable[[int], Awaitable[str]]:
    """Return a handler that returns its name and notes that it ran."""

    async def run(job: int) -> str:
        runs.append((name, job))
        await asyncio.sleep(0.005)
        return name

    return run


@pytest.mark.parametrize("seed", range(3))
def test_every_task_has_one_outcome_per_phase_however_often_the_connection_breaks(seed: int) -> None:
    store = Unreliable(seed)
    queue = Queue(store)
    pipeline = Pipeline("clips")
    runs: list[tuple[str, int]] = []

    for name in ("first", "second", "third"):
        pipeline.phase(name=name, lease="1s")(noted(name, runs))

    heard: list[object] = []
    queue.on(StoreUnreachable, heard.append)
    queue.on(StoreBack, heard.append)
    queue.on(RoleFailed, heard.append)
    with working(queue, pipeline, grace="10s", concurrency=4):
        tasks = queue.add_many(pipeline, range(300))  # adding reads a note, so it comes before the connection breaks
        store.unreliable = True
        # A task whose lease was not extended in time waits for a rescue, which needs the store for a whole lease.
        until(lambda: store.broken >= 8)
        store.unreliable = False
        for task in tasks:
            ended(queue, task)
    assert {task.status for task in everything(queue)} == {Status.COMPLETED}
    for task in everything(queue):
        assert [entry for entry in history_of(task) if entry[0] != "rescued"] == [
            ("advanced", "first"), ("advanced", "second"), ("completed", "third"),
        ]  # fmt: skip
        assert task.results == {"first": "first", "second": "second", "third": "third"}
    assert any(isinstance(event, StoreUnreachable) for event in heard)
    assert not [event for event in heard if isinstance(event, RoleFailed)]


@pytest.mark.parametrize("seed", range(3))
def test_overlapping_rounds_lose_nothing_and_run_nothing_twice_on_an_unreliable_connection(seed: int) -> None:
    store = Unreliable(seed, loses_answers=False)
    queue = Queue(store)
    pipeline = Pipeline("clips")
    runs: list[tuple[str, int]] = []

    @pipeline.phase
    async def cut(job: int) -> str:
        runs.append(("cut", job))
        return "cut"

    @pipeline.phase
    async def post(job: int, cut: str) -> None:
        runs.append(("post", job))

    added = 0

    def all_ran() -> bool:
        return len(runs) >= 2 * added

    with working(queue, pipeline):
        while (
            store.broken < 3 or "onerow-round_0" not in store.settled_by
        ):  # until there were errors and overlapping rounds
            store.unreliable = False  # adding is not what is tested here
            queue.add_many(pipeline, range(added, added + 2000))
            store.unreliable = True
            added += 2000
            until(all_ran)
        store.unreliable = False
        until(lambda: [tally.count for tally in queue.count()] == [added])
    assert sorted(runs) == [(phase, job) for phase in ("cut", "post") for job in range(added)]
    done = everything(queue)
    assert {(task.status, task.crash_count, task.token) for task in done} == {(Status.COMPLETED, 0, 2)}


def test_a_worker_settles_after_an_outage_what_ended_during_it() -> None:
    store = MemoryStore()
    queue = Queue(store)
    go, away = threading.Event(), threading.Event()
    pipeline = Pipeline("clips")

    @pipeline.phase(lease="30s")
    def run(job: object) -> str:
        go.wait(900)
        return "done during the outage"

    settle_and_claim = store.settle_and_claim

    def broken(*given: Any, **more: Any) -> Any:
        if away.is_set():
            raise StoreUnavailable("gone")
        return settle_and_claim(*given, **more)

    store.settle_and_claim = broken  # type: ignore[method-assign]
    heard: list[str] = []
    queue.on(StoreUnreachable, lambda event: heard.append("away"))
    queue.on(StoreBack, lambda event: heard.append("back"))
    task = queue.add(pipeline)
    with working(queue, pipeline):
        until(lambda: queue.get(task.task_id).status is Status.PROCESSING)
        away.set()
        go.set()
        until(lambda: heard == ["away"])
        assert queue.get(task.task_id).status is Status.PROCESSING
        away.clear()
        done = ended(queue, task)
        until(lambda: heard == ["away", "back"])
    assert (done.results, done.token) == ({"run": "done during the outage"}, 1)


def test_finishing_everything_leaves_no_lease_and_no_slot(queue: Queue) -> None:
    pipeline = Pipeline("clips")

    @pipeline.phase(concurrency=3, per_key=1, retry=Retry(1, wait="1ms"))
    def run(job: int) -> None:
        if job % 5 == 0:
            raise ValueError

    for number in range(30):
        queue.add(pipeline, number, limit_key=f"k{number % 4}")
    for task in finish_all(queue, pipeline):
        assert (task.leased_by, task.leased_until, task.slot, task.key_slot) == (None, None, None, None)


def test_code_that_the_store_has_outgrown_is_refused_and_a_running_worker_drains(
    sqlite_queue: Queue, tmp_path: Path
) -> None:
    pipeline = two_phases()
    with working(sqlite_queue, pipeline) as worker:
        ended(sqlite_queue, sqlite_queue.add(pipeline))
        write(tmp_path / "onerow.db", "UPDATE onerow_meta SET value = 99 WHERE key = 'min_code'")
        until(lambda: worker.exit_code == 78)
    with pytest.raises(CodeTooOld, match="upgrade"):
        Queue(f"sqlite:///{tmp_path}/onerow.db").add(pipeline)
