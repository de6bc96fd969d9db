"""Operations by id and by query: results, refusals and confirmations."""

import json
from contextlib import closing

import pytest
from msgspec.structs import replace

from onerow.core.status import CANCELLED, COMPLETED, WAITING
from onerow.core.task import Task
from onerow.engine.control import notes
from onerow.engine.queue import bulk
from onerow.engine.queue.queue import Queue
from onerow.stores.sqlite import SqliteStore
from tests.cli.conftest import HOUR, MINUTE, Run
from tests.samples import NOW, a_task


def row(town: str, task_id: str) -> Task:
    store = SqliteStore(town.removeprefix("sqlite:///"))
    (task,) = store.fetch([task_id])
    store.close()
    return task


def test_retry_requeues_a_failed_task(run: Run, town: str) -> None:
    result = run("retry", "failed", "--note", "topic added", "--store", town)
    assert result.stdout == "retry failed: waiting in script\n"
    task = row(town, "failed")
    assert (task.status, task.retry_base) == (WAITING, task.retry_count)
    assert (task.history[-1].what, task.history[-1].by, task.history[-1].note) == ("retry", "ann", "topic added")


def test_cancel_replay_finish_reschedule_priority_signal(run: Run, town: str) -> None:
    assert run("cancel", "waits", "--store", town).stdout == "cancel waits: cancelled in script\n"
    assert run("cancel", "runs", "--store", town).stdout == "cancel runs: processing, stopping in video\n"
    assert run("replay", "done", "--phase", "script", "--store", town).stdout == "replay done: waiting in script\n"
    assert run("finish", "again", "--phase-only", "--store", town).stdout == "finish again: waiting in image\n"
    assert run("finish", "again", "--store", town).stdout == "finish again: completed in image\n"
    run("reschedule", "later", "--run-at", "+10m", "--store", town)
    assert row(town, "later").run_at == NOW + 10 * MINUTE
    run("reschedule", "later", "--run-at", "2026-11-16T00:00:00+09:00", "--store", town)
    assert row(town, "later").run_at.isoformat() == "2026-11-15T15:00:00+00:00"
    run("set-priority", "later", "--priority", "-7", "--store", town)
    assert row(town, "later").priority == -7
    run("signal", "parked", "images.ready", "first=a.png", "n=2", "--store", town)
    assert row(town, "parked").awaiting is None
    assert row(town, "parked").signals[0]["payload"] == {"first": "a.png", "n": 2}


def test_a_refused_operation_prints_the_reason_and_exits_1(run: Run, town: str) -> None:
    result = run("retry", "done", "failed", "--store", town, code=1)
    assert result.stdout == "retry failed: waiting in script\n"
    assert (
        result.stderr == "onerow: task done is completed; only failed tasks can be retried; "
        "to run it again from its first phase: onerow replay done\n"
    )
    answer = json.loads(run("retry", "done", "--json", "--store", town, code=1).stdout)
    assert answer["done"] == []
    assert answer["refused"][0]["task_id"] == "done"


def test_an_unknown_id_changes_no_task(run: Run, town: str) -> None:
    result = run("cancel", "waits", "missing", "--store", town, code=64)
    assert "no task 'missing'" in result.stderr
    assert row(town, "waits").status is WAITING


def test_ids_and_where_exclude_each_other(run: Run, town: str) -> None:
    run("cancel", "--store", town, code=2)
    run("cancel", "waits", "--where", "user:u1", "--store", town, code=2)


def test_where_selects_only_statuses_that_the_operation_allows(run: Run, town: str) -> None:
    answer = json.loads(run("retry", "--where", "", "--dry-run", "--json", "--store", town).stdout)
    assert answer == {"would": "retry", "count": 1, "tasks": ["failed"]}
    answer = json.loads(run("cancel", "--where", "user:u1", "--dry-run", "--json", "--store", town).stdout)
    assert answer["tasks"] == ["failed", "later"]


