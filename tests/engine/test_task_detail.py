"""The page of a task: attempts with tracebacks, steps, signals, relatives, history and links."""

from datetime import timedelta

import pytest

from onerow import Context, Permanent, Pipeline, Queue, Retry
from onerow.core.errors import UnknownName
from onerow.engine.control import definitions
from onerow.engine.views import Views
from onerow.engine.views.tracebacks import split_trace
from tests.engine.kit import until, work, working
from tests.samples import a_task


def studio() -> Pipeline:
    pipeline = Pipeline("studio", title="{topic}")

    @pipeline.phase(retry=Retry(1, wait="10ms"))
    def script(job: dict[str, str], ctx: Context) -> dict[str, object]:
        ctx.step("outline", lambda: {"chapters": 3, "token": "secret-token-value"})
        if ctx.attempt == 1:
            raise ConnectionError("refused")
        return {"file": "/srv/videos/1.mp4", "pages": ["https://example.org/1", "words only"], "key": "s3://b/k.mp4"}

    pipeline.wait_for("image", signal="images.ready", timeout="1d")

    @pipeline.phase
    def video(job: dict[str, str], ctx: Context) -> None:
        raise Permanent("no such encoder")

    return pipeline


def test_the_page_of_a_task_has_attempts_newest_first_with_tracebacks(queue: Queue) -> None:
    pipeline = studio()
    task = queue.add(pipeline, {"topic": "조수", "password": "hunter2hunter2"}, task_id="t")
    with working(queue, pipeline):
        until(lambda: queue.get("t").awaiting == "signal:images.ready", "parked")
        parked = Views(queue).detail("t")
        queue.signal("t", "images.ready", {"n": 1}, by="api")
        until(lambda: queue.get("t").ended, "the end")
    assert parked.awaited is not None
    assert (parked.awaited.name, parked.awaited.phase) == ("images.ready", "image")
    assert parked.awaited.deadline is not None
    assert (parked.segments[-1].kind, parked.segments[-1].open) == ("signal", True)

    detail = Views(queue).detail("t")
    assert [(each.phase, each.attempt, each.outcome) for each in detail.attempts] == [
        ("video", 1, "failed"),
        ("script", 2, "advanced"),
        ("script", 1, "failed"),
    ]
    last, _, first = detail.attempts
    assert (last.error_class, last.message) == ("permanent", "no such encoder")
    assert (first.exception, first.message, bool(first.worker)) == ("ConnectionError", "ConnectionError: refused", True)
    assert first.traceback is not None
    assert first.traceback.parts[-1].text.startswith("ConnectionError: refused")
    frames = [part for part in first.traceback.parts if part.file]
    assert [part.function for part in frames if part.mine] == ["script"]
    assert any(not part.mine for part in frames) or len(frames) == 1
    assert last.traceback is not None
    assert "no such encoder" in last.traceback.text
    assert [segment.outcome for segment in detail.segments if segment.kind == "running"] == [
        "failed",
        "advanced",
        "failed",
    ]
    assert [span.attempts for span in detail.spans] == [2, 0, 1]

    (step,) = [step for step in detail.steps if step.kind == "step"]
    assert (step.phase, step.name, step.result) == ("script", "outline", {"chapters": 3, "token": "***"})
    (signal,) = detail.signals
    assert (signal.name, signal.by, signal.taken_at is not None) == ("images.ready", "api", True)
    assert [(link.where, link.kind, link.opens) for link in detail.links] == [
        ("script.file", "path", False),
        ("script.pages.0", "url", True),
        ("script.key", "url", False),
    ]
    assert [moment.what for moment in detail.history][-2:] == ["failed", "added"]
    assert ("signal", "api") in [(moment.what, moment.by) for moment in detail.history]
    assert detail.view.task["payload"] == {"topic": "조수", "password": "***"}
    assert (detail.parent, detail.children, task.task_id) == (None, None, "t")


def test_relatives_of_a_task(queue: Queue) -> None:
    store, now = queue.store, queue.store.now()
    store.insert([a_task("p", created_at=now, user_id="u1")])
    store.insert([a_task(f"c{number}", parent_id="p", created_at=now, title="token=abcdefgh") for number in range(5)])
    store.insert([a_task("mine", parent_id="p", created_at=now, user_id="u1")])
    views = Views(queue)
    parent = views.detail("p", children=3)
    assert parent.children is not None
    assert (len(parent.children.tasks), parent.children.next is not None) == (3, True)
    assert sum(line.count for line in parent.children_counts) == 6
    child = views.detail("c1")
    assert child.parent is not None
    assert (child.parent.task_id, child.children) == ("p", None)
    scoped = Views(queue.for_user("u1")).detail("p")
    assert scoped.children is not None
    assert [row.task_id for row in scoped.children.tasks] == ["mine"]
    with pytest.raises(UnknownName):
        Views(queue.for_user("u1")).detail("c1")
    assert "abcdefgh" not in str(views.detail("c2").view.task["title"])


def test_a_task_whose_row_cant_be_read_has_a_page(queue: Queue) -> None:
    now = queue.store.now()
    queue.store.insert([a_task("odd", steps_json="[]", created_at=now, run_at=now + timedelta(hours=1))])
    detail = Views(queue).detail("odd")
    assert (detail.steps, detail.signals, detail.attempts) == ([], [], [])


def test_a_pause_is_part_of_the_page(queue: Queue) -> None:
    pipeline = studio()
    queue.add(pipeline, {"topic": "a"}, task_id="t")
    definitions.publish(queue.store, [pipeline.plan])
    queue.pause("studio", by="ann", reason="the encoder is broken")
    detail = Views(queue).detail("t")
    assert detail.paused is not None
    assert detail.paused.reason == "the encoder is broken"


TRACE = """Traceback (most recent call last):
  File "/srv/app/studio.py", line 12, in script
    return ask(
           ^^^^
  … 2 frames of onerow
  File "/usr/lib/python3.11/http/client.py", line 9, in ask
    raise ConnectionError("refused")
ConnectionError: refused
two lines

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/srv/app/studio.py", line 30, in <module>
ValueError: 값"""


def test_a_traceback_is_split_into_frames_and_keeps_every_line() -> None:
    found = split_trace(TRACE)
    assert "\n".join(part.text for part in found.parts) == TRACE
    assert [(part.file, part.line, part.mine) for part in found.parts if part.file] == [
        ("/srv/app/studio.py", 12, True),
        ("/usr/lib/python3.11/http/client.py", 9, False),
        ("/srv/app/studio.py", 30, True),
    ]
    short = "\n".join(part.text for part in found.parts if part.mine)
    assert "client.py" not in short
    assert "           ^^^^\n  … 2 frames of onerow\nConnectionError: refused" in short
    assert "ConnectionError: refused\ntwo lines" in short
    assert [part.text for part in split_trace("").parts] == [""]


def test_an_exception_group_is_split_too(queue: Queue) -> None:
    pipeline = Pipeline("groups")

    @pipeline.phase
    def script(job: object) -> None:
        raise ExceptionGroup("several", [Permanent("one"), Permanent("two")])

    queue.add(pipeline, {}, task_id="t")
    work(queue, pipeline)
    (attempt,) = Views(queue).detail("t").attempts
    assert attempt.traceback is not None
    assert [part.function for part in attempt.traceback.parts if part.file and part.mine] == ["script"]
