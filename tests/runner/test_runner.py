"""The runner of these tests: a timeout is one failure, a second run decides, and two runs are alike."""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests.runner.record import Record
from tests.servers.process import free_port

ROOT = Path(__file__).parents[2]


class Suite:
    """A folder of test files with this project's conftest, run in a subprocess."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
        (folder / "conftest.py").write_text(
            'pytest_plugins = [f"tests.runner.{name}" for name in ("limits", "record", "schedule", "seed")]\n'
        )

    def write(self, name: str, content: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(content), encoding="utf-8")
        return path

    def start(self, *arguments: str, load: float = 9.0, program: str = "tests.runner") -> "subprocess.Popen[str]":
        # The real load is not the test's: a stand-in of os.getloadavg gives it.
        self.write("sitecustomize.py", f"import os; os.getloadavg = lambda: ({load}, 0.0, 0.0)")
        # This run has a runner, a seed and worker processes of its own.
        of_this_run = ("PYTEST_", "COV_", "ONEROW_TEST_", "PYTHONHASHSEED")
        outside = {name: value for name, value in os.environ.items() if not name.startswith(of_this_run)}
        return subprocess.Popen(
            [sys.executable, "-m", program, "-p", "no:cacheprovider", "--rootdir=.", *arguments],
            cwd=self.folder,
            env=outside
            | {
                "PYTHONPATH": f"{self.folder}{os.pathsep}{ROOT}",
                # The other plugins that are installed take two seconds to import, in each process.
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
                "PYTEST_PLUGINS": "xdist.plugin,_hypothesis_pytestplugin,pytest_timeout",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str, load: float = 9.0, program: str = "tests.runner") -> tuple[int, str]:
        process = self.start(*arguments, load=load, program=program)
        output, _ = process.communicate()
        return process.returncode, output


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    return Suite(tmp_path)


HANGING = """
    import time
    import pytest
    from hypothesis import given, strategies as st

    def test_call():
        time.sleep(600)

    @pytest.fixture
    def slow():
        time.sleep(600)

    def test_set_up(slow):
        pass

    @given(st.integers())
    def test_example(number):
        time.sleep(600)

    @pytest.fixture
    def slow_to_end():
        yield
        time.sleep(600)

    def test_teardown(slow_to_end):
        pass

    def test_passes():
        pass
"""


def test_a_timeout_in_any_part_of_a_test_is_one_failure_and_the_run_continues(suite: Suite) -> None:
    suite.write("test_hanging.py", HANGING)

    record = suite.folder / "record"
    code, output = suite.run("-n2", "--timeout=1", f"--record={record}", program="pytest")

    assert code == 1, output
    assert re.search("2 failed, 2 passed, .*2 errors in ", output), output  # a failed fixture is an error
    failures = Record.read(record).failures.values()
    assert {failure.error.rpartition(": ")[2] for failure in failures} == {"took longer than 1 s"}
    failed = {failure.test.rpartition("::")[2] for failure in failures}
    assert failed == {"test_call", "test_set_up", "test_example", "test_teardown"}
    assert "INTERNALERROR" not in output
    assert "Thread MainThread:" in output  # the stacks


def test_a_test_that_cannot_be_interrupted_costs_its_process_and_the_run_continues(suite: Suite) -> None:
    suite.write(
        "test_stuck.py",
        """
        import ctypes, signal
        import pytest

        @pytest.mark.parametrize("number", range(8))
        def test_passes(number):
            pass

        @pytest.mark.xdist_group("group")
        @pytest.mark.parametrize("number", range(4))
        def test_of_a_group(number):
            if number == 1:
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
                ctypes.PyDLL(None).sleep(600)  # holds the GIL
        """,
    )

    code, output = suite.run("-n1", "--dist=loadgroup", "--timeout=1")

    assert code == 1, output
    assert output.splitlines()[-1] == "11 passed, 1 failed, 0 skipped"
    assert "failed twice: test_stuck.py::test_of_a_group[1] (" in output
    assert 'test_stuck.py", line 14 in test_of_a_group' in output  # the stack


def test_the_tests_of_a_group_run_in_one_process(suite: Suite) -> None:
    suite.write(
        "test_groups.py",
        """
        import os
        import pytest

        @pytest.mark.parametrize("number", range(12))
        @pytest.mark.parametrize("group", [pytest.param(g, marks=pytest.mark.xdist_group(g)) for g in "ab"])
        def test_of_a_group(group, number):
            with open(group, "a") as file:
                print(os.getpid(), file=file)
        """,
    )

    code, output = suite.run("-n2", "--dist=loadgroup")

    assert code == 0, output
    processes = [set((suite.folder / group).read_text().split()) for group in "ab"]
    assert [len(found) for found in processes] == [1, 1]
    assert processes[0] != processes[1]


def test_a_warning_of_the_test_runner_is_no_failure(suite: Suite) -> None:
    suite.write(
        "test_warnings.py",
        """
        import warnings
        import pluggy, pytest

        @pytest.mark.parametrize("kind", [pluggy.PluggyTeardownRaisedWarning, pytest.PytestWarning])
        def test_of_the_runner(kind):
            warnings.warn("busy", kind)

        def test_of_the_project():
            warnings.warn("old", DeprecationWarning)
        """,
    )

    code, output = suite.run("-n0")

    assert code == 1
    assert output.splitlines()[-1] == "2 passed, 1 failed, 0 skipped"


# Fails in its first run only.
ONCE = """
    import pathlib
    import pytest

    @pytest.mark.parametrize("number", range({tests}))
    {marks}
    def test_once(number):
        seen = pathlib.Path(__file__).with_name(f"seen-{{number}}")
        if not seen.exists():
            seen.touch()
            raise RuntimeError("first time")
