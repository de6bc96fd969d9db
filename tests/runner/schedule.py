"""Pytest plugin: which worker process of pytest-xdist runs which test.

With `--dist loadgroup` each process begins with a share of the tests, in the order of collection, so that fixtures of a
module are kept, and tests that run at the same time are of different kinds. A process without work takes half of the
largest share. The tests of an `xdist_group` go to one process. pytest-xdist's own class does not see groups with this
version of pytest, gives a test that ended its process to another one, again and again, and lets a new process wait for
ever for its second test.
"""

import json
import os
from collections import deque
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadGroupScheduling, Scheduling
from xdist.workermanage import WorkerController

_GROUPS = "onerow_groups"  # the file in which a worker process writes the group of each test


class _Schedule(LoadGroupScheduling):  # type: ignore[misc]  # it has no types
    def schedule(self) -> None:
        (path,) = {node.workerinput[_GROUPS] for node in self.nodes}
        self._groups: dict[str, str] = json.loads(Path(path).read_text())
        self._shares: dict[WorkerController, deque[str]] = getattr(self, "_shares", {})
        super().schedule()

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        test = self.registered_collections[node][item_index]
        scope = self._split_scope(test)
        tests = self.assigned_work[node][scope]
        tests[test] = True
        if all(tests.values()):
            del self.assigned_work[node][scope]
        self._reschedule(node)

    def remove_node(self, node: WorkerController) -> str | None:
        """Return the test that ran when the process ended, if any; others take over what it had not begun."""
        units = self.assigned_work.pop(node)
        if not units:
            return None
        tests = next(iter(units.values()))
        crashed: str = next(test for test, completed in tests.items() if not completed)
        tests[crashed] = True
        left = {scope: tests for scope, tests in units.items() if not all(tests.values())}
        self.workqueue.update(left)
        self._shares[node].extendleft(reversed(left))
        for other in self.assigned_work:
            self._reschedule(other)
        return crashed

    def _assign_work_unit(self, node: WorkerController) -> None:
        if not self._shares:
            self._shares = dict(zip(self.nodes, self._initial_shares(len(self.nodes)), strict=True))
        share = self._shares.setdefault(node, deque())
        if not share:
            largest = max(self._shares.values(), key=len)
            share.extendleft(largest.pop() for _ in range((len(largest) + 1) // 2))
        self.workqueue.move_to_end(share.popleft(), last=False)
        super()._assign_work_unit(node)

    def _initial_shares(self, count: int) -> list[deque[str]]:
        """Groups take long, so they come first; the largest is the first."""
        names = set(self._groups.values())
        groups = [scope for scope in self.workqueue if scope in names]
        single = [scope for scope in self.workqueue if scope not in names]
        ends = [round(number * len(single) / count) for number in range(count + 1)]
        return [deque(groups[n::count] + single[ends[n] : ends[n + 1]]) for n in range(count)]

    def _split_scope(self, nodeid: str) -> str:
        return self._groups.get(nodeid, nodeid)

    def _reschedule(self, node: WorkerController) -> None:
        # A process begins a test when it knows the next one, or that there is none.
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) <= 2:
            if self.workqueue:
                self._assign_work_unit(node)
            else:
                node.shutdown()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    return _Schedule(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    folder: Path = node.config._tmp_path_factory.getbasetemp()
    node.workerinput[_GROUPS] = str(folder / "groups.json")


@pytest.hookimpl(tryfirst=True)  # before the process reports its collection
def pytest_collection_finish(session: pytest.Session) -> None:
    workerinput = getattr(session.config, "workerinput", None)
    if workerinput is not None:
        marks = ((item.nodeid, item.get_closest_marker("xdist_group")) for item in session.items)
        path = Path(workerinput[_GROUPS])
        written = path.with_suffix(f".{os.getpid()}")
        written.write_text(json.dumps({test: mark.args[0] for test, mark in marks if mark is not None}))
        written.rename(path)  # each process writes the same
