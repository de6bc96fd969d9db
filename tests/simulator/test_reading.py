"""Plan files: what they may say, and errors that name the key."""

import tracemalloc
from datetime import timedelta
from pathlib import Path

import pytest

from onerow.core.errors import BadInput
from onerow.simulator.durations import QUANTILES
from onerow.simulator.reading import read_plan
from onerow.simulator.simulation import simulate

GOOD = """
[arrivals]
rate = "1/s"
[[phases]]
takes = "1s"
[workers]
count = 2
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "plan.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_short_plan_has_defaults(tmp_path: Path) -> None:
    plan = read_plan(written(tmp_path, GOOD))
    assert (plan.name, plan.lasts, plan.period, plan.seed) == ("plan", timedelta(days=1), timedelta(hours=1), 1)
    assert (plan.phases[0].name, plan.phases[0].takes.table) == ("phase-1", (1000,))
    assert (plan.workers.count, plan.workers.slots, plan.scaling) == (2, 1, None)
    assert plan.workers.claims_in == timedelta(0)


@pytest.mark.parametrize("lasts, periods", [("1d", 24), ("1001s", 24), ("1h0m1s", 24), ("24ms", 24), ("5ms", 5)])
def test_a_simulation_has_at_most_24_periods_by_default(tmp_path: Path, lasts: str, periods: int) -> None:
    plan = read_plan(written(tmp_path, f"lasts = '{lasts}'\n{GOOD}"))
    assert len(simulate(plan).periods) == periods


def test_the_time_of_a_claim_is_read(tmp_path: Path) -> None:
    plan = read_plan(written(tmp_path, GOOD + 'claims_in = "8ms"\n'))
    assert plan.workers.claims_in == timedelta(milliseconds=8)


@pytest.mark.parametrize(
    "old, new, message, fix",
    [
        ('rate = "1/s"', 'rat = "1/s"', "arrivals.rate: is missing", "rename 'rat' to 'rate'"),
        ("[workers]", "[worker]", "workers: is missing", "rename 'worker' to 'workers'"),
        ("count = 2", "count = 2\nslot = 4", "workers.slot: is not a key here", "did you mean 'slots'?"),
        ("count = 2", 'count = "2"', "workers.count: must be a whole number from 0 to 100,000, not '2'", ""),
        ("count = 2", "", "workers.count: is missing", "give the number of workers, or add a table [scaling]"),
        ('takes = "1s"', 'takes = "1 x"', "phases[0].takes: can't read the duration '1 x'", "write it like"),
        ('takes = "1s"', 'takes = { p50 = "2s", p95 = "1s" }', "phases[0].takes.p95: must not be below p50", ""),
        ('takes = "1s"', 'takes = { file = "none.csv" }', "phases[0].takes.file: can't read", ""),
        ('takes = "1s"', 'takes = "1s"\nfailures = 2', "phases[0].failures: must be a number from 0 to 1, not 2", ""),
        ('takes = "1s"', 'takes = "1s"\nper_key = 1', "keys: is missing, but a phase has a limit per key", "keys = 20"),
        ('takes = "1s"', 'takes = "1s"\nrate = "fast"', "phases[0].rate: can't read the rate 'fast'", "'60/min'"),
        ('takes = "1s"', 'takes = "1s"\n[phases.retry]\nmax = 1', "phases[0].retry.max: is not a key here", "max_retries"),
        ("[[phases]]", "[phases]", "phases: must be a list of tables", "write [[phases]]"),
        ('rate = "1/s"', 'rate = "1/s"\ncurve = [1]', "arrivals.curve: must be a list of 24 numbers", ""),
        ('rate = "1/s"', 'rate = "1/s"\nkind = "often"', "arrivals.kind: must be 'poisson' or 'constant'", ""),
        ("count = 2", "count = 2\n[scaling]\nmaximum = 1\nminimum = 2", "scaling.maximum: maximum 1 is below", "raise"),
        ("count = 2", "count = 2\n[scaling]\nmin = 2", "scaling.min: is not a key here", "did you mean 'minimum'?"),
        ("[arrivals]", 'period = "1ms"\n[arrivals]', "period: makes more than 10,000 periods", "make it longer"),
        ('rate = "1/s"', 'rate = "1/s"\nfile = "a.csv"', "arrivals: 'rate' and 'file' exclude each other", "remove one"),
        ('rate = "1/s"', "file = 'a.csv'\ncurve = [1]", "arrivals: 'curve' and 'file' exclude each other", "remove one"),
        ('takes = "1s"', 'takes = { p50 = "1s", p95 = "2s", p99 = "3s" }', "phases[0].takes: 'p95' and 'p99' exclude", ""),
        ('takes = "1s"', 'takes = { file = "a.csv", p50 = "2s" }', "phases[0].takes: 'p50' and 'file' exclude", "remove"),
        ("[arrivals]", "keys = []\n[arrivals]", "keys: must be a number of keys, or a list with their weights", ""),
        ('rate = "1/s"', 'rate = "20000/s"', "arrivals: are about 1,728,000,000 tasks, and 1,000,000,000", "make 'lasts'"),
        (
            'rate = "1/s"',
            f'rate = "20000/s"\ncurve = {[0] * 8 + [1] * 16}',
            "arrivals: are about 1,152,000,000 tasks, and 1,000,000,000",
            "make 'lasts'",
        ),
        ("count = 2", "count = 2000\nslots = 10000", "workers: have up to 20,000,000 slots, and 10,000,000 are the most", ""),
        ("count = 2", "slots = 9000\n[scaling]\nmaximum = 9000", "workers: have up to 81,000,000 slots", "fewer"),
        ("count = 2", "count = 2000\ndies_every = '1ms'", "workers.dies_every: about 172,800,000,000 workers die", "longer"),
        ("[arrivals]", 'lasts = "36500d"\n[arrivals]', "arrivals: are about 3,153,600,000 tasks", "make 'lasts' shorter"),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_with_the_path_of_its_key(
    tmp_path: Path, old: str, new: str, message: str, fix: str
) -> None:
    assert old in GOOD
    path = written(tmp_path, GOOD.replace(old, new))
    with pytest.raises(BadInput) as raised:
        read_plan(path)
    assert str(raised.value).startswith(f"{path}: {message}")
    assert fix in raised.value.fix


def test_a_file_that_is_not_toml_is_reported_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"plan\.toml is not TOML: .*line 2"):
        read_plan(written(tmp_path, "\nname = 7 8\n"))


def test_a_plan_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(GOOD, encoding="utf-8-sig")
    assert read_plan(path).workers.count == 2


def test_names_may_be_in_any_language(tmp_path: Path) -> None:
    plan = read_plan(written(tmp_path, 'name = "영상 📼"\n' + GOOD.replace("[[phases]]", '[[phases]]\nname = "渲染"')))
    assert (plan.name, plan.phases[0].name) == ("영상 📼", "渲染")


def test_a_log_normal_duration_has_its_quantiles(tmp_path: Path) -> None:
    plan = read_plan(written(tmp_path, GOOD.replace('takes = "1s"', 'takes = { p50 = "20s", p95 = "2m" }')))
    table = plan.phases[0].takes.table
    assert len(table) == QUANTILES
    assert table[QUANTILES // 2] == pytest.approx(20_000, rel=0.01)
    assert table[QUANTILES * 95 // 100] == pytest.approx(120_000, rel=0.01)


def test_measured_durations_are_drawn_as_often_as_they_were_seen(tmp_path: Path) -> None:
    (tmp_path / "times.csv").write_text("seconds,count\n1,3\n2.5,1\n", encoding="utf-8")
    plan = read_plan(written(tmp_path, GOOD.replace('takes = "1s"', 'takes = { file = "times.csv" }')))
    table = plan.phases[0].takes.table
    assert {value: table.count(value) / len(table) for value in set(table)} == {1000: 0.75, 2500: 0.25}


def test_recorded_arrivals_come_at_their_times(tmp_path: Path) -> None:
    (tmp_path / "arrivals.csv").write_text(
        "at\n2026-03-02T08:00:00Z\n2026-03-02T08:00:01.5Z\n2026-03-02T09:00:00Z\n", encoding="utf-8"
    )
    plan = read_plan(written(tmp_path, GOOD.replace('rate = "1/s"', 'file = "arrivals.csv"')))
    assert list(plan.arrivals.times or ()) == [0, 1500, 3_600_000]
    assert [period.arrived for period in simulate(plan).periods[:3]] == [2, 1, 0]


def test_a_long_record_is_read_row_by_row(tmp_path: Path) -> None:
    rows = 50_000
    (tmp_path / "arrivals.csv").write_text("at\n" + "\n".join(str(at) for at in range(rows)), encoding="utf-8")
    tracemalloc.start()
    try:
        plan = read_plan(written(tmp_path, GOOD.replace('rate = "1/s"', 'file = "arrivals.csv"')))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert plan.arrivals.times is not None
    assert len(plan.arrivals.times) == rows
    assert peak < 40 * rows


def test_recorded_counts_are_spread_over_their_intervals(tmp_path: Path) -> None:
    (tmp_path / "arrivals.csv").write_text("at,count\n0,100\n3600,10\n", encoding="utf-8")
    given = GOOD.replace('rate = "1/s"', 'file = "arrivals.csv"\nkind = "constant"')
    result = simulate(read_plan(written(tmp_path, given)))
    assert [period.arrived for period in result.periods[:3]] == [100, 10, 0]


def test_a_free_slot_may_take_a_task_at_once(tmp_path: Path) -> None:
    assert read_plan(written(tmp_path, GOOD + 'claims_in = "0s"\n')).workers.claims_in == timedelta(0)


def test_tasks_may_arrive_at_the_same_recorded_time(tmp_path: Path) -> None:
    (tmp_path / "arrivals.csv").write_text("at\n0\n1\n1\n", encoding="utf-8")
    plan = read_plan(written(tmp_path, GOOD.replace('rate = "1/s"', 'file = "arrivals.csv"')))
    assert list(plan.arrivals.times or ()) == [0, 1000, 1000]


def test_the_kind_of_arrivals_at_recorded_times_is_refused(tmp_path: Path) -> None:
    (tmp_path / "arrivals.csv").write_text("at\n0\n1\n", encoding="utf-8")
    path = written(tmp_path, GOOD.replace('rate = "1/s"', 'kind = "constant"\nfile = "arrivals.csv"'))
    with pytest.raises(BadInput, match=r"arrivals.kind: the tasks arrive at the times in arrivals.csv") as raised:
        read_plan(path)
    assert "add a column 'count'" in raised.value.fix


def test_a_record_of_too_many_tasks_is_refused(tmp_path: Path) -> None:
    (tmp_path / "arrivals.csv").write_text("at,count\n0,1e11\n60,1\n", encoding="utf-8")
    with pytest.raises(BadInput, match="arrivals: are about 100,000,000,001 tasks, and 1,000,000,000 are the most"):
        read_plan(written(tmp_path, GOOD.replace('rate = "1/s"', 'file = "arrivals.csv"')))


def test_counts_of_durations_may_be_shares(tmp_path: Path) -> None:
    (tmp_path / "times.csv").write_text("seconds,count\n1,0.25\n2,0.75\n", encoding="utf-8")
    table = read_plan(written(tmp_path, GOOD.replace('"1s"', '{ file = "times.csv" }'))).phases[0].takes.table
    assert {value: table.count(value) / len(table) for value in set(table)} == {1000: 0.25, 2000: 0.75}


@pytest.mark.parametrize(
    "text, message, fix",
    [
        ("", "times.csv is empty", "'seconds'"),
        ("seconds\n0,5\n", "times.csv, line 2: has more values than the first line has columns", "decimal point"),
        ('seconds\n"0,5"\n', "times.csv, line 2: '0,5' is not a number of 0 or more", "decimal point"),
        ("seconds,count\n1\n", "times.csv, line 2: has fewer values than the first line has columns", ""),
        ("seconds,count\n1,0\n", "times.csv has no durations", ""),
        ("seconds,seconds\n1,2\n", "times.csv has the column 'seconds' twice", "remove one"),
    ],
)
def test_a_mistake_in_measured_times_is_reported_with_its_line(
    tmp_path: Path, text: str, message: str, fix: str
) -> None:
    (tmp_path / "times.csv").write_text(text, encoding="utf-8")
    path = written(tmp_path, GOOD.replace('"1s"', '{ file = "times.csv" }'))
    with pytest.raises(BadInput) as raised:
        read_plan(path)
    assert f"phases[0].takes.file: {message}" in str(raised.value)
    assert fix in raised.value.fix


@pytest.mark.parametrize(
    "text, message",
    [
        ("when\n1\n", "arrivals.csv has no column 'at'"),
        ("at,number\n1,1\n", "arrivals.csv has a column 'number', which is not known"),
        ("at\n", "arrivals.csv has no rows"),
        ("at\n5\n3\n", "arrivals.csv, line 3: the time is before that of the line above it"),
        ("at\nsoon\n", "arrivals.csv, line 2: 'soon' is not a time"),
        ("at,count\n0,many\n1,1\n", "arrivals.csv, line 2: 'many' is not a number of 0 or more"),
        ("", "arrivals.csv is empty"),
        ("\n", "arrivals.csv is empty"),
        ("at\n0,5\n1,5\n", "arrivals.csv, line 2: has more values than the first line has columns"),
        ("at;count\n0;5\n1;5\n", "arrivals.csv has no column 'at'"),
        ('at\n"0,5"\n', "arrivals.csv, line 2: '0,5' is not a time"),
        ("at\n1e308\n", "arrivals.csv, line 2: '1e308' is not a time"),
        ("at,count\n0,1\n5,2\n5,3\n", "arrivals.csv, line 4: the time is that of the line above it"),
        ("at,count\n0,1\n0,2\n5,3\n", "arrivals.csv, line 3: the time is that of the line above it"),
        ("at\n2026-03-02T08:00:00\n", "arrivals.csv, line 2: '2026-03-02T08:00:00' has no time zone"),
        ("at\n5\n2026-03-02T08:00:00Z\n", "arrivals.csv, line 3: has an ISO time, but the first row has seconds"),
    ],
)
def test_a_mistake_in_a_record_is_reported_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "arrivals.csv").write_text(text, encoding="utf-8")
    path = written(tmp_path, GOOD.replace('rate = "1/s"', 'file = "arrivals.csv"'))
    with pytest.raises(BadInput) as raised:
        read_plan(path)
    assert f"arrivals.file: {message}" in str(raised.value)
