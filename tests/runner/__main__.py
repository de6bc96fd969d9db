"""Run pytest; then run what failed once more, alone. `python -m tests.runner ARGUMENTS OF PYTEST`.

A test that passes the second time is listed as unstable, and the run has passed. Exceptions: the conformance suite and
the tests of promises P1 to P8. If one of them fails while the machine is not busy, the cause is a race, and the run has
failed. SIGTERM ends the run and names the tests that were running.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import FrameType

import psutil
import pytest

from tests.runner.record import Failure, Record

MOST_REPEATED = 20
BUSY = 4.0  # the load of the last minute


class _Terminated(BaseException):
    """SIGTERM arrived."""


def main(arguments: Sequence[str]) -> int:
    signal.signal(signal.SIGTERM, _raise_terminated)
    os.environ.setdefault("PYTHONHASHSEED", "random" if "--random" in arguments else "0")
    with tempfile.TemporaryDirectory(prefix="onerow-tests-") as folder:
        path = Path(folder) / "first"
        try:
            code = _run_pytest(arguments, path)
            first = Record.read(path)
            if code != pytest.ExitCode.TESTS_FAILED or not first.failures or first.not_collected:
                _print_totals(first)
                return code
            if len(first.failures) > MOST_REPEATED:
                print(f"\n{len(first.failures)} tests failed: more than {MOST_REPEATED}, so none is repeated")
                _print_totals(first)
                return code
            return _repeat(first, arguments, Path(folder))
        except _Terminated:
            # A second SIGTERM, of a process group or of an impatient parent, changes nothing.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            first = Record.read(path)
            print("\nended by SIGTERM while these tests ran:", *sorted(first.running), sep="\n  ")
            _print_list("failed before", first.failures.values())
            _print_totals(first)
            return 128 + signal.SIGTERM


def _repeat(first: Record, arguments: Sequence[str], folder: Path) -> int:
    """Run each failed test alone; return the exit code of the whole run."""
    options = [word for word in arguments if word == "--random" or word.startswith("--timeout=")]
    unstable, races, failed = [], [], []
    for number, failure in enumerate(first.failures.values()):
        print(f"\nonce more, alone: {failure.test}", flush=True)
        path = folder / f"again-{number}"
        # An empty -m: the test may be slow.
        _run_pytest([failure.test, "-n0", "-m", "", *options], path)
        again = Record.read(path)
        if again.outcomes.get(failure.test) not in {"passed", "skipped"}:
            failed.append(failure)
        elif failure.load < BUSY and failure.test in first.first_result_counts | again.first_result_counts:
            races.append(failure)
        else:
            unstable.append(failure)
            first.outcomes[failure.test] = again.outcomes[failure.test]
    print()
    _print_list("unstable", unstable)
    _print_list("failed once, and its first result counts", races)
    _print_list("failed twice", failed)
    _print_totals(first)
    return pytest.ExitCode.TESTS_FAILED if races or failed else pytest.ExitCode.OK


def _run_pytest(arguments: Sequence[str], record: Path) -> int:
    process = subprocess.Popen([sys.executable, "-m", "pytest", *arguments, f"--record={record}"])
    try:
        return process.wait()
    except BaseException:
        # The worker processes of pytest-xdist end, with some output, when its pipes close.
        with contextlib.suppress(psutil.NoSuchProcess):
            family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
            process.terminate()
            _, alive = psutil.wait_procs(family, timeout=10)
            for member in alive:
                with contextlib.suppress(psutil.NoSuchProcess):
                    member.kill()
        process.wait()
        raise


def _print_list(what: str, failures: Iterable[Failure]) -> None:
    for failure in failures:
        print(f"{what}: {failure.test} (first error, at load {failure.load:.1f}: {failure.error})")


def _print_totals(record: Record) -> None:
    passed, failed, skipped = map(record.count, ("passed", "failed", "skipped"))
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)


def _raise_terminated(signum: int, frame: FrameType | None) -> None:
    raise _Terminated


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(pytest.ExitCode.INTERRUPTED)
