"""Findings: what needs attention, as every face shows it."""

from datetime import UTC, datetime, timedelta

import pytest

from onerow.core import rules
from onerow.core.plan import PhasePlan, Plan
from onerow.core.schedule import Cron
from onerow.core.times import spell
from onerow.engine.control import definitions
from onerow.engine.control.definitions import WORKER
from onerow.engine.control.schedules import PROGRESS, pause_name
from onerow.engine.control.stats import STATS, minute_of, note_name
from onerow.engine.queue.queue import Queue
from onerow.engine.views import QueueFinding, Views
from onerow.ports import Administrable, Claim, Note, PhaseClaim
from tests.samples import HOPELESS, a_task, claimed

PLAN = Plan(
    name="videos",
    phases=(PhasePlan(name="script"), PhasePlan(name="image", kind="wait_for", signal="go"), PhasePlan(name="video")),
    crons=(Cron(name="hourly", expression="0 * * * *"), Cron(name="nightly", expression="0 3 * * *", user_id="u1")),
)
HOUR = timedelta(hours=1)


@pytest.fixture
def views(queue: Queue) -> Views:
    definitions.publish(queue.store, [PLAN])
    return Views(queue)


def problems(views: Views) -> dict[str, QueueFinding]:
    return {finding.code: finding for finding in views.findings() if finding.level != "good"}


def test_a_queue_in_order_has_only_good_findings(queue: Queue, views: Views) -> None:
    body = {"phases": [["videos", "script"]], "concurrency": 4}
    queue.store.write_notes([Note(WORKER, "w1", body)])
    assert problems(views) == {}
    assert {finding.code for finding in views.findings()} == {"clock", "lease", "corrupt", "workers"}
    assert [finding.level for finding in views.attention()] in ([], ["slow"]), "MongoDB before 8.0 settles singly"


def test_phases_with_due_tasks_and_no_worker_are_found(queue: Queue, views: Views) -> None:
    now = queue.store.now()
    queue.store.insert(
        [a_task("a", run_at=now), a_task("b", run_at=now), a_task("c", phase="video", run_at=now + HOUR)]
    )
    found = problems(views)
    assert set(found) == {"no-worker", "unserved"}
    unserved = found["unserved"]
    assert (unserved.pipeline, unserved.phase, unserved.count) == ("videos", "script", 2)
    assert unserved.what == "2 tasks wait at videos.script, which no live worker serves"


def test_pauses_failures_overdue_leases_and_unknown_phases_are_found(queue: Queue, views: Views) -> None:
    store, now = queue.store, queue.store.now()
    store.insert(
        [
            rules.fail(claimed(a_task("f"), now), HOPELESS, PLAN, now),
            claimed(a_task("stuck", run_at=now - HOUR), now - HOUR),
            a_task("odd", phase="film", run_at=now),
        ]
    )
    queue.pause("videos", "video", by="ann", reason="the encoder is broken")
    found = problems(views)
    assert found["paused"].what == "videos.video is paused by ann: the encoder is broken"
    assert (found["failed"].phase, found["failed"].count) == ("script", 1)
    assert (found["lease"].level, found["lease"].name) == ("bad", "stuck")
    assert (found["unknown-phase"].phase, found["unknown-phase"].level) == ("film", "bad")
    assert found["unknown-phase"].what == "1 task stands at videos.film, which no published code knows"
    store.insert([a_task("odd2", phase="film", run_at=now)])
    assert problems(views)["unknown-phase"].what == "2 tasks stand at videos.film, which no published code knows"
    assert [each.level for each in views.attention()][:2] == ["bad", "bad"], "the worst first"


def test_a_schedule_that_no_worker_handled_was_missed(queue: Queue, views: Views) -> None:
    store, now = queue.store, queue.store.now()
    assert "missed" not in problems(views), "a schedule that no worker has seen yet"
    store.write_notes([Note(PROGRESS, "videos/hourly", {"last": spell(now - 3 * HOUR)})])
    assert problems(views)["missed"].name == "hourly"
    queue.crons.pause("videos", "hourly", by="ann")
    assert store.notes(definitions.PAUSE)[0].name == pause_name("videos", "hourly")
    assert "missed" not in problems(views)


def test_a_schedule_that_cannot_add_its_task_is_named_with_its_error(queue: Queue, views: Views) -> None:
    last = {"last": spell(queue.store.now() - 3 * HOUR), "error": "payload needs the field 'url'"}
    queue.store.write_notes([Note(PROGRESS, "videos/hourly", last)])
    found = problems(views)
    assert (found["schedule"].level, found["schedule"].name) == ("bad", "hourly")
    assert found["schedule"].what == "schedule hourly of videos adds no task: payload needs the field 'url'"
    assert "missed" not in found


def test_rescues_of_the_last_hour_are_counted(queue: Queue, views: Views) -> None:
    minute = minute_of(datetime.now(UTC) - timedelta(minutes=20))
    queue.store.write_notes([Note(STATS, note_name(minute, "videos", "script", "w"), {"rescued": 3})])
    assert problems(views)["rescued"].count == 3


def test_findings_mask_secrets(queue: Queue, views: Views) -> None:
    queue.pause("videos", by="ann", reason="password=hunter2hunter2")
    assert "hunter2" not in problems(views)["paused"].what


def test_p13_findings_for_one_user_leave_out_other_users_tasks(queue: Queue, views: Views) -> None:
    store, now = queue.store, queue.store.now()
    store.insert([rules.fail(claimed(a_task(name, user_id=name), now), HOPELESS, PLAN, now) for name in ("u1", "u2")])
    store.write_notes(
        [
            Note(WORKER, "w1", {"phases": [], "inboxes": [{"name": "in", "error": "of another user"}]}),
            Note(PROGRESS, "videos/hourly", {"last": spell(now - 3 * HOUR)}),
            Note(PROGRESS, "videos/nightly", {"last": spell(now - 90 * HOUR)}),
        ]
    )
    scoped = Views(queue.for_user("u1"))
    found = problems(scoped)
    assert found["failed"].count == 1
    assert found["missed"].name == "nightly"
    assert "inbox" not in found
    assert scoped.store_findings() == []


def test_the_store_is_examined_quickly_or_thoroughly(queue: Queue, views: Views) -> None:
    quick, thorough = views.store_findings(), views.store_findings(quick=False)
    assert {finding.what for finding in quick} <= {finding.what for finding in thorough}
    assert bool(quick) == isinstance(queue.store, Administrable)


def test_leases_that_are_alive_are_no_finding(queue: Queue, views: Views) -> None:
    queue.store.insert([a_task("runs", run_at=queue.store.now() - HOUR)])
    claim = PhaseClaim(pipeline="videos", phase="script", limit=1, lease_for=timedelta(seconds=30))
    assert len(queue.store.claim(Claim("w1", [claim]))) == 1
    assert "lease" not in problems(views)
