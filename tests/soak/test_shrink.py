"""`onerow soak --shrink`: each run has an empty store beside the given one, and nothing of it is left."""

from collections.abc import Sequence
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner, Result

from onerow import Pipeline, Queue
from onerow.cli.main import main
from onerow.cli.maintain import soak as soak_command
from onerow.soak.fresh_stores import fresh_store, url_beside
from onerow.soak.report import Report
from onerow.soak.run import Soak
from onerow.soak.schedule import Fault, read_plan, write_plan

films = Pipeline("films")
films.wait_for("cut", signal="ready")


@pytest.mark.parametrize(
    "url, beside",
    [
        ("postgresql://u:p%40@host/jobs", "postgresql://u:p%40@host/jobs?schema=soak_1"),
        (
            "postgresql://u@host/jobs?sslmode=require&schema=mine",
            "postgresql://u@host/jobs?sslmode=require&schema=soak_1",
        ),
        ("mongodb://one:1,two:2/jobs?replicaSet=r", "mongodb://one:1,two:2/jobs_soak_1?replicaSet=r"),
        ("mongodb://u:p@host/jobs", "mongodb://u:p@host/jobs_soak_1?authSource=jobs"),
        ("mongodb://u:p@host/jobs?authSource=admin", "mongodb://u:p@host/jobs_soak_1?authSource=admin"),
        ("sqlite:////srv/%EC%A1%B0%EC%88%98/a.db?profile=fast", "sqlite:////srv/%EC%A1%B0%EC%88%98/soak_1.db?profile=fast"),
    ],
)  # fmt: skip
def test_the_url_beside_keeps_the_server_and_the_options(url: str, beside: str) -> None:
    assert url_beside(url, "soak_1") == beside


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "mongo"])
def test_a_fresh_store_is_empty_and_is_dropped_at_the_end(kind: str, request: pytest.FixtureRequest) -> None:
    url: str = request.getfixturevalue(f"{kind}_url")
    given = Queue(url)
    given.add(films, {}, task_id="kept")
    problems: list[str] = []
    with fresh_store(url, problems.append) as fresh:
        queue = Queue(fresh)
        assert queue.count() == []
        queue.add(films, {}, task_id="dropped")
        queue.close()
    assert problems == []
    left = Queue(fresh)
    assert left.count() == []
    left.close()
    assert [task.task_id for task in given.select()] == ["kept"]
    given.close()


def test_a_store_that_cannot_be_dropped_is_named_without_its_password(postgres_url: str) -> None:
    problems: list[str] = []
    with fresh_store(
        postgres_url.replace("postgres@", "postgres:tide@").replace("/onerow_", "/none_"), problems.append
    ):
        pass
    (problem,) = problems
    assert "could not be dropped" in problem
    assert "tide" not in problem


def shrink(url: str, folder: Path, faults: Sequence[Fault], *options: str) -> Result:
    write_plan(folder / "plan.json", faults)
    words = ["soak", "--store", url, "--dir", str(folder / "records"), "--replay", str(folder / "plan.json"), *options]
    return CliRunner().invoke(main, words)


def schemas(url: str) -> set[str]:
    with psycopg.connect(url) as connection:
        return {name for (name,) in connection.execute("SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_'")}


def test_each_run_of_a_shrink_has_an_empty_store_on_the_server(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[Soak] = []

    def run(given: Soak, show: object) -> None:
        runs.append(given)
        given.folder.mkdir(parents=True)
        queue = Queue(given.url)
        assert queue.count() == []
        queue.add(films, {})
        queue.close()

    def read_report(folder: Path) -> Report:
        killed = "kill" in {fault.name for fault in runs[-1].faults}
        return Report({}, {}, {"lost": ["task t was added and has no row"] if killed else []})

    monkeypatch.setattr(soak_command, "run", run)
    monkeypatch.setattr(soak_command, "read_report", read_report)
    faults = [Fault(0.1, "cancel", 1), Fault(0.5, "kill", 2), Fault(0.6, "pause", 3), Fault(0.7, "retry", 4)]
    done = shrink(postgres_url, tmp_path, faults, "--shrink", "9")
    assert done.exit_code == 1, done.output
    assert "still fails with 1 of 4 faults" in done.output
    assert read_plan(tmp_path / "records" / "fewer.json") == faults[1:2]
    assert runs[0].url == postgres_url
    assert len({each.url for each in runs}) == len(runs) > 2
    assert schemas(postgres_url) == {"information_schema", "onerow", "public"}


@pytest.mark.slow
@pytest.mark.faults
def test_a_failing_soak_on_a_server_shrinks_to_the_fault_that_breaks_the_rule(
    postgres_url: str, tmp_path: Path
) -> None:
    """No worker recovers the tasks of killed ones in no time, so that the rule for recovery is broken by a kill alone."""
    faults = [Fault(0.2, "cancel", 1), Fault(0.4, "limit", 7), Fault(0.5, "kill-group", 2), Fault(0.6, "retry", 4)]
    terms = [
        "--tasks",
        "60",
        "--seed",
        "5",
        "--workers",
        "2",
        "-c",
        "4",
        "--lease",
        "2s",
        "--recovery",
        "0s",
        "--longest",
        "1s",
        "--shrink",
        "4",
    ]
    done = shrink(postgres_url, tmp_path, faults, *terms)
    assert done.exit_code == 1, done.output
    assert "broken: recovery" in done.output
    fewer = read_plan(tmp_path / "records" / "fewer.json")
    assert "kill-group" in {fault.name for fault in fewer}
    assert len(fewer) < len(faults)
    assert schemas(postgres_url) == {"information_schema", "onerow", "public"}
