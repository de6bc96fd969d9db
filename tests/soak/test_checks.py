"""The history checker: a good history has no violation, and each bad one is caught by the rule that is about it."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from onerow.soak.checks import CHECKS, check
from onerow.soak.history import History, Settings
from onerow.soak.records import Record, Recorder, read_records

PHASES = ("fetch", "encode", "store")
DONE = ("advanced", "advanced", "completed")
W1, W2 = "w1", "w2"


class Run:
    """Builds the records of a run; by default a good one of one task."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def put(self, at: float, what: str, **fields: Any) -> "Run":
        self.records.append(Record(at=at, what=what, **fields))
        return self

    def add(self, task: str = "t", at: float = 0.0, **fields: Any) -> "Run":
        return self.put(at, "add", task=task, phase="fetch", **({"hash": "p"} | fields))

    def body(
        self, number: int, begin: float, end: float | None, *, task: str = "t", token: int = 0, **fields: Any
    ) -> "Run":
        """A body of the phase with this number; it returns unless `outcome` says something else."""
        given = {"worker": W1, "pid": 1, "attempt": 1, "hash": "p", "outcome": "done", "result": f"r{number}"} | fields
        outcome, result = given.pop("outcome"), given.pop("result")
        common = {"task": task, "phase": PHASES[number], "token": token or number + 1} | given
        self.put(begin, "begin", **common)
        if end is not None:
            self.put(end, "end", **(common | {"outcome": outcome, "hash": result}))
        return self

    def row(
        self, task: str = "t", status: str = "completed", *, upto: int = 3, at: float = 99.0, **fields: Any
    ) -> "Run":
        entries = [
            {"what": what, "phase": phase, "attempt": 1, "by": W1}
            for what, phase in zip(DONE[:upto], PHASES[:upto], strict=True)
        ]
        results = {phase: f"r{number}" for number, phase in enumerate(PHASES[:upto])}
        row = {
            "status": status,
            "phase": PHASES[min(upto, 2)],
            "history": entries,
            "results": results,
            "ended_at": 50.0,
        }
        return self.put(at, "row", task=task, row=row | fields)

    def whole(self, task: str = "t", at: float = 0.0, **fields: Any) -> "Run":
        """A task that is added, runs through its phases and completes."""
        self.add(task, at, **fields)
        for number in range(3):
            self.body(number, at + 1 + number, at + 1.5 + number, task=task, key=fields.get("key", ""))
        return self.row(task, ended_at=at + 50)

    def without(self, what: str, number: int = 0) -> "Run":
        found = [record for record in self.records if record.what == what]
        self.records.remove(found[number])
        return self

    def history(self, **settings: Any) -> History:
        return History(self.records, Settings(PHASES, **({"lease": 10.0} | settings)))


def violated(history: History) -> set[str]:
    return {name for name, found in check(history).items() if found}


def killed(at: float = 1.2, pid: int = 1) -> dict[str, Any]:
    return {"at": at, "what": "fault", "name": "kill", "pid": pid}


def rescued(second: float, *, gone: float = 1.2, cut: bool = True) -> Run:
    """A task whose first body is killed and which begins again on another worker."""
    run = Run().add().body(0, 1.0, None if cut else 2.0)
    run.put(**killed(gone))
    run.body(0, second, second + 0.5, token=3, worker=W2, pid=2, attempt=2)
    run.body(1, second + 1, second + 1.5, token=4, worker=W2, pid=2).body(
        2, second + 2, second + 2.5, token=5, worker=W2, pid=2
    )
    entries = [
        {"what": what, "phase": phase, "attempt": 2 if phase == "fetch" else 1, "by": W2}
        for what, phase in zip(DONE, PHASES, strict=True)
    ]
    return run.row(history=entries)


def test_a_good_run_has_no_violation() -> None:
    run = Run().whole("a", name="k").whole("b", 60.0, name="k").put(0.0, "limit", phase="fetch", name="phase", number=1)
    assert violated(run.history()) == set()


def test_a_killed_worker_whose_task_runs_again_is_no_violation() -> None:
    assert violated(rescued(12.0).history()) == set()


