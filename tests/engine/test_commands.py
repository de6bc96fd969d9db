"""Command phases: the input of a program, the outcome of its exit, and that no process of it survives."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from onerow import Pipeline, Retry, Status, Task
from onerow.engine.processes import Exit
from onerow.engine.queue.queue import Queue
from onerow.engine.runners.attempt_process import ended_with_the_worker
from onerow.ports import LogLine
from tests.conformance.stores import ENTRIES, Entry
from tests.engine.conftest import ended, until, working
from tests.engine.processes.kit import PRELUDE, alive, every_tree, noted

PYTHON = sys.executable
QUICK = Retry(3, wait="10ms", jitter=0)


@pytest.fixture(params=[ENTRIES["memory"], ENTRIES["sqlite"]], ids=lambda entry: entry.name)
def entry(request: pytest.FixtureRequest) -> Entry:
    """Two stores only: the conformance suite tests how each store keeps a log."""
    found: Entry = request.param
    return found


@pytest.fixture
def films() -> Pipeline:
    return Pipeline("films")


def script(code: str) -> list[str]:
    return [PYTHON, "-u", "-c", textwrap.dedent(code).replace("{", "{{").replace("}", "}}")]


def run(queue: Queue, pipeline: Pipeline, payload: Any = None, **options: Any) -> Task:
    with working(queue, pipeline):
        return ended(queue, queue.add(pipeline, payload, **options).task_id)


def lines(queue: Queue, task: Task, level: str | None = None) -> list[str]:
    found: list[LogLine] = queue.logs(task.task_id, limit=100_000).lines
    return [line.text for line in found if level in (None, line.level)]


def test_a_program_gets_its_arguments_unchanged_and_without_a_shell(queue: Queue, films: Pipeline) -> None:
    films.command(
        "cut", [*script("import sys, json; print(json.dumps(sys.argv[1:]))"), "{name}", "{x?--x}"], result="last_line"
    )
    nasty = "$(touch /tmp/owned); `id` && 'a' \"b\" *\n한글"
    task = run(queue, films, {"name": nasty, "x": True})
    assert (task.status, task.result) == (Status.COMPLETED, [nasty, "--x"])


def test_the_result_of_an_earlier_phase_can_be_an_argument(queue: Queue, films: Pipeline) -> None:
    films.command("fetch", ["echo", '{{"file": "/a b"}}'], result="last_line")
    films.command("cut", ["echo", "{fetch.file}", "{ctx.attempt}"], result="last_line")
    task = run(queue, films, {})
    assert task.results == {"fetch": {"file": "/a b"}, "cut": "/a b 1"}


def test_a_value_that_would_be_an_option_fails_the_task_permanently(queue: Queue, films: Pipeline) -> None:
    films.command("cut", ["rm", "{name}"])
    task = run(queue, films, {"name": "-rf"})
    assert (task.status, task.error_class, task.attempt) == (Status.FAILED, "permanent", 1)
    assert "taken for an option" in str(task.error)


@pytest.mark.parametrize(
    "code, error_class",
    [(75, "network"), (77, "auth"), (78, "permanent"), (137, "resource"), (3, "unknown"), (4, "limit")],
)
def test_an_exit_code_is_an_error_class(queue: Queue, films: Pipeline, code: int, error_class: str) -> None:
    films.command(
        "cut", ["sh", "-c", 'echo fine; echo "it broke" >&2; exit "$1"', "sh", "{}"], retry=0, exits={4: "limit"}
    )
    task = run(queue, films, code)
    assert (task.status, task.error_class) == (Status.FAILED, error_class)
    assert task.error == f"it broke (cut exited with code {code})"


def test_an_exit_code_can_be_declared_a_success(queue: Queue, films: Pipeline) -> None:
    films.command("cut", ["false"], exits={1: "ok"})
    assert run(queue, films).status is Status.COMPLETED


def test_a_killed_program_is_distinguished_from_one_that_failed(queue: Queue, films: Pipeline) -> None:
    films.command("cut", script("import os; os.kill(os.getpid(), 9)"), retry=0)
    task = run(queue, films)
    assert (task.error_class, "SIGKILL" in str(task.error)) == ("resource", True)


def test_a_missing_program_fails_the_task_permanently(queue: Queue, films: Pipeline) -> None:
    films.command("cut", ["no-such-program-here"])
    task = run(queue, films)
    assert (task.error_class, "PATH" in str(task.error)) == ("permanent", True)


def test_a_program_gets_only_the_declared_environment_variables(
    queue: Queue, films: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANTED", "yes")
    monkeypatch.setenv("UNWANTED_KEY", "canary-of-the-worker")
    films.command(
        "look", script("import os, json; print(json.dumps(dict(os.environ)))"),
        env=["WANTED"], set_env={"NAME": "x-{name}"}, result="last_line",
    )  # fmt: skip
    task = run(queue, films, {"name": "ann"})
    seen = task.result
    assert (seen["WANTED"], seen["NAME"], seen["ONEROW_TASK_ID"], seen["ONEROW_ATTEMPT"]) == (
        "yes", "x-ann", task.task_id, "1",
    )  # fmt: skip
    assert "UNWANTED_KEY" not in seen


def test_folder_process_group_and_niceness_are_those_of_the_phase(
    queue: Queue, films: Pipeline, tmp_path: Path
) -> None:
    look = script("import os, json; print(json.dumps([os.getcwd(), os.nice(0), os.getpgid(0) == os.getpid()]))")
    films.command("look", ["nice", "-n", "5", *look], cwd=tmp_path, result="last_line")
    assert run(queue, films).result == [str(tmp_path), min(19, os.nice(0) + 5), True]


def test_payload_and_results_can_be_read_from_standard_input(queue: Queue, films: Pipeline) -> None:
    films.command("fetch", ["echo", "7"], result="last_line")
    films.command(
        "look", script("import sys, json; print(json.dumps(json.load(sys.stdin)))"), stdin="payload", result="last_line"
    )
    found = run(queue, films, {"secret": ["not", "in", "ps"]}).result
    assert (found["payload"], found["results"]) == ({"secret": ["not", "in", "ps"]}, {"fetch": 7})


def test_a_result_can_be_read_from_a_file(queue: Queue, films: Pipeline) -> None:
    films.command(
        "cut", script("import os; open(os.environ['ONEROW_RESULT_FILE'], 'w').write('{\"a\": [1, \"é\"]}')"), result="file"
    )  # fmt: skip
    films.command("none", ["true"], result="file")
    task = run(queue, films)
    assert task.results == {"cut": {"a": [1, "é"]}}


def test_a_result_file_that_is_not_json_fails_the_task_permanently(queue: Queue, films: Pipeline) -> None:
    films.command("cut", ["sh", "-c", 'echo nonsense > "$ONEROW_RESULT_FILE"'], result="file")
    task = run(queue, films)
    assert (task.error_class, "not JSON" in str(task.error)) == ("permanent", True)


def test_a_result_line_may_be_long_and_without_a_newline(queue: Queue, films: Pipeline) -> None:
    films.command(
        "cut", script("import sys; sys.stdout.write('first\\n' + '\"' + 'x' * 300000 + '\"')"), result="last_line"
    )
    assert run(queue, films).result == "x" * 300_000


def test_progress_is_read_from_the_output_including_a_progress_bar(
    queue: Queue, films: Pipeline, tmp_path: Path
) -> None:
    films.command(
        "cut",
        [*script("""
            import os, sys, time
            for percent in (10, 55):
                sys.stdout.write(f'\\r{percent}% of it'); sys.stdout.flush()
            while not os.path.exists(sys.argv[1]): time.sleep(0.01)
         """), "{go}"],
        progress=r"(?P<percent>\d+)% (?P<note>.*)",
    )  # fmt: skip
    go = tmp_path / "go"
    with working(queue, films):
        task = queue.add(films, {"go": str(go)})
        until(lambda: queue.get(task.task_id).progress == {"done": 55, "total": 100, "note": "of it"})
        go.touch()
        assert lines(queue, ended(queue, task.task_id)) == ["55% of it"]


def test_steps_that_a_program_reports_are_remembered_for_its_next_attempt(queue: Queue, films: Pipeline) -> None:
    films.command(
        "cut",
        [*script("""
            import os, sys
            print(sys.argv[1:], repr(os.environ['ONEROW_STEPS']))
            if '--skip-download' in sys.argv: sys.exit(0)
            print('::step download ok {"file": "/a"}')
            print('::step two words ok')
            print('::step later failed')
            sys.exit(75)
        """), "{ctx.steps.download?--skip-download}"],
        steps=True, retry=QUICK,
    )  # fmt: skip
    task = run(queue, films)
    assert task.status is Status.COMPLETED
    assert {name: record["result"] for name, record in task.steps["cut"].items()} == {
        "download": {"file": "/a"}, "two words": None,
    }  # fmt: skip
    assert lines(queue, task)[-1] == r"['--skip-download'] 'download\ntwo words'"


def test_step_lines_are_parsed_only_if_the_phase_declares_steps(queue: Queue, films: Pipeline) -> None:
    films.command("cut", ["echo", "::step download ok"])
    assert run(queue, films).steps == {}


def test_a_step_is_remembered_even_if_the_program_is_killed_right_after(queue: Queue, films: Pipeline) -> None:
    films.command("cut", script("import os; print('::step one ok 1'); os.kill(os.getpid(), 9)"), steps=True, retry=0)
    task = run(queue, films)
    assert (task.status, task.steps["cut"]["one"]["result"]) == (Status.FAILED, 1)


def test_exceeding_the_memory_limit_or_a_limit_of_cpu_time_is_a_resource_error(queue: Queue, films: Pipeline) -> None:
    films.command("eat", script("x = b'x' * 200_000_000; input()"), memory_limit="100MB", retry=0)
    spin = Pipeline("spin")
    limited = "import resource; resource.setrlimit(resource.RLIMIT_CPU, (1, 2))"
    spin.command("spin", script(f"{limited}\nwhile True: pass"), retry=0)
    with working(queue, films, spin):
        eaten = ended(queue, queue.add(films).task_id)
        spun = ended(queue, queue.add(spin).task_id)
    assert (eaten.error_class, eaten.error) == ("resource", "eat used more than 100 MB of memory (its memory_limit)")
    assert (spun.error_class, "CPU time" in str(spun.error)) == ("resource", True)


# ── no process survives (P11) ─────────────────────────────────────────────────────────────────────────────────────


def growing(code: str, folder: Path) -> list[str]:
    """A program that starts a process tree, and ends when the file `go` appears."""
    prelude = f"{PRELUDE}\nos.chdir({str(folder)!r})\n"
    whole = f"{prelude}{code}\nnoted('grandchild'); note('child'); noted('go')\n"
    return [PYTHON, "-c", *(text.replace("{", "{{").replace("}", "}}") for text in (whole, prelude))]


linux = pytest.mark.skipif(sys.platform != "linux", reason="whole trees can be ended on Linux only")


@linux
@every_tree
@pytest.mark.parametrize("entry", [ENTRIES["sqlite"]], ids=["sqlite"])
@pytest.mark.parametrize("how", ["end", "cancel", "timeout"])
def test_no_process_of_a_command_survives_its_task(
    queue: Queue, films: Pipeline, tmp_path: Path, tree: str, how: str
) -> None:
    films.command("cut", growing(tree, tmp_path), timeout="3s" if how == "timeout" else "60s", retry=0)
    with working(queue, films, grace=0.5):
        task = queue.add(films)
        pids = [noted(tmp_path, "child"), noted(tmp_path, "grandchild")]
        if how == "end":
            (tmp_path / "go").touch()
        elif how == "cancel":
            queue.cancel(task.task_id)
        found = ended(queue, task.task_id)
        assert not any(alive(pid) for pid in pids)
    expected = {"end": Status.COMPLETED, "cancel": Status.CANCELLED, "timeout": Status.FAILED}
    assert found.status is expected[how]


@linux
def test_a_cancelled_program_that_exits_with_0_is_still_cancelled(queue: Queue, films: Pipeline) -> None:
    films.command(
        "cut", script("""
            import signal, sys, time
            signal.signal(signal.SIGTERM, lambda *_: (print('bye'), sys.exit(0)))
            print('ready')
            while True: time.sleep(60)
        """), result="last_line",
    )  # fmt: skip
    with working(queue, films):
        task = queue.add(films)
        until(lambda: lines(queue, task) == ["ready"])
        queue.cancel(task.task_id)
        found = ended(queue, task.task_id)
    assert (found.status, found.results, lines(queue, found)) == (Status.CANCELLED, {}, ["ready", "bye"])


@linux
def test_a_drained_worker_hands_its_commands_back(queue: Queue, films: Pipeline) -> None:
    films.command("cut", script("import time; print('ready'); time.sleep(600)"))
    with working(queue, films, grace=0.2):
        task = queue.add(films)
        until(lambda: lines(queue, task) == ["ready"])
    found = queue.get(task.task_id)
    assert (found.status, found.attempt, found.retry_count) == (Status.WAITING, 0, 0)


@pytest.mark.parametrize("code, handed_back", [(255, True), (0, False)])
def test_a_program_may_end_by_the_workers_sigterm_before_the_worker_knows_of_it(code: int, handed_back: bool) -> None:
    signalled = False

    def stop_follows(seconds: float) -> bool:
        nonlocal signalled
        signalled = True
        return True

    in_flight = SimpleNamespace(stop_asked=stop_follows, was_signalled=lambda: signalled)
    attempt: Any = SimpleNamespace(in_flight=in_flight)
    assert ended_with_the_worker(attempt, Exit(code=code, signal=None, stopped=False)) is handed_back


@linux
def test_a_command_whose_lease_is_lost_is_stopped_and_writes_nothing(
    queue: Queue, films: Pipeline, tmp_path: Path
) -> None:
    from onerow.core import rules
    from onerow.ports import Move, Swapped

    films.command("cut", growing("fork(grandchild)", tmp_path), lease="1s", retry=0)
    with working(queue, films):
        task = queue.add(films)
        pids = [noted(tmp_path, "child"), noted(tmp_path, "grandchild")]

        def taken_away() -> bool:
            row = queue.get(task.task_id)
            taken = rules.cancel(rules.rescue(row, queue.store.now()), queue.store.now())
            return isinstance(queue.store.swap([Move(row, taken)])[0], Swapped)

        until(taken_away)
        until(lambda: not any(alive(pid) for pid in pids))
        (tmp_path / "go").touch()
    assert queue.get(task.task_id).status is Status.CANCELLED


WORKER = """
import sys
from onerow import Pipeline, Queue, Worker
films = Pipeline("films")
films.command("cut", {argv!r}, retry=0)
Worker(Queue({url!r}), [films], interval=0.2).run()
"""


@linux
@every_tree
def test_no_process_of_a_command_survives_a_killed_worker(sqlite_url: str, tmp_path: Path, tree: str) -> None:
    from onerow.wiring import Queue

    argv = growing(tree, tmp_path)
    films = Pipeline("films")
    films.command("cut", argv, retry=0)
    queue = Queue(sqlite_url)
    task = queue.add(films)
    worker = subprocess.Popen([PYTHON, "-c", WORKER.format(argv=argv, url=sqlite_url)], start_new_session=True)
    try:
        pids = [noted(tmp_path, "child"), noted(tmp_path, "grandchild")]
        os.kill(worker.pid, signal.SIGKILL)
        worker.wait()
        until(lambda: not any(alive(pid) for pid in pids))
    finally:
        worker.kill()
        worker.wait()
    (tmp_path / "go").touch()
    with working(queue, films):
        found = ended(queue, task.task_id)
    assert (found.status, found.rescue_count, found.crash_count) == (Status.COMPLETED, 1, 0)
    queue.close()