def test_a_dry_run_changes_nothing(run: Run, town: str) -> None:
    result = run("cancel", "--where", "status:waiting", "--dry-run", "--store", town)
    assert result.stdout.endswith("would cancel 4 tasks\n")
    assert row(town, "waits").status is WAITING


def test_more_than_five_tasks_need_a_confirmation(run: Run, town: str) -> None:
    store = SqliteStore(town.removeprefix("sqlite:///"))
    store.insert([a_task(f"many{n:03d}", user_id="many") for n in range(150)])
    store.close()
    result = run("cancel", "--where", "user:many", "--store", town, code=64)
    assert result.stderr == (
        "onerow: this would cancel 150 tasks\n        confirm with --yes, or look first with --dry-run\n"
    )
    assert row(town, "many000").status is WAITING
    result = run("cancel", "--where", "user:many", "--yes", "--store", town)
    assert result.stdout.endswith("… 150 tasks in all\n")
    assert row(town, "many149").status is CANCELLED


@pytest.mark.parametrize(
    "words, task_id, text",
    [
        (["finish", "--where", "title:Tides"], "waits", "finish 1 task"),
        (["cancel", "--where", "user:u1"], "later", "cancel 2 tasks"),
        (["replay", "--where", ""], "done", "replay 2 tasks"),
        (["purge", "--older-than", "26h"], "gone", "purge 1 task"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_final_operation_on_a_query_needs_yes_without_a_terminal(
    run: Run, town: str, words: list[str], task_id: str, text: str
) -> None:
    before = row(town, task_id)
    fix = "confirm with --yes, or look first with --dry-run"
    assert run(*words, "--store", town, code=64).stderr == f"onerow: this would {text}\n        {fix}\n"
    as_json = json.loads(run(*words, "--json", "--store", town, code=64).stderr)
    assert as_json == {"error": f"this would {text}", "fix": fix, "error_class": "BadInput"}
    assert row(town, task_id) == before
    run(*words, "--yes", "--store", town)
    store = SqliteStore(town.removeprefix("sqlite:///"))
    assert store.fetch([task_id]) != [before]
    store.close()


def test_a_final_operation_on_a_query_without_matches_does_not_ask(run: Run, town: str) -> None:
    assert run("finish", "--where", "user:missing", "--store", town).stdout == "nothing to finish\n"
    assert run("purge", "--older-than", "900d", "--store", town).stdout == "purged 0 tasks\n"


def test_an_operation_by_query_leaves_a_record_and_one_by_id_does_not(run: Run, town: str) -> None:
    run("cancel", "waits", "--store", town)
    run("cancel", "--where", "user:u1", "--by", "eve", "--yes", "--store", town)
    store = SqliteStore(town.removeprefix("sqlite:///"))
    (record,) = bulk.records(Queue(store))
    store.close()
    assert (record.operation, record.by, record.matched, record.done, record.whole) == ("cancel", "eve", 2, 2, True)


def test_an_unknown_phase_is_an_error_of_the_command(run: Run, town: str) -> None:
    result = run("replay", "done", "--phase", "nosuch", "--store", town, code=64)
    assert "nosuch" in result.stderr
    assert row(town, "done").status is COMPLETED


def test_an_empty_selection_is_not_an_error(run: Run, town: str) -> None:
    assert run("retry", "--where", "user:missing", "--store", town).stdout == "nothing to retry\n"


@pytest.mark.parametrize("when", ["soon", "2026-11-16T00:00:00", "tomorrow"])
def test_a_time_that_is_invalid_or_has_no_zone_is_refused(run: Run, town: str, when: str) -> None:
    assert run("reschedule", "later", "--run-at", when, "--store", town, code=64).stderr.startswith("onerow: time")


# ── adding ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_add_by_fields_and_by_json(run: Run, town: str) -> None:
    first = run("add", "videos", "topic=tides", "n=5", "ok=true", "--user", "u9", "--store", town)
    task = row(town, first.stdout.strip())
    assert (task.payload, task.title, task.user_id) == ({"topic": "tides", "n": 5, "ok": True}, "tides", "u9")
    answer = json.loads(
        run("add", "videos", "--payload", '{"topic": "x"}', "--run-at", "+1h", "--id", "mine", "--json", "--store", town).stdout
    )  # fmt: skip
    assert answer == {"task_id": "mine", "status": "waiting", "phase": "schedule", "existed": False}
    assert row(town, "mine").run_at == NOW + HOUR
    again = run("add", "videos", "--payload", "-", "--id", "mine", "--store", town, stdin='{"topic": "y"}')
    assert again.stderr == "it was there already: waiting in schedule\n"
    assert row(town, "mine").payload == {"topic": "x"}


def test_add_takes_lines_of_json(run: Run, town: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("lines") / "many.jsonl"
    file.write_text("".join(f'{{"topic": "t{n}"}}\n' for n in range(1_500)) + "\n", encoding="utf-8")
    assert run("add", "videos", "--lines", str(file), "--user", "lines", "--store", town).stdout == "1,500 added\n"
    assert json.loads(run("counts", "user:lines", "--json", "--store", town).stdout)["count"] == 1_500
    file.write_text('{"topic": "a"}\n{nonsense\n', encoding="utf-8")
    assert "line 2 is not JSON" in run("add", "videos", "--lines", str(file), "--store", town, code=64).stderr


@pytest.mark.parametrize(
    "words, hint",
    [
        (["add", "film", "a=1"], "no pipeline 'film' in the store (videos)"),
        (["add", "videos", "nonsense"], "is not FIELD=VALUE"),
        (["add", "videos", "--payload", "{nonsense"], "the payload is not JSON"),
        (["add", "videos", "--payload", "@nowhere.json"], "can't read nowhere.json"),
        (["add", "videos", "a=1", "--payload", "{}"], "both set the payload"),
        (["add", "videos", "--id", "a/b"], "task_id"),
    ],
)
def test_invalid_additions_are_refused(run: Run, town: str, words: list[str], hint: str) -> None:
    result = run(*words, "--store", town, code=64)
    assert hint in result.stderr
    assert json.loads(run("counts", "--json", "--store", town).stdout)["overview"]["waiting"] == 3


# ── phases, purge ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_pause_shows_in_why_and_resume_undoes_it(run: Run, town: str) -> None:
    paused = run("pause", "videos", "script", "--reason", "the disk is full", "--store", town)
    assert paused.stdout == "paused videos.script; to undo it: onerow resume videos script\n"
    assert run("why", "waits", "--store", town).stdout == (
        "The phase script was paused by ann because: the disk is full.\n→ onerow resume videos script\n"
    )
    assert "paused: the disk is full" in run("watch", "--once", "--store", town).stdout
    assert run("resume", "videos", "script", "--store", town).stdout == "resumed videos.script\n"
    assert run("resume", "videos", "script", "--store", town).stdout == "videos.script was not paused\n"
    run("pause", "videos", "nosuch", "--store", town, code=64)
    assert run("pause", "videos", "--store", town).stdout == "paused videos; to undo it: onerow resume videos\n"
    assert run("resume", "videos", "--store", town).stdout == "resumed videos\n"


def test_a_limit_is_set_shown_and_reset(run: Run, town: str) -> None:
    assert run("limit", "videos", "script", "--store", town).stdout == "videos.script: 2 at once; 0 now\n"
    assert (
        run("limit", "videos", "script", "5", "--store", town).stdout == "videos.script: 5 at once; 0 now; set by ann\n"
    )
    run("limit", "videos", "script", "none", "--per-key", "1", "--store", town)
    answer = json.loads(run("limit", "videos", "script", "--json", "--store", town).stdout)
    assert (answer["limit"], answer["per_key"], answer["processing"]) == (None, 1, 0)
    assert answer["setting"]["limits"] == {"concurrency": None, "per_key": 1}
    assert run("limit", "videos", "script", "--reset", "--store", town).stdout == "videos.script: 2 at once; 0 now\n"
    assert "whole number" in run("limit", "videos", "script", "many", "--store", town, code=64).stderr
    assert "whole number" in run("limit", "videos", "script", "--per-key", "x", "--store", town, code=64).stderr
    run("limit", "videos", "script", "5", "--reset", "--store", town, code=2)


def test_setting_one_limit_leaves_the_other_as_it_is(run: Run, town: str) -> None:
    limit = ("limit", "videos", "script", "--store", town)
    ann = "; 0 now; set by ann\n"
    assert run(*limit, "--per-key", "1").stdout == f"videos.script: 2 at once, 1 for each key{ann}"
    assert run(*limit, "5").stdout == f"videos.script: 5 at once, 1 for each key{ann}"
    assert run(*limit, "none").stdout == f"videos.script: any number at once, 1 for each key{ann}"
    assert run(*limit, "--per-key", "none").stdout == f"videos.script: any number at once{ann}"
    assert run(*limit, "--rate", "10/m", "--rate-per-key", "2/s", "--by", "bob", "--reason", "slow").stdout == (
        "videos.script: any number at once, rate 10/m, rate 2/s for each key; 0 now; set by bob: slow\n"
    )
    assert run(*limit, "--rate", "none").stdout == f"videos.script: any number at once, rate 2/s for each key{ann}"
    assert "60/min" in run(*limit, "--rate", "often", code=64).stderr
    assert run(*limit, "--reset").stdout == "videos.script: 2 at once; 0 now\n"


def test_purge_counts_and_deletes_old_ended_tasks(run: Run, town: str) -> None:
    assert run("purge", "--older-than", "1d", "--dry-run", "--store", town).stdout == "would purge 2 tasks\n"
    only = run("purge", "--older-than", "1d", "--status", "cancelled", "--yes", "--json", "--store", town)
    assert json.loads(only.stdout) == {"purged": 1}
    assert run("purge", "--older-than", "1h", "--yes", "--store", town).stdout == "purged 2 tasks\n"
    answer = json.loads(run("counts", "--json", "--store", town).stdout)["overview"]
    assert (answer["completed"], answer["failed"], answer["cancelled"]) == (0, 0, 0)
    assert row(town, "waits").status is not COMPLETED


def test_operations_on_many_tasks_are_listed_and_an_ended_one_cannot_be_stopped(run: Run, town: str) -> None:
    empty = run("operations", "--store", town)
    assert "no operation on many tasks yet" in empty.stdout + empty.stderr
    run("cancel", "--where", "status:waiting", "--yes", "--store", town)
    (record,) = json.loads(run("operations", "--json", "--store", town).stdout)
    assert (record["operation"], record["by"], record["whole"]) == ("cancel", "ann", True)
    (line,) = [each for each in run("operations", "--store", town).stdout.splitlines() if record["name"] in each]
    assert f"{record['done']}/{record['matched']}" in line
    assert line.rstrip().endswith("whole")
    assert "has ended" in run("operations", "--stop", record["name"], "--store", town, code=64).stderr
    assert "no operation" in run("operations", "--stop", "x", "--store", town, code=64).stderr
    with closing(SqliteStore(town.removeprefix("sqlite:///"))) as store:  # as a killed process leaves it
        (note,) = store.notes("bulk")
        body = {**note.body, "ended_at": "", "seen_at": "2026-01-01T00:00:00.000+00:00"}
        notes.put(store, replace(note, body=body))
    (line,) = [each for each in run("operations", "--store", town).stdout.splitlines() if record["name"] in each]
    assert "interrupted" in line
    refused = run("operations", "--stop", record["name"], "--store", town, code=64).stderr
    assert "run the operation again" in refused