def test_a_worker_that_is_paused_past_its_lease_may_overlap() -> None:
    run = Run().add().body(0, 1.0, 30.0, outcome="stopped")
    run.put(2.0, "fault", name="pause", pid=1, until=30.0)
    run.body(0, 15.0, 15.5, token=3, worker=W2, pid=2, attempt=2)
    run.body(1, 16, 17, token=4, worker=W2, pid=2).body(2, 18, 19, token=5, worker=W2, pid=2)
    entries = [
        {"what": what, "phase": phase, "attempt": 2 if phase == "fetch" else 1, "by": W2}
        for what, phase in zip(DONE, PHASES, strict=True)
    ]
    assert violated(run.row(history=entries).history()) == set()


def test_an_outage_of_the_store_is_no_recovery_time() -> None:
    run = rescued(40.0).put(2.0, "fault", name="restart-store", until=35.0)
    assert violated(run.history()) == set()


def test_a_store_clock_that_lags_is_no_body_after_the_end() -> None:
    run = Run().add().body(0, 1, 2).body(1, 3, 4).body(2, 5, 6).row(ended_at=4.2)
    assert violated(run.history()) == set()


def paused_before_the_body(begin: float) -> Run:
    """A worker that claims a task, is stopped past its lease, and begins the task after another worker ended it."""
    run = Run().whole().put(0.5, "fault", name="pause", pid=2, until=55.0)
    return run.body(2, begin, begin + 0.1, token=2, worker=W2, pid=2)


def test_a_worker_that_continues_after_its_lease_may_begin_what_it_had_claimed() -> None:
    assert violated(paused_before_the_body(55.1).history()) == set()


def test_a_worker_that_begins_a_lost_task_long_after_it_continued_breaks_a_rule() -> None:
    assert "tokens" in violated(paused_before_the_body(58.0).history())


def bad(rule: str, run: Run, **settings: Any) -> Any:
    return pytest.param(rule, run, settings, id=rule)


