"""Pytest plugin: write to `--record FILE`, as JSON lines, which tests started, how each ended, and the errors.

The file is complete up to the moment at which a run is killed. With pytest-xdist the controller writes it.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import pytest

# A failure of these is a race, not a slow machine: that they pass the second time excuses nothing.
_AT_ANY_SPEED = frozenset({"P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8"})
_FIRST_RESULT_COUNTS = "first_result_counts"
_CONFORMANCE = Path(__file__).parents[1] / "conformance"


@dataclass(frozen=True)
class Failure:
    """The first error of a test, and the load of the machine (1 minute) when it failed."""

    test: str
    error: str
    load: float


@dataclass
class Record:
    """What a record file says about its run."""

    running: set[str] = field(default_factory=set)
    outcomes: dict[str, str] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)
    not_collected: list[str] = field(default_factory=list)
    first_result_counts: set[str] = field(default_factory=set)

    @classmethod
    def read(cls, path: Path) -> "Record":
        record = cls()
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
                if line.endswith("\n"):  # the last line of a killed run may be cut
                    record._add(**json.loads(line))
        return record

    def count(self, outcome: str) -> int:
        return sum(found == outcome for found in self.outcomes.values())

    def _add(self, event: str, test: str, **more: Any) -> None:
        if event == "started":
            self.running.add(test)
        elif event == "ended":
            self.running.discard(test)
        elif event == "not collected":
            self.not_collected.append(test)
        else:
            outcome = more["outcome"]
            if more["first_result_counts"]:
                self.first_result_counts.add(test)
            if outcome == "failed":
                self.failures.setdefault(test, Failure(test, more["error"], more["load"]))
            if self.outcomes.get(test) != "failed":
                self.outcomes[test] = outcome


class _Recorder:
    def __init__(self, file: TextIO) -> None:
        self._file = file

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._write(event="started", test=nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self._write(
                event="result",
                test=report.nodeid,
                outcome=report.outcome,
                error=_first_error(report),
                load=os.getloadavg()[0],
                first_result_counts=_FIRST_RESULT_COUNTS in report.keywords,
            )
        if report.when not in {"setup", "call"}:  # teardown, or a worker process that ended
            self._write(event="ended", test=report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write(event="not collected", test=report.nodeid)

    def pytest_unconfigure(self) -> None:
        self._file.close()

    def _write(self, **fields: Any) -> None:
        self._file.write(json.dumps(fields) + "\n")
        self._file.flush()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", type=Path, help="write to this file what ran and what failed")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{_FIRST_RESULT_COUNTS}: set by tests/runner, not by tests")
    path = config.getoption("record")
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Recorder(path.open("w", encoding="utf-8")))


def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    for item in items:
        promises = {promise for mark in item.iter_markers("promise") for promise in mark.args}
        if promises & _AT_ANY_SPEED or item.path.is_relative_to(_CONFORMANCE):
            item.add_marker(_FIRST_RESULT_COUNTS)


def _first_error(report: pytest.TestReport) -> str:
    if not report.failed:
        return ""
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = str(crash.message if crash else report.longrepr).strip().splitlines()
    return lines[0][:300] if lines else "no message"
