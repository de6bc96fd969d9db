"""Every operation: its key, the dialog with the number of tasks and the command, and the stored result."""

import shlex

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from onerow.cli.main import main
from onerow.core.status import Status
from onerow.engine.queue.bulk import Selection
from onerow.engine.queue.queue import Queue
from onerow.engine.views import Views
from tests.samples import a_task
from tests.tui.conftest import Session, opened, run

TASK_OPERATIONS = ("retry", "replay", "cancel", "finish", "signal", "reschedule", "set-priority")


async def open_task(session: Session, task_id: str) -> None:
    await session.press("colon")
    await session.type(f"task {task_id}")
    await session.press("enter")
    await session.until(lambda: session.monitor.trail.here.page == "task")
    await session.sees("attempts", task_id)


def test_retry_of_one_task_needs_one_confirmation_and_shows_its_command(queue: Queue) -> None:
    async def test() -> None:
        async with opened(queue) as session:
            await open_task(session, "failed")
            await session.press("r")
            await session.sees("Retry task failed?", "$ onerow retry failed")
            await session.press("y")
            await session.until(lambda: queue.get("failed").status is Status.WAITING)
            await session.sees("retry: 1 task")
            assert queue.get("failed").history[-1].by == "ann"

    run(test)


def test_escape_in_the_dialog_changes_nothing(queue: Queue) -> None:
    async def test() -> None:
        async with opened(queue) as session:
            before = queue.get("failed")
            await open_task(session, "failed")
            for refuse in ("escape", "n"):
                await session.press("C")
                await session.sees("Cancel task failed?")
                await session.press(refuse)
                await session.until(lambda: "Cancel task failed?" not in session.text)
            assert queue.get("failed") == before

    run(test)


def test_enter_alone_does_not_confirm_a_final_operation(queue: Queue) -> None:
    async def test() -> None:
        async with opened(queue) as session:
            await open_task(session, "waits")
            await session.press("C")
            await session.sees("Cancel task waits?")
            await session.press("enter")
            await session.until(lambda: "Cancel task waits?" not in session.text)
            assert queue.get("waits").status is Status.WAITING

    run(test)


@pytest.mark.parametrize(
    "task_id,key,question,typed,command,status",
    [
        ("waits", "C", "Cancel task waits?", {}, "onerow cancel waits", Status.CANCELLED),
        ("done", "R", "Replay", {"phase": "script"}, "onerow replay done --phase script", Status.WAITING),
        ("failed", "F", "Mark as completed", {"result": "7"}, "onerow finish failed --result 7", Status.COMPLETED),
    ],
)
def test_final_operations_on_one_task(
    queue: Queue, task_id: str, key: str, question: str, typed: dict[str, str], command: str, status: Status
) -> None:
    async def test() -> None:
        async with opened(queue) as session:
            await open_task(session, task_id)
            await session.press(key)
            await session.sees(question)
            for name, value in typed.items():
                session.monitor.screen.query_one(f"#field-{name}").focus()
                await session.type(value)
            await session.sees(f"$ {command}")
            await session.press("ctrl+s")
            await session.until(lambda: queue.get(task_id).status is status)

    run(test)


def test_reschedule_priority_and_signal(queue: Queue) -> None:
    async def test() -> None:
        async with opened(queue) as session:
            await open_task(session, "later")
            await session.press("s")
            await session.sees("Reschedule task later?", "$ onerow reschedule later --run-at now")
            await session.press("enter")
            await session.until(lambda: queue.get("later").run_at <= queue.store.now())
            await session.press("P")
            await session.sees("Set the priority of task later?")
            await session.press("backspace")
            await session.type("-500")
            await session.sees("a priority is a whole number from -100 to 100")
            await session.press("enter")
            assert queue.get("later").priority == 0
            await session.press("backspace")
            await session.sees("$ onerow set-priority later --priority -50")
            await session.press("enter")
            await session.until(lambda: queue.get("later").priority == -50)
            await open_task(session, "parked")
            await session.press("m")
            await session.sees("Send a signal to task parked?", "$ onerow signal parked images.ready")
            session.monitor.screen.query_one("#field-payload").focus()
            await session.type('["a.png"')
            await session.sees("this is not JSON")
            await session.type("]")
            await session.press("enter")
            await session.until(lambda: not queue.get("parked").parked)

    run(test)


def test_every_operation_on_tasks_has_its_key_in_the_list(queue: Queue) -> None:
    async def test() -> None:
        async with opened(queue, query="id:waits") as session:
            await session.sees("Tides")
            for key, operation in zip("rRCFmsP", TASK_OPERATIONS, strict=True):
                await session.press(key)
                await session.sees(f"─ {operation} ─", f"$ onerow {operation} waits")
                await session.press("escape")

    run(test)


def test_marked_tasks_are_cancelled_together_with_their_exact_number(queue: Queue) -> None:
    async def test() -> None:
        async with opened(queue) as session:
            await session.press("2")
            await session.sees("Tides")
            await session.press("space", "space")
            await session.sees("2 marked")
            await session.press("C")
            await session.sees("Cancel 2 tasks?", "onerow cancel later waits")
            await session.press("y")
            await session.until(lambda: queue.get("waits").status is Status.CANCELLED)
            await session.until(lambda: queue.get("later").status is Status.CANCELLED)
            assert queue.get("again").status is Status.WAITING

    run(test)


