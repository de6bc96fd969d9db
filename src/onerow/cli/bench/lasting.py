"""Figures of a queue that has grown, or whose dead rows nobody may clean away."""

from collections.abc import Iterator

from onerow.cli.bench.ground import Figure, Ground
from onerow.cli.bench.work import one_phase
from onerow.wiring import thin_loop

_TAKE = 20_000
_SNAPSHOT_TASKS = 100_000


def backlog(ground: Ground) -> Iterator[Figure]:
    """A worker's rate with very many tasks waiting, against the same number of tasks with few behind them."""
    thin = thin_loop(ground.url, ground.folder)
    rates = []
    for waiting in (_TAKE + 1_000, ground.scale):
        pipeline = one_phase(ground, waiting)
        getattr(thin, "tidy", _nothing)()
        rates.append(ground.worker(pipeline.name, count=_TAKE, enough=True)["rate"])
    thin.close()
    few, many = rates
    yield Figure(
        f"drain, {ground.scale:,} waiting",
        ground.store,
        many,
        "tasks/s",
        few,
        f"{_TAKE + 1_000:,} waiting",
    )


def snapshot(ground: Ground) -> Iterator[Figure]:
    """A worker's rate after 80,000 tasks while somebody holds an old snapshot open, against its rate at first."""
    thin = thin_loop(ground.url, ground.folder)
    if (old_snapshot := getattr(thin, "old_snapshot", None)) is None:
        return
    pipeline = one_phase(ground, _SNAPSHOT_TASKS)
    with old_snapshot():
        marks = ground.worker(pipeline.name, count=_SNAPSHOT_TASKS, marks=True)["marks"]
    thin.close()
    first, last = (10_000 / (marks[end] - marks[end - 10]) for end in (12, 92))
    yield Figure("drain, old snapshot", ground.store, last, "tasks/s", first, "at first")


def _nothing() -> None:
    """A store that cleans up as it goes."""