"""


def test_a_test_that_passes_the_second_time_is_unstable_and_the_run_is_green(suite: Suite) -> None:
    suite.write("test_once.py", ONCE.format(tests=2, marks=""))

    code, output = suite.run("-n2", load=1.0)

    assert code == 0, output
    for number in range(2):
        assert (
            f"unstable: test_once.py::test_once[{number}] (first error, at load 1.0: RuntimeError: first time)"
            in output
        )
    assert output.splitlines()[-1] == "2 passed, 0 failed, 0 skipped"


@pytest.mark.parametrize("load, code", [(3.9, 1), (4.1, 0)])
def test_the_first_failure_of_a_promise_counts_unless_the_machine_was_busy(
    suite: Suite, load: float, code: int
) -> None:
    suite.write("test_once.py", ONCE.format(tests=1, marks='@pytest.mark.promise("P2", "P9")'))

    found, output = suite.run("-n2", load=load)

    assert found == code, output
    assert ("failed once, and its first result counts: test_once.py::test_once[0]" in output) is (code == 1)


def test_a_promise_about_time_gets_a_second_chance(suite: Suite) -> None:
    suite.write("test_once.py", ONCE.format(tests=1, marks='@pytest.mark.promise("P9")'))
    code, output = suite.run("-n2", load=1.0)
    assert code == 0, output


def test_the_first_result_of_the_conformance_suite_counts(tmp_path: Path) -> None:
    record = tmp_path / "record"
    test = "tests/conformance/test_swap.py"
    subprocess.run(
        [sys.executable, "-m", "pytest", "-n0", "-k", "memory", test, f"--record={record}"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    found = Record.read(record)
    assert found.outcomes
    assert found.first_result_counts == set(found.outcomes)


def test_more_than_twenty_failures_are_not_repeated(suite: Suite) -> None:
    suite.write("test_once.py", ONCE.format(tests=21, marks=""))

    code, output = suite.run("-n2")

    assert code == 1
    assert "21 tests failed: more than 20, so none is repeated" in output
    assert output.splitlines()[-1] == "0 passed, 21 failed, 0 skipped"


def test_a_file_that_cannot_be_imported_is_no_unstable_test(suite: Suite) -> None:
    suite.write("test_broken.py", "import no_such_module")
    suite.write("test_once.py", ONCE.format(tests=1, marks=""))

    code, output = suite.run("-n2")

    assert code != 0
    assert "no_such_module" in output
    assert "unstable" not in output


def test_a_terminated_run_names_the_tests_that_were_running(suite: Suite) -> None:
    started = suite.folder / "started"
    suite.write(
        "test_long.py",
        f"""
        import pathlib, time

        def test_long():
            pathlib.Path({str(started)!r}).touch()
            time.sleep(600)
        """,
    )

    process = suite.start("-n2")
    while not started.exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate()

    assert process.returncode == 128 + signal.SIGTERM
    assert "ended by SIGTERM while these tests ran:\n  test_long.py::test_long\n" in output


DRAWS = """
    import json, pathlib, random
    from hypothesis import given, strategies as st
    from tests.runner.seeded import new_name, seeded

    found = []

    @given(st.integers())
    def test_draws(number):
        found.append(number)

    def test_writes():
        drawn = [found, new_name("n"), seeded("x").random(), random.random(), hash("text")]
        pathlib.Path(__file__).with_name("drawn").write_text(json.dumps(drawn))
"""


def test_two_runs_draw_the_same_and_a_random_run_draws_anew(suite: Suite) -> None:
    suite.write("test_draws.py", DRAWS)

    def drawn(*arguments: str) -> list[object]:
        code, output = suite.run("-n0", *arguments)
        assert code == 0, output
        values: list[object] = json.loads((suite.folder / "drawn").read_text())
        return values

    first, second, other = drawn(), drawn(), drawn("--random")
    assert first == second
    assert all(one != another for one, another in zip(first, other, strict=True))


def test_the_seed_is_printed(suite: Suite) -> None:
    suite.write("test_passes.py", "def test_passes(): pass")
    _, output = suite.run("-n0")
    assert "seed: 0 (ONEROW_TEST_SEED=0 repeats it)" in output


def test_two_processes_with_one_seed_get_different_ports() -> None:
    """As in two runs of the tests at the same time."""
    program = "from tests.servers.process import free_port; print(free_port(), flush=True); input()"
    env = {**os.environ, "ONEROW_TEST_SEED": "17", "PYTEST_XDIST_WORKER": "gw0"}
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", program], cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    ports = {run.stdout.readline() for run in runs if run.stdout}
    for run in runs:
        run.communicate("\n")
    assert len(ports) == 2
    assert free_port() not in {int(port) for port in ports}
