"""A plan from the statistics of a store that real workers have written."""

import json
from pathlib import Path

import pytest

import onerow
from onerow.core.errors import BadInput
from onerow.engine.worker import Worker
from onerow.simulator.from_store import measured_plan
from onerow.simulator.reading import read_plan
from onerow.simulator.simulation import simulate
from tests.simulator.conftest import Run

TASKS = 20


@pytest.fixture
def queue(sqlite_url: str) -> onerow.Queue:
    """A queue whose tasks of two phases have run; each first attempt of the second phase failed."""
    queue = onerow.Queue(sqlite_url)
    films = onerow.Pipeline("films")

    @films.phase(concurrency=3)
    def cut(job: object) -> None:
        """Nothing to do."""

    @films.phase(retry=onerow.Retry(max_retries=1, wait=0))
    def send(ctx: onerow.Context) -> None:
        if ctx.attempt == 1:
            raise ConnectionError

    queue.add_many(films, [{}] * TASKS)
    Worker(queue, [films], until_idle=True).run()
    return queue


def test_the_plan_has_the_arrivals_phases_and_failures_of_the_last_day(queue: onerow.Queue) -> None:
    plan = measured_plan(queue, None)
    assert plan.name == "films"
    assert [phase.name for phase in plan.phases] == ["cut", "send"]
    assert plan.phases[0].options.concurrency == 3
    assert [phase.failures for phase in plan.phases] == [0.0, 0.5]
    # The times of arrival are random within their minutes; the number is about that of the tasks.
    assert sum((end - start) * rate for start, end, rate in plan.arrivals.segments) == pytest.approx(TASKS)
    queue.close()


def test_the_plan_has_the_limits_that_an_operator_set(queue: onerow.Queue) -> None:
    queue.set_limit("films", "cut", concurrency=2, rate="5/s", rate_per_key="1/s")
    options = measured_plan(queue, None).phases[0].options
    assert (options.concurrency, options.rate) == (2, "5/s")
    assert options.rate_per_key == ""  # the statistics don't know keys
    queue.close()


def test_a_plan_file_adds_the_workers(queue: onerow.Queue, tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text("lasts = '1h'\n[workers]\ncount = 2\n", encoding="utf-8")
    result = simulate(read_plan(tmp_path / "plan.toml", measured_plan(queue, "films")))
    assert result.arrived > 0
    assert result.retried > 0
    queue.close()


def test_the_command_takes_arrivals_and_times_from_the_store(
    queue: onerow.Queue, sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    queue.close()
    (tmp_path / "plan.toml").write_text("lasts = '1h'\n[workers]\ncount = 2\n", encoding="utf-8")
    found = json.loads(run("simulate", tmp_path / "plan.toml", "--from-store", "--store", sqlite_url, "--json").stdout)
    assert found["plan"] == "plan"
    assert found["arrived"] > 0


def test_a_store_without_statistics_is_refused(sqlite_url: str) -> None:
    queue = onerow.Queue(sqlite_url)
    films = onerow.Pipeline("films")
    films.phase(name="cut")(lambda: None)
    queue.publish(films)
    with pytest.raises(BadInput, match=r"no attempt of films\.cut ended in the last day"):
        measured_plan(queue, None)
    with pytest.raises(BadInput, match="no pipeline 'film' in the store") as raised:
        measured_plan(queue, "film")
    assert raised.value.fix == "did you mean 'films'?"
    queue.close()


def test_only_the_chosen_pipeline_is_counted(queue: onerow.Queue) -> None:
    others = onerow.Pipeline("others")
    others.phase(name="cut")(lambda: None)
    queue.add_many(others, [{}] * 3)
    Worker(queue, [others], until_idle=True).run()
    with pytest.raises(BadInput, match="the store must have one pipeline, and it has films, others"):
        measured_plan(queue, None)
    for name, tasks in (("films", TASKS), ("others", 3)):
        segments = measured_plan(queue, name).arrivals.segments
        assert sum((end - start) * rate for start, end, rate in segments) == pytest.approx(tasks)
    queue.close()


def test_a_pipeline_that_runs_no_code_is_refused(sqlite_url: str) -> None:
    queue = onerow.Queue(sqlite_url)
    films = onerow.Pipeline("films")
    films.wait_until("start", field="at")
    queue.publish(films)
    with pytest.raises(BadInput, match="no phase of films runs code"):
        measured_plan(queue, None)
    queue.close()
