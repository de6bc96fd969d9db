"""Exceptions whose own methods raise: their task fails; the worker and all other tasks continue."""

import asyncio
from collections.abc import Callable

import pytest

from onerow import Pipeline, Queue, Retry, Status
from onerow.engine.events.events import RoleFailed
from tests.engine.kit import ON_SQLITE, ended, until, working
from tests.engine.worker import hostile_app


def _phase(pipeline: Pipeline, runner: str) -> None:
    match runner:
        case "thread":
            pipeline.phase(name="act", retry=Retry(0))(hostile_app.act)
        case "async":
            pipeline.phase(name="act", retry=Retry(0))(hostile_app.act_async)
        case "isolated":
            pipeline.phase(name="act", retry=Retry(0), isolate="process")(hostile_app.act)
        case "isolated async":
            pipeline.phase(name="act", retry=Retry(0), isolate="process")(hostile_app.act_async)
        case "batch":
            pipeline.batch("act", size=1, within="1ms", retry=Retry(0))(hostile_app.act_on_all)
        case "async batch":
            pipeline.batch("act", size=1, within="1ms", retry=Retry(0))(hostile_app.act_on_all_async)


@ON_SQLITE
@pytest.mark.parametrize("runner", ["thread", "async", "isolated", "isolated async", "batch", "async batch"])
def test_an_exception_whose_methods_raise_fails_its_task_and_the_next_one_runs(queue: Queue, runner: str) -> None:
    pipeline = Pipeline("hostile")
    _phase(pipeline, runner)
    errors: list[object] = []
    queue.on(RoleFailed, errors.append)
    # An interpreter takes time to start: the isolated runners get only exceptions that take different code paths.
    isolated = ["StrRaises", "ClassRaises", "ExitsWhenRead", "SnoozeWithoutTime"]
    names = isolated if runner.startswith("isolated") else [*hostile_app.ERRORS]
    tasks = queue.add_many(pipeline, [*names, "good"])
    with working(queue, pipeline, concurrency=2):
        found = {name: ended(queue, task) for name, task in zip([*names, "good"], tasks, strict=True)}
    assert found.pop("good").status is Status.COMPLETED
    for name, task in found.items():
        assert (name, task.status, task.crash_count) == (name, Status.FAILED, 0)
        assert task.error
    assert errors == []


def test_a_payload_whose_validation_raises_anything_fails_its_item_of_a_batch(queue: Queue) -> None:
    pipeline = Pipeline("hostile")
    pipeline.batch("read", size=1, within="1ms", retry=Retry(0))(hostile_app.read)
    queue.publish(pipeline)
    tasks = Queue(queue.store).add_many("hostile", [1, 2])
    with working(queue, pipeline, concurrency=1):
        assert {ended(queue, task).status for task in tasks} == {Status.FAILED}


def _exit() -> None:
    raise SystemExit(2)


@pytest.mark.parametrize("how", ["subtask", "callback"])
def test_an_exit_in_a_task_or_callback_of_a_handler_does_not_end_the_event_loop(queue: Queue, how: str) -> None:
    pipeline = Pipeline("exits")

    async def exits() -> None:
        _exit()

    async def start_exit() -> None:
        started: dict[str, Callable[[], object]] = {
            "subtask": lambda: asyncio.create_task(exits()),
            "callback": lambda: asyncio.get_running_loop().call_soon(_exit),
        }
        kept = started[how]()
        await asyncio.sleep(0.05)
        del kept

    @pipeline.phase(timeout="60s", retry=Retry(0))
    async def run(job: str) -> str:
        if job == "exit":
            await start_exit()
        return job

    first = queue.add(pipeline, "exit")
    with working(queue, pipeline):
        until(lambda: queue.get(first.task_id).ended)
        assert ended(queue, queue.add(pipeline, "good")).status is Status.COMPLETED
