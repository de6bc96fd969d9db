"""Simulated and real workers side by side."""

import json
import time

import msgspec
import pytest

import onerow
from onerow.core.filters import Filter
from onerow.engine.control import definitions
from onerow.simulator import validation
from onerow.simulator.machine_load import MachineLoad
from onerow.simulator.validation import Comparison, Figures, _compare, validate
from onerow.wiring import open_store
from tests.simulator.conftest import Run


def agreeing(simulated: Figures, measured: Figures) -> list[bool]:
    return [each.agrees for each in _compare("sqlite", 1.2, simulated, measured)]


def test_figures_within_their_tolerances_agree() -> None:
    assert agreeing(Figures(95, 1050, 1.15), Figures(100, 1000, 1.0)) == [True, True, True]
    assert agreeing(Figures(89, 1110, 1.25), Figures(100, 1000, 1.0)) == [False, False, False]
    # Near zero a share means nothing: a few tasks and a few milliseconds are allowed.
    assert agreeing(Figures(50, 0, 0.0), Figures(50, 5, 0.009)) == [True, True, True]
    assert agreeing(Figures(50, 0, 0.0), Figures(50, 50, 0.02)) == [True, False, False]


def test_a_comparison_runs_real_workers_and_leaves_the_store_as_it_was(sqlite_url: str) -> None:
    with_task = onerow.Queue(sqlite_url)
    films = onerow.Pipeline("films")
    films.phase(name="cut")(lambda: None)
    with_task.publish(films)
    before = with_task.add(films)
    found = validate(sqlite_url, 1.0, loads=(0.5,), tries=1)
    assert [(each.store, each.figure) for each in found] == [
        ("sqlite", "throughput"), ("sqlite", "backlog"), ("sqlite", "wait p50"),
    ]  # fmt: skip
    throughput = found[0]
    assert throughput.simulated > 0
    assert throughput.measured > 0
    assert with_task.find(Filter(), limit=10).tasks == [before]
    with_task.close()
    store = open_store(sqlite_url)
    assert [note.name for note in store.notes(definitions.PLAN)] == ["films"]
    store.close()


class Clock:
    """A clock that sleeps advance; each takes longer than asked."""

    def __init__(self, late_by: float) -> None:
        self.now = 0.0
        self.naps = 0
        self._late_by = late_by

    def sleep(self, seconds: float) -> None:
        self.now += seconds + self._late_by
        self.naps += 1
        time.sleep(0)


@pytest.mark.parametrize("late_by, share", [(0.001, 0.0), (0.02, 0.5), (0.06, 0.75)])
def test_the_load_of_a_machine_is_how_late_threads_wake_up(late_by: float, share: float) -> None:
    clock = Clock(late_by)
    with MachineLoad(clock.sleep, lambda: clock.now) as machine:
        while clock.naps < 20:
            time.sleep(0.001)
    assert machine.share == pytest.approx(share, abs=0.01)


def test_a_load_is_measured_again_while_the_machine_is_busy(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shares = iter([0.4, 0.3, 0.01])

    class Busy(MachineLoad):
        def __exit__(self, *raised: object) -> None:
            super().__exit__(*raised)
            self.share = next(shares)

    measured: list[Figures] = [Figures(5, 100, 9.0), Figures(6, 100, 9.0), Figures(50, 0, 0.0)]
    monkeypatch.setattr(validation, "MachineLoad", Busy)
    monkeypatch.setattr(validation, "_one_load", lambda *given: (Figures(50, 0, 0.0), measured.pop(0)))
    lines: list[str] = []
    found = validate(sqlite_url, 60.0, loads=(0.5,), progress=lines.append)
    assert [(each.agrees, each.disturbed) for each in found] == [(True, 0.01)] * 3
    assert [line for line in lines if "so again" in line] == [
        "sqlite: the machine was busy with other work (40% late), so again",
        "sqlite: the machine was busy with other work (30% late), so again",
    ]


def test_the_command_fails_if_a_figure_disagrees(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = Comparison(store="sqlite", load=0.5, figure="wait p50", simulated=0.1, measured=0.2, agrees=False)
    monkeypatch.setattr("onerow.simulator.validation.validate", lambda *args, **options: [figure])
    result = run("simulate", "--validate")
    assert result.exit_code == 1
    assert "busy with other work" not in result.stdout
    assert "sqlite   50%  wait p50      100ms     200ms      -50.0%  disagrees" in result.stdout
    found = json.loads(run("simulate", "--validate", "--json").stdout)
    assert (found[0]["agrees"], found[0]["difference"]) == (False, -0.5)
    busy = msgspec.structs.replace(figure, disturbed=0.2)
    monkeypatch.setattr("onerow.simulator.validation.validate", lambda *args, **options: [busy])
    assert "threads woke up 20% late" in run("simulate", "--validate").stdout


@pytest.mark.slow
def test_five_seconds_at_each_load_are_compared_on_sqlite_and_postgresql(run: Run, postgres_url: str) -> None:
    result = run("simulate", "--validate", "--seconds", "5", "--store", postgres_url, "--json")
    assert result.exit_code in (0, 1), result.output  # whether they agree depends on what else the machine does
    found = json.loads(result.stdout)
    assert len(found) == 2 * 3 * 3
    assert {each["store"] for each in found} == {"sqlite", "postgresql"}
    for each in found:
        if each["figure"] == "throughput":
            assert each["simulated"] == pytest.approx(each["measured"], rel=0.5)
