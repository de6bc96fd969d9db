"""`onerow simulate` as a person and a program use it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulator.conftest import Run

PLANS = Path(__file__).parents[2] / "examples" / "plans"
SMALL = """
name = "{name}"
lasts = "1h"
period = "20m"
[arrivals]
rate = "30/min"
[[phases]]
takes = "{takes}"
[workers]
count = 1
cost_per_hour = 1.5
"""


def small(folder: Path, name: str = "small", takes: str = "1s") -> Path:
    path = folder / f"{name}.toml"
    path.write_text(SMALL.format(name=name, takes=takes), encoding="utf-8")
    return path


@pytest.mark.parametrize("path", sorted(PLANS.glob("*.toml")), ids=lambda path: path.stem)
def test_every_example_runs_and_completes_its_work(path: Path, run: Run) -> None:
    result = run("simulate", path, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["completed"] > 0.9 * found["arrived"] > 0
    assert found["cost"] > 0
    assert found["wait_p50"] <= found["wait_p95"] <= found["wait_p99"]
    for name in ("arrived", "completed", "failed", "started"):
        assert sum(period[name] for period in found["periods"]) == found[name]


def test_the_table_shows_each_period_and_the_totals(tmp_path: Path, run: Run) -> None:
    lines = run("simulate", small(tmp_path)).stdout.splitlines()
    assert lines[0].split()[:4] == ["at", "arrived", "completed", "failed"]
    assert [line.split()[0] for line in lines[1:4]] == ["00:20", "00:40", "01:00"]
    assert any(re.fullmatch(r"plan +small \(seed 1, fast path\)", line) for line in lines)
    assert any(re.fullmatch(r"cost +1\.50, 0\.\d+ per thousand tasks", line) for line in lines)


def test_the_same_seed_prints_the_same_and_another_seed_differs(tmp_path: Path, run: Run) -> None:
    path = small(tmp_path)
    first, again, other = (run("simulate", path, "--seed", seed).stdout for seed in (7, 7, 8))
    assert first == again != other


def test_plans_are_compared_side_by_side(tmp_path: Path, run: Run) -> None:
    plans = [small(tmp_path, "slow", "3s"), small(tmp_path, "빠른", "100ms")]
    lines = run("simulate", "--compare", *plans).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["plan", "slow", "빠른"]
    found = json.loads(run("simulate", "--compare", *plans, "--json").stdout)
    assert [each["plan"] for each in found] == ["slow", "빠른"]
    assert found[0]["wait_p50"] > found[1]["wait_p50"]


def test_compared_plans_of_the_same_name_are_told_apart_by_their_files(tmp_path: Path, run: Run) -> None:
    plans = [small(tmp_path), tmp_path / "more.toml", small(tmp_path, "other")]
    plans[1].write_text(plans[0].read_text().replace("count = 1", "count = 2"))
    found = json.loads(run("simulate", "--compare", *plans, "--json").stdout)
    assert [each["plan"] for each in found] == [str(plans[0]), str(plans[1]), "other"]


def test_the_search_prints_the_number_of_workers_and_of_simulations(tmp_path: Path, run: Run) -> None:
    path = small(tmp_path, takes="9s")
    result = run("simulate", path, "--find", "workers", "--wait", "p95<10s", "--json")
    found = json.loads(result.stdout)
    assert found["workers"] >= 5
    assert found["simulations"] == len(found["tried"])
    shown = run("simulate", path, "--find", "workers", "--wait", "p95<10s").stdout
    assert f"workers = {found['workers']} is the least with p95 < 10s ({found['simulations']} simulations)" in shown


def test_a_search_without_an_answer_says_so_and_fails(tmp_path: Path, run: Run) -> None:
    path = small(tmp_path)
    path.write_text(path.read_text().replace('takes = "1s"', 'takes = "10s"\nconcurrency = 1'))
    result = run("simulate", path, "--find", "workers", "--wait", "p99<1s")
    assert result.exit_code == 1
    assert "no number of workers is enough for p99 < 1s" in result.stdout
    path = small(tmp_path)
    path.write_text(path.read_text() + 'claims_in = "2s"\n')
    result = run("simulate", path, "--find", "workers", "--wait", "p99<1s")
    assert result.exit_code == 1
    assert "claims_in or the start time of workers makes tasks wait" in result.stdout


def test_a_search_that_tried_the_most_workers_says_so(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onerow.simulator.search.MOST_WORKERS", 3)
    result = run("simulate", small(tmp_path, takes="30s"), "--find", "workers", "--wait", "p99<1s")
    assert result.exit_code == 1
    assert "3 are the most that are tried, and they are too few" in result.stdout


@pytest.mark.parametrize("suffix, start", [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_a_chart_is_written(tmp_path: Path, run: Run, suffix: str, start: bytes) -> None:
    chart = tmp_path / f"chart.{suffix}"
    plans = [small(tmp_path, "$one$"), small(tmp_path, "영상")]
    assert run("simulate", plans[1], "--chart", chart).exit_code == 0
    single = chart.read_bytes()
    assert run("simulate", "--compare", *plans, "--chart", chart).exit_code == 0
    compared = chart.read_bytes()
    assert single.startswith(start)
    assert compared.startswith(start)
    if suffix == "svg":
        for text in ("영상", "$one$", "wait p99 (s)", "minutes from the start"):
            assert text in compared.decode()
        run("simulate", "--compare", *plans, "--chart", chart)
        assert chart.read_bytes() == compared


@pytest.mark.parametrize("suffix, hinted", [("png", True), ("svg", False)])
def test_a_chart_whose_characters_have_no_font_is_written_with_a_hint(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, suffix: str, hinted: bool
) -> None:
    monkeypatch.setattr("onerow.simulator.charts._FONTS", ("DejaVu Sans",))
    result = run("simulate", small(tmp_path, "영상"), "--chart", tmp_path / f"chart.{suffix}")
    assert result.exit_code == 0
    assert ("install fonts-noto-cjk, or write an .svg" in result.output) is hinted


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "no plan is given"),
        (["none.toml"], "can't read the plan none.toml"),
        (["PLAN", "PLAN"], "2 plans are given"),
        (["PLAN", "--find", "workers"], "--find and --wait belong together"),
        (["PLAN", "--wait", "p99<1s"], "--find and --wait belong together"),
        (["PLAN", "--find", "workers", "--wait", "soon"], "--wait: can't read the condition 'soon'"),
        (["PLAN", "--compare", "--find", "workers", "--wait", "p99<1s"], "--compare and --find can't be combined"),
        (["PLAN", "--chart", "chart.gif"], "--chart: 'chart.gif' must end with .png or .svg"),
        (["PLAN", "--chart", "nowhere/chart.png"], "--chart: there is no folder nowhere"),
        (["PLAN", "--pipeline", "x"], "--pipeline belongs to --from-store"),
        (["PLAN", "--validate"], "--validate takes no plan"),
        (["--validate", "--find", "workers", "--wait", "p99<1s"], "--validate takes no plan"),
    ],
)
def test_wrong_arguments_are_refused(tmp_path: Path, run: Run, arguments: list[str], message: str) -> None:
    path = str(small(tmp_path))
    result = run("simulate", *(path if each == "PLAN" else each for each in arguments))
    assert result.exit_code == 64
    assert message in result.stderr


def test_without_a_chart_neither_matplotlib_nor_pytest_is_imported(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom onerow.cli.main import main\n"
        f"main(['simulate', {str(small(tmp_path))!r}], standalone_mode=False)\n"
        "assert not {'matplotlib', 'pytest'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=900)


def test_a_chart_without_matplotlib_names_the_extra(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = run("simulate", small(tmp_path), "--chart", tmp_path / "chart.png")
    assert result.exit_code == 64
    assert "pip install 'onerow[charts]'" in result.stderr
