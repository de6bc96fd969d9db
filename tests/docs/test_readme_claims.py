"""Every claim of the README about onerow stands here with the test that proves it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())

CLAIMS = {
    "`SELECT * FROM task_queue WHERE task_id = …` shows everything": (
        "tests/docs/test_readme_claims.py::test_one_row_has_payload_phase_results_errors_history_and_lease"
    ),
    "your backup contains it": "tests/cli/test_maintain.py::test_a_backup_is_consistent_during_writes",
    "After `kill -9`": "tests/faults/test_kill.py::test_a_task_whose_worker_process_was_killed_runs_again_and_completes",
    "a deploy": "tests/faults/test_rolling_deploys.py::test_tasks_follow_the_newest_definition_whichever_release_runs_them",
    "a crash of the database server": (
        "tests/stores/postgres/test_faults.py::test_a_worker_survives_server_crashes_and_records_each_outcome_once"
    ),
    "`concurrency=1` is a unique index": "tests/stores/test_slot_indexes.py::test_sqlite_refuses_a_second_holder_of_a_slot",
    "per phase or per key, over all workers": (
        "tests/conformance/test_races.py::test_p7_a_limit_per_key_holds_under_eight_claimers"
    ),
    "Rates, pauses and priorities": "tests/engine/test_rates.py::test_two_workers_together_do_not_exceed_the_rate",
    "It holds no worker and no connection": "tests/engine/worker/test_wait_phases.py::test_a_waiting_phase_holds_no_slot",
    "`onerow why ID` says in one sentence": "tests/engine/test_why.py::test_the_reason_is_explained",
    "the same tests run on all of them": "tests/conformance/test_races.py::test_p2_p4_eight_claimers_get_each_of_500_tasks_once",
    "add in your own transaction | yes": (
        "tests/engine/queue/test_transactions.py::test_a_django_transaction_can_be_joined"
    ),
    "an outcome is recorded once": "tests/conformance/test_races.py::test_p4_a_swap_whose_answer_is_lost_advances_once",
    "killing, freezing and cutting off real workers": (
        "tests/faults/test_rescue.py::test_p9_the_task_of_a_frozen_worker_runs_again_within_lease_and_three_seconds"
    ),
    "stored; not repeated after a crash": "tests/engine/test_steps.py::test_a_step_runs_once_although_its_phase_runs_again",
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_is_in_the_readme_and_has_a_test(claim: str) -> None:
    path, _, name = CLAIMS[claim].partition("::")
    assert claim in README
    assert re.search(rf"^def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE), CLAIMS[claim]


def test_one_row_has_payload_phase_results_errors_history_and_lease(tmp_path: Path) -> None:
    import sqlite3

    from onerow import Pipeline, Queue

    videos = Pipeline("videos")
    videos.phase(name="script")(lambda job: None)
    videos.phase(name="render")(lambda job: None)
    queue = Queue(f"sqlite:///{tmp_path}/tasks.db").serve(videos)
    task = queue.add(videos, {"topic": "tides"})
    queue.claim(videos, "script", limit=1)[0].complete("a film")
    queue.claim(videos, "render", limit=1)[0].fail(ConnectionError("no route"))
    queue.reschedule(task.task_id, queue.store.now())
    queue.claim(videos, "render", limit=1, worker="ann")
    queue.close()
    with sqlite3.connect(tmp_path / "tasks.db") as connection:
        connection.row_factory = sqlite3.Row
        row = connection.execute("SELECT * FROM task_queue WHERE task_id = ?", (task.task_id,)).fetchone()
    connection.close()
    assert "tides" in row["payload"]
    assert row["type"] == "render"
    assert "a film" in row["results"]
    assert row["error"] == "ConnectionError: no route"
    assert "retried" in row["logs"] or "failed" in row["logs"]
    assert row["leased_by"] == "ann"
