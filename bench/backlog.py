"""Benchmarks of a large backlog and of dead rows that a vacuum cannot remove."""

from collections.abc import Iterator

from bench.baselines import open_baseline
from bench.setting import Figure, Setting
from bench.work import one_phase

_TAKE = 20_000
_SNAPSHOT_TASKS = 100_000
_LIMITED_TASKS = 70_000
_KEYS = 1_000


def backlog(setting: Setting) -> Iterator[Figure]:
    """Drain rate with `scale` tasks waiting, against a short backlog."""
    baseline = open_baseline(setting.url, setting.folder)
    rates = []
    for waiting in (_TAKE + 1_000, setting.scale):
        pipeline = one_phase(setting, waiting)
        getattr(baseline, "maintain", _nothing)()
        rates.append(setting.worker(pipeline.name, count=_TAKE, enough=True)["rate"])
    baseline.close()
    few, many = rates
    yield Figure(
        f"drain, {setting.scale:,} waiting",
        setting.store,
        many,
        "tasks/s",
        few,
        f"{_TAKE + 1_000:,} waiting",
    )


def snapshot(setting: Setting) -> Iterator[Figure]:
    """Drain rate late in a backlog while a transaction holds an old snapshot, against the initial rate.

    Measured without limits, with `concurrency=` and with `per_key=`, because each uses a different claim statement.
    """
    yield from _snapshot(setting, "drain, old snapshot", _SNAPSHOT_TASKS, {})
    yield from _snapshot(setting, "the same, concurrency=", _LIMITED_TASKS, {"concurrency": 16})
    yield from _snapshot(setting, "the same, per_key=", _LIMITED_TASKS, {"per_key": 4})


def _snapshot(setting: Setting, name: str, tasks: int, limits: dict[str, int]) -> Iterator[Figure]:
    baseline = open_baseline(setting.url, setting.folder)
    if (old_snapshot := getattr(baseline, "old_snapshot", None)) is None:
        return
    pipeline = one_phase(setting, tasks, keys=_KEYS if "per_key" in limits else 0)
    with old_snapshot():
        marks = setting.worker(pipeline.name, count=tasks, marks=True, limits=limits)["marks"]
    baseline.close()
    thousands = tasks // 1000
    length = thousands // 10
    first, last = (length * 1000 / (marks[end] - marks[end - length]) for end in (length + 2, thousands - 4))
    yield Figure(name, setting.store, last, "tasks/s", first, "at first")


def _nothing() -> None:
    """Do nothing: the store needs no vacuum."""