def test_all_matching_tasks_are_meant_by_the_query_of_the_page(queue: Queue) -> None:

    async def test() -> None:
        async with opened(queue, query="phase:script") as session:
            await session.sees("Tides")
            await session.press("asterisk")
            await session.sees("all matching marked")
            await session.press("C")
            await session.sees("Cancel 3 tasks?", "$ onerow cancel --where phase:script")
            words = shlex.split("onerow cancel --where phase:script")[1:]
            shown = CliRunner().invoke(main, [*words, "--dry-run", "--store", queue.url]).output
            assert "would cancel 3 tasks" in shown
            await session.press("y")
            for task_id in ("waits", "again", "failed"):
                await session.until(lambda task_id=task_id: queue.get(task_id).status is Status.CANCELLED)  # type: ignore[misc]

    run(test)


def test_a_group_of_failures_is_retried_at_a_pace_and_the_end_of_the_monitor_asks_first(queue: Queue) -> None:
    queue.store.insert([replace(queue.get("failed"), task_id=f"failed-{number}") for number in range(3)])

    async def test() -> None:
        async with opened(queue) as session:
            await session.press("3")
            await session.sees("for example")
            await session.press("r")
            await session.sees("Retry 4 tasks?", "$ onerow retry --where 'status:failed pipeline:videos phase:script")
            await session.sees("it stops when this monitor ends")
            session.monitor.screen.query_one("#field-pace").focus()
            await session.type("1/h")
            await session.sees("--pace 1/h")
            await session.press("enter")
            await session.sees("▶ retry 1 of 4")
            for answer in ("n", "enter"):  # Enter alone refuses
                await session.press("q")
                await session.sees("Quit? It ends before it is done: retry 1 of 4.")
                await session.press(answer)
                await session.until(lambda: not session.monitor.screen.is_modal)
            await session.press("q", "y")
            await session.until(lambda: not session.monitor.is_running)

    run(test)
    assert [line.count for line in queue.count("status:failed")] == [3]


def test_an_operation_on_failures_means_those_of_the_pages_query_and_of_the_cause(queue: Queue) -> None:
    failed = queue.get("failed")
    queue.store.insert(
        [
            replace(failed, task_id="other-user", user_id="u2"),
            replace(failed, task_id="other-cause", logs_json=failed.logs_json.replace('"what"', '"where":"a.py:1","what"')),
        ]
    )  # fmt: skip

    async def test() -> None:
        async with opened(queue) as session:
            for query, question in (
                ("user:u2", "$ onerow retry --where 'user:u2 status:failed"),
                ("user:u1 or user:u3", "$ onerow retry other-cause"),
            ):
                await session.press("colon")
                await session.type(f"failures {query}")
                await session.press("enter")
                await session.sees("for example")
                await session.press("end", "r")
                await session.sees(question)
                await session.press("escape")

    run(test)


def test_a_signal_goes_to_the_marked_tasks(queue: Queue) -> None:
    async def test() -> None:
        async with opened(queue, query="status:parked or id:later") as session:
            await session.sees("images.ready")
            await session.press("space", "space", "home", "m")
            await session.sees("Send a signal to 2 tasks?")

    run(test)


def test_an_operation_that_fails_in_a_way_that_was_not_foreseen_says_so(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by the driver")

    async def test() -> None:
        async with opened(queue) as session:
            await open_task(session, "failed")
            monkeypatch.setattr(Selection, "retry", broken)
            await session.press("r", "y")
            await session.sees("retry failed, ZeroDivisionError: by the driver")

    run(test)


def test_a_read_only_monitor_changes_nothing(queue: Queue) -> None:
    async def test() -> None:
        async with opened(queue, read_only=True) as session:
            before = queue.get("failed")
            await session.sees("read-only")
            await open_task(session, "failed")
            for key in ("r", "C", "R", "F", "m", "s", "P", "n"):
                await session.press(key)
                assert not session.monitor.screen.is_modal, key
            assert queue.get("failed") == before
            await session.press("1", "p", "L")
            assert not session.monitor.screen.is_modal

    run(test)


def test_a_refused_operation_says_why(queue: Queue) -> None:
    async def test() -> None:
        async with opened(queue) as session:
            await open_task(session, "done")
            await session.press("r")
            await session.press("y")
            await session.sees("1 refused")

    run(test)


def test_main_is_the_command_line_that_the_dialogs_name() -> None:
    assert {*TASK_OPERATIONS, "drain", "pause", "resume", "limit", "add"} <= set(main.list_commands(None))  # type: ignore[arg-type]


def test_tab_and_arrows_go_through_the_fields_of_a_dialog(queue: Queue) -> None:
    async def test() -> None:
        async with opened(queue) as session:
            await session.press("2", "P")
            await session.sees("Set the priority of")
            await session.press("tab")
            await session.type("urgent")
            await session.sees("--note urgent")
            await session.press("up", "ctrl+u")
            await session.type("5")
            await session.sees("--priority 5 --note urgent")
            await session.press("escape", "1", "p")
            await session.press("tab")  # from the last button to the first field
            await session.type("lunch")
            await session.sees("--reason lunch")

    run(test)


def test_a_signal_goes_to_all_marked_tasks_and_then_none_is_marked(queue: Queue) -> None:
    awaiting = {"phase": "image", "awaiting": "signal:images.ready"}
    queue.store.insert([a_task(name, title=name, **awaiting) for name in ("one", "two")])

    async def test() -> None:
        async with opened(queue) as session:
            await session.press("2", "slash")
            await session.type("status:parked")
            await session.press("enter")
            await session.sees("status:parked", "one", "two", "1 to 3")
            await session.press("asterisk", "m")
            await session.sees("Send a signal to 3 tasks?", "$ onerow signal ID images.ready")
            await session.press("ctrl+s")
            await session.sees("signal: 3 tasks")
            assert all(Views(queue).detail(name).signals for name in ("one", "two", "parked"))
            assert "marked" not in session.text

    run(test)
