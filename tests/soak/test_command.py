"""`onerow soak`: its checks of earlier records, its errors, and a small run from the command line."""

import json
from pathlib import Path

import msgspec
from click.testing import CliRunner

from onerow.cli.main import main
from onerow.soak.records import Recorder

FACTS = {
    "phases": ("fetch", "encode", "store", "audit"), "last": ("store", "audit"), "lease": 5.0, "recovery": 3.0,
    "tasks": 1, "seed": 7, "workers": 2, "store": "sqlite", "began": "2026-11-16T00:00:00+00:00",
}  # fmt: skip


def records(folder: Path, *, with_row: bool = True, ended: bool = True) -> Path:
    """The records of a run of one task."""
    recorder = Recorder(folder, "driver")
    recorder.write("add", task="t", phase="fetch", hash="p", at=1.0)
    entries, results = [], {}
    for number, phase in enumerate(("fetch", "encode", "store")):
        common = {"task": "t", "phase": phase, "worker": "w-1-x", "pid": 1, "token": number + 1, "attempt": 1}
        recorder.write("begin", hash="p", at=2.0 + number, **common)
        recorder.write("end", hash=f"r{number}", outcome="done", at=2.5 + number, **common)
        what = "completed" if phase == "store" else "advanced"
        entries.append({"what": what, "phase": phase, "attempt": 1, "by": "w-1-x"})
        results[phase] = f"r{number}"
    row = {"status": "completed", "phase": "store", "history": entries, "results": results, "ended_at": 4.6}
    if with_row:
        recorder.write("row", task="t", row=row, at=9.0)
    if ended:
        recorder.write("end of run", at=10.0)
    recorder.close()
    (folder / "settings.json").write_bytes(msgspec.json.encode(FACTS))
    return folder


def test_check_says_that_every_promise_was_kept(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["soak", "--check", str(records(tmp_path))])
    assert done.exit_code == 0, done.output
    assert "every promise was kept" in done.output


def test_check_names_the_broken_rule_and_ends_with_1(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["soak", "--check", str(records(tmp_path, with_row=False)), "--json"])
    assert done.exit_code == 1
    report = json.loads(done.stdout)
    assert report["violations"]["lost"] == ["task t was added and has no row"]
    assert [rule for rule, found in report["violations"].items() if found] == ["lost"]


def test_check_refuses_records_of_a_run_that_was_interrupted(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["soak", "--check", str(records(tmp_path, ended=False))])
    assert done.exit_code == 64
    assert "did not reach its end" in done.output


def test_check_refuses_a_folder_without_records(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["soak", "--check", str(tmp_path)])
    assert done.exit_code == 64
    assert "no records of a soak" in done.output


def test_a_fault_that_does_not_exist_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["soak", "--faults", "pauze=3", "--dir", str(tmp_path / "new")])
    assert done.exit_code == 64
    assert "pause" in done.output
    assert not (tmp_path / "new").exists()


def test_the_faults_are_listed() -> None:
    done = CliRunner().invoke(main, ["soak", "--list-faults"])
    assert done.exit_code == 0
    assert "kill -9 of a worker process" in done.output