BAD = [
    bad("lost", Run().whole().without("row")),
    bad("lost", Run().whole().add("never seen again")),
    bad("invented", Run().whole().row("ghost", upto=0, status="cancelled", results={})),
    bad("stuck", Run().add().row(status="waiting", upto=0, ended_at=None)),
    bad("stuck", Run().add().body(0, 1, None).row(status="processing", upto=0, ended_at=None)),
    bad("overlapping", Run().whole().body(1, 2.2, 2.4, token=9, worker=W2, pid=2)),
    bad("overlapping", rescued(1.1, gone=3.0)),
    bad(
        "overlapping",
        Run().whole().put(2.1, "fault", name="pause", pid=1, until=3.0).body(1, 2.3, 2.4, token=9, worker=W2, pid=2),
    ),
    bad(
        "stale",
        Run().whole().without("row").row(history=[{"what": "advanced", "phase": "fetch", "attempt": 1, "by": W2}]),
    ),
    bad("stale", Run().add().body(0, 1, 2, outcome="failed").row(upto=1)),
    bad("stale", Run().add().row(upto=1)),
    bad(
        "doubled",
        Run().whole().without("row").row(history=[{"what": "advanced", "phase": "fetch", "attempt": 1, "by": W1}] * 2),
    ),
    bad(
        "doubled",
        Run()
        .whole()
        .put(3, "operation", task="t", name="replay")
        .without("row")
        .row(history=[{"what": "completed", "phase": "store", "attempt": 1, "by": W1}] * 3),
    ),
    bad(
        "phase order",
        Run()
        .whole()
        .without("row")
        .row(
            history=[
                {"what": "advanced", "phase": "fetch", "attempt": 1, "by": W1},
                {"what": "completed", "phase": "store", "attempt": 1, "by": W1},
            ]
        ),
    ),
    bad(
        "phase order",
        Run()
        .whole()
        .without("row")
        .row(
            history=[
                {"what": "advanced", "phase": "encode", "attempt": 1, "by": W1},
                {"what": "advanced", "phase": "fetch", "attempt": 1, "by": W1},
            ]
        ),
    ),
    bad("tokens", Run().whole().body(2, 10, 11, token=3, worker=W2, pid=2)),
    bad("tokens", Run().whole().body(2, 10, 11, token=1, worker=W2, pid=2)),
    bad(
        "phase limits",
        Run()
        .put(0, "limit", phase="fetch", name="phase", number=1)
        .add("a")
        .add("b")
        .body(0, 1, 3, task="a")
        .body(0, 2, 3, task="b", pid=2, worker=W2),
    ),
    bad(
        "phase limits",
        Run()
        .put(0, "limit", phase="fetch", name="phase", number=5)
        .put(1, "limit", phase="fetch", name="phase", number=1)
        .add("a")
        .add("b")
        .body(0, 2, 4, task="a")
        .body(0, 3, 4, task="b", pid=2, worker=W2),
    ),
    bad(
        "key limits",
        Run()
        .put(0, "limit", phase="fetch", name="key", number=1)
        .add("a", key="k")
        .add("b", key="k")
        .body(0, 1, 3, task="a", key="k")
        .body(0, 2, 3, task="b", key="k", pid=2, worker=W2),
    ),
    bad(
        "rates",
        Run()
        .put(0, "limit", phase="fetch", name="rate", number=1)
        .add("a")
        .add("b")
        .add("c")
        .body(0, 1, 2, task="a")
        .body(0, 1.2, 2, task="b", pid=2)
        .body(0, 1.4, 2, task="c", pid=3),
    ),
    bad("early", Run().whole(until=1.5)),
    bad("after the end", Run().whole().body(2, 60, 61, token=9, worker=W2, pid=2, attempt=2)),
    bad(
        "after the end",
        Run()
        .add()
        .row(status="cancelled", upto=0, ended_at=5.0)
        .put(4, "operation", task="t", name="cancel")
        .body(0, 6, 7),
    ),
    bad("payloads", Run().whole().body(2, 10, 11, token=9, hash="q", worker=W2, pid=2)),
    bad("results", Run().whole().without("row").row(results={"fetch": "another"})),
    bad("results", Run().add().body(0, 1, 2, outcome="failed").row(upto=1, status="failed"), may_fail=frozenset({"t"})),
    bad("children", Run().whole("p").whole("c", parent="p").without("row").row("p", children_counted=2)),
    bad("children", Run().whole("p").add("c", parent="p").row("c", status="waiting", upto=0, ended_at=None)),
    bad(
        "signals",
        Run()
        .whole()
        .put(1, "operation", task="t", name="signal", hash="s1")
        .put(2, "signal taken", task="t", hash="s1")
        .put(3, "signal taken", task="t", hash="s1"),
    ),
    bad("signals", Run().whole().put(2, "signal taken", task="t", hash="s1")),
    bad("unique keys", Run().whole("a", name="k").whole("b", 10.0, name="k")),
    bad("cron", Run().put(1, "cron", name="nightly", key="02:00").put(2, "cron", name="nightly", key="02:00")),
    bad("recovery", rescued(30.0)),
    bad("recovery", rescued(20.0), lease=5.0),
    bad("processes", Run().whole().put(99, "process", pid=77, name="sleep 1000")),
    bad("fold", Run().add().body(0, 1, 2).row(upto=1)),
    bad("fold", Run().add().row(status="cancelled", upto=0)),
    bad("innocents", Run().add().body(0, 1, 2, outcome="failed").row(status="failed", upto=0, error="crash")),
    bad(
        "innocents",
        Run().add("a").add("b").row("a", status="failed", upto=0).row("b", status="failed", upto=0),
        may_fail=frozenset({"a"}),
    ),
    bad(
        "cancelled",
        Run()
        .add()
        .put(1, "operation", task="t", name="cancel", outcome="accepted")
        .body(0, 2, 3)
        .row(status="cancelled", upto=0),
    ),
]


@pytest.mark.parametrize("rule, run, settings", BAD)
def test_a_bad_history_is_caught_by_its_rule(rule: str, run: Run, settings: dict[str, Any]) -> None:
    assert check(run.history(**settings))[rule], check(run.history(**settings))


def test_every_rule_has_a_bad_history() -> None:
    assert {each.values[0] for each in BAD} == set(CHECKS)
    assert len(BAD) >= 30


def test_an_incomplete_last_line_of_a_killed_writer_is_left_out(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "w1")
    recorder.write("begin", task="t", phase="fetch")
    recorder.close()
    with (tmp_path / "w1.jsonl").open("ab") as file:
        file.write(b'{"at": 1.0, "what": "en')
    (record,) = read_records(tmp_path)
    assert (record.what, record.task) == ("begin", "t")
    assert msgspec.json.decode((tmp_path / "w1.jsonl").read_bytes().split(b"\n")[0])["phase"] == "fetch"
