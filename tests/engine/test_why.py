"""Why a task is not running: every reason, its sentence, and the command that changes it."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from onerow import Filter, Pipeline, RateLimited, Worker
from onerow.core import rules
from onerow.core.plan import PhasePlan, Plan
from onerow.core.task import Task
from onerow.engine.control import definitions
from onerow.engine.control.definitions import WORKER
from onerow.engine.control.rates import Rates
from onerow.engine.queue.queue import Queue
from onerow.engine.views import Reason, Views
from onerow.ports import Claim, Note, PhaseClaim, Store
from onerow.stores.memory import MemoryStore
from tests.samples import BROKEN, HOPELESS, NOW, PLAN, SECOND, a_task, claimed

LIMITED = Plan(name="videos", phases=(PhasePlan(name="script", concurrency=1), PhasePlan(name="video", per_key=1)))
HOUR = timedelta(hours=1)


@pytest.fixture
def store() -> Store:
    return MemoryStore(lambda: NOW)


def register_worker(store: Store, *phases: str, pipeline: str = "videos", draining: bool = False) -> None:
    body = {"phases": [[pipeline, phase] for phase in phases], "draining": draining}
    store.write_notes([Note(WORKER, f"w{len(store.notes(WORKER))}", body)])


def ask(store: Store, task: Task, plan: Plan | None = PLAN, *, worker: bool = True) -> Reason:
    store.insert([task])
    if plan is not None:
        definitions.publish(store, [plan])
    if worker:
        register_worker(store, "script", "video", "youtube")
    return Views(Queue(store)).why(task.task_id)


@pytest.mark.parametrize(
    "task, code, sentence, command",
    [
        (a_task(run_at=NOW + HOUR), "not-due",
         "It is not due until 2026-11-15 03:29:57Z (in 1h).", "onerow reschedule t1 --run-at now"),
        (a_task(phase="schedule", run_at=NOW + HOUR), "not-due",
         "It is not due until 2026-11-15 03:29:57Z (in 1h), the time in payload.scheduled_time.",
         "onerow reschedule t1 --run-at now"),
        (rules.fail(claimed(a_task()), BROKEN, PLAN, NOW), "back-off",
         "It is not due until 2026-11-15 02:30:02Z (in 5s): attempt 1 failed (network: ConnectionError: refused), "
         "2 retries left after the next.", "onerow reschedule t1 --run-at now"),
        (replace(rules.rescue(claimed(a_task()), NOW), run_at=NOW + 5 * SECOND), "suspect",
         "It is not due until 2026-11-15 02:30:02Z (in 5s): it was cut off once together with its worker, "
         "so it waits for its turn to run in a process of its own.", "onerow reschedule t1 --run-at now"),
        (a_task(phase="image", awaiting="signal:images.ready", run_at=NOW + 3 * 24 * HOUR), "signal",
         "It is parked for the signal images.ready until 2026-11-18 02:29:57Z (in 3d).",
         "onerow signal t1 images.ready"),
        (a_task(awaiting="children", children=3, run_at=NOW + HOUR), "children",
         "It is parked for its children until 2026-11-15 03:29:57Z (in 1h): 0 of 3 have ended.",
         ""),
        (a_task(phase="film2"), "no-phase",
         "No code knows the phase film2: videos has schedule, script, image, video, youtube. "
         "Put renamed_from='film2' on the phase that replaces it, and publish.", "onerow publish APP"),
        (a_task(), "due", "Nothing stands in its way; a worker should take it within a second.", ""),
        (a_task(phase="schedule"), "due", "It is due, and a worker will let it pass schedule in a moment.", ""),
        (rules.fail(claimed(a_task()), HOPELESS, PLAN, NOW), "failed",
         "It failed in script at its first attempt 0s ago (permanent): no such topic", "onerow retry t1"),
        (replace(rules.fail(claimed(a_task()), HOPELESS, PLAN, NOW - HOUR), attempt=4), "failed",
         "It failed in script after 4 attempts 1h ago (permanent): no such topic", "onerow retry t1"),
        (rules.finish(claimed(a_task()), None, NOW - 90 * SECOND), "completed",
         "It was completed 1m30s ago.", ""),
        (rules.cancel(a_task(), NOW), "cancelled", "It was cancelled in script 0s ago (no reason was given); a cancelled task never runs again.", ""),
        (claimed(a_task()), "running",
         "It is running: script, attempt 1 for 0s, held by worker w1 until 2026-11-15 02:30:27Z.", ""),
        (rules.cancel(claimed(a_task()), NOW), "cancelling",
         "Someone asked to cancel it; worker w1 is stopping the work.", ""),
        (claimed(a_task(run_at=NOW - HOUR), NOW - 45 * SECOND), "lease-ended",
         "Its worker w1 has been silent since its lease ended 15s ago; a live worker will rescue it in a moment.", ""),
    ],
)  # fmt: skip
def test_the_reason_is_explained(store: Store, task: Task, code: str, sentence: str, command: str) -> None:
    found = ask(store, task)
    assert (found.code, found.sentence, found.command) == (code, sentence, command)


def test_a_task_that_failed_for_good_asks_for_a_correction_before_its_retry(store: Store) -> None:
    failed = ask(store, rules.fail(claimed(a_task()), HOPELESS, PLAN, NOW))
    assert (failed.first, failed.advice) == ("correct the code", "correct the code, then: onerow retry t1")
    out_of_retries = rules.fail(claimed(replace(a_task("t2"), retry_count=3)), BROKEN, PLAN, NOW)
    other = ask(store, out_of_retries)
    assert (other.code, other.first, other.advice) == ("failed", "", "onerow retry t2")


def test_the_pipeline_is_not_published(store: Store) -> None:
    found = ask(store, a_task(), None)
    assert found.code == "no-pipeline"
    assert "onerow publish APP" in found.command


def test_no_worker_serves_the_phase(store: Store) -> None:
    found = ask(store, a_task(), worker=False)
    assert found.sentence == "No live worker serves videos.script: none is running."
    register_worker(store, "video")
    register_worker(store, "script", draining=True)
    found = Views(Queue(store)).why("t1")
    assert found.sentence == "No live worker serves videos.script; 1 live worker serves other phases."
    assert found.command == "onerow worker APP"


def test_a_silent_worker_does_not_count_as_serving() -> None:
    now = NOW
    store = MemoryStore(lambda: now)
    ask(store, a_task())
    now = NOW + 20 * SECOND
    assert Views(Queue(store)).why("t1").code == "no-worker"


@pytest.mark.parametrize("phase, what, command", [("script", "The phase script", "onerow resume videos script"), ("*", "The pipeline videos", "onerow resume videos")])  # fmt: skip
def test_the_phase_or_pipeline_is_paused(store: Store, phase: str, what: str, command: str) -> None:
    definitions.set_pause(store, "videos", phase, "ann", "the disk is full")
    found = ask(store, a_task())
    assert found.sentence == f"{what} was paused by ann because: the disk is full."
    assert found.command == command


def test_the_phase_is_held(store: Store) -> None:
    definitions.set_hold(store, "videos", "script", NOW + 40 * SECOND, "429 Too Many\nRequests", "w7")
    found = ask(store, a_task())
    assert (found.code, found.until) == ("held", NOW + 40 * SECOND)
    assert found.sentence == (
        "The phase script is held until 2026-11-15 02:30:37Z (in 40s), "
        "because a handler on worker w7 met a limit: 429 Too Many Requests"
    )


def test_one_user_does_not_see_the_error_of_another_users_task(store: Store) -> None:
    definitions.set_hold(store, "videos", "script", NOW + 40 * SECOND, "bob has no credit", "w7")
    ask(store, a_task(user_id="ann"))
    ann = Views(Queue(store).for_user("ann"))
    assert ann.why("t1").sentence.endswith("because a handler on worker w7 met a limit")
    assert [lane.held_why for lane in ann.board().pipelines[0].lanes if lane.phase == "script"] == [""]


def test_one_user_does_not_see_which_task_of_another_user_holds_the_slot(store: Store) -> None:
    store.insert([a_task("bobs", user_id="bob")])
    store.claim(Claim("w7", [PhaseClaim(pipeline="videos", phase="script", limit=1, lease_for=30 * SECOND)]))
    ask(store, a_task(user_id="ann"), LIMITED)
    assert "is taken by another user's task," in Views(Queue(store).for_user("ann")).why("t1").sentence


def test_a_hold_of_an_older_version_has_no_cause(store: Store) -> None:
    store.write_notes([Note(definitions.HOLD, "videos/script", {"until": "2026-11-15T02:30:37.000Z"})])
    assert ask(store, a_task()).sentence.endswith("because a handler met a limit")


@pytest.mark.parametrize("how", ["handler", "pull"])
def test_the_reason_of_a_hold_names_the_worker_and_the_error(how: str) -> None:
    queue = Queue(MemoryStore())
    calls = Pipeline("calls")

    @calls.phase(concurrency=1)
    def call(job: int) -> None:
        raise RateLimited("1h", "quota of the day is used up", scope="phase")

    queue.serve(calls)
    queue.add_many(calls, [0, 1])
    if how == "handler":
        worker = Worker(queue, until_idle=True)
        worker.run()
        name = worker.name
    else:
        (lease,) = queue.claim(calls, worker="puller")
        lease.fail(RateLimited("1h", "quota of the day is used up", scope="phase"))
        name = "puller"
    (other,) = queue.find(Filter(due_before=queue.store.now())).tasks
    assert f"on worker {name} met a limit: quota of the day is used up" in Views(queue).why(other).sentence
    assert Views(queue).board().pipelines[0].lanes[0].held_why == "quota of the day is used up"


def test_the_rate_is_used_up(store: Store) -> None:
    plan = Plan(name="videos", phases=(PhasePlan(name="script", rate="1/min"),))
    Rates(store).admit("videos", plan.first, [claimed(a_task("first"))])
    found = ask(store, a_task(), plan)
    assert found.sentence == "The rate 1/min of script is used up until 2026-11-15 02:30:57Z (in 1m)."
    assert (found.code, found.until) == ("rate", NOW + 60 * SECOND)


def test_the_limit_is_taken(store: Store) -> None:
    store.insert([a_task("first")])
    store.claim(Claim("w7", [PhaseClaim(pipeline="videos", phase="script", limit=1, lease_for=30 * SECOND)]))
    found = ask(store, a_task(), LIMITED)
    assert found.sentence == (
        "The limit 1 of script is taken by task first, held by worker w7 until 2026-11-15 02:30:27Z."
    )
    assert found.command == "onerow limit videos script 2"


def test_the_limit_of_its_key_is_taken(store: Store) -> None:
    store.insert([a_task("first", phase="video", limit_key="k"), a_task("other", phase="video", limit_key="j")])
    store.claim(Claim("w7", [PhaseClaim(pipeline="videos", phase="video", limit=9, lease_for=30 * SECOND)]))
    found = ask(store, a_task(phase="video", limit_key="k"), LIMITED)
    assert found.sentence.startswith("The limit 1 of video for the key 'k' is taken by task first")
    assert Views(Queue(store)).why(a_task("free", phase="video", limit_key="new")).code == "due"


def test_other_tasks_are_ahead(store: Store) -> None:
    store.insert([a_task(f"a{n}", run_at=NOW - SECOND) for n in range(3)])
    store.insert([a_task("later", run_at=NOW + HOUR), a_task("behind", priority=5), a_task("better", priority=-5)])
    found = ask(store, a_task("t1"))
    assert found.sentence == "4 tasks are ahead of it in script, and the workers are busy."
    assert found.command == "onerow set-priority t1 --priority -10"


def test_an_ended_lease_without_a_live_worker_needs_a_worker(store: Store) -> None:
    found = ask(store, claimed(a_task(run_at=NOW - HOUR), NOW - HOUR), worker=False)
    assert found.sentence.endswith("no live worker is there to rescue it.")
    assert found.command == "onerow worker APP"
