"""Benchmarks of a large backlog and of dead rows that a vacuum cannot remove."""

from collections.abc import Iterator

from onerow.cli.bench.ground import Figure, Ground
from onerow.cli.bench.work import one_phase
from onerow.wiring import thin_loop

_TAKE = 20_000
_SNAPSHOT_TASKS = 100_000
_LIMITED_TASKS = 70_000
_KEYS = 1_000


def backlog(ground: Ground) -> Iterator[Figure]:
    """Drain rate with `scale` tasks waiting, against a short backlog."""
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
    """Drain rate late in a backlog while a transaction holds an old snapshot, against the initial rate.

    Measured without limits, with `concurrency=` and with `per_key=`, because each uses a different claim statement.
    """
    yield from _snapshot(ground, "drain, old snapshot", _SNAPSHOT_TASKS, {})
    yield from _snapshot(ground, "the same, concurrency=", _LIMITED_TASKS, {"concurrency": 16})
    yield from _snapshot(ground, "the same, per_key=", _LIMITED_TASKS, {"per_key": 4})


def _snapshot(ground: Ground, name: str, tasks: int, limits: dict[str, int]) -> Iterator[Figure]:
    thin = thin_loop(ground.url, ground.folder)
    if (old_snapshot := getattr(thin, "old_snapshot", None)) is None:
        return
    pipeline = one_phase(ground, tasks, keys=_KEYS if "per_key" in limits else 0)
    with old_snapshot():
        marks = ground.worker(pipeline.name, count=tasks, marks=True, limits=limits)["marks"]
    thin.close()
    thousands = tasks // 1000
    length = thousands // 10
    first, last = (length * 1000 / (marks[end] - marks[end - length]) for end in (length + 2, thousands - 4))
    yield Figure(name, ground.store, last, "tasks/s", first, "at first")


def _nothing() -> None:
    """Do nothing: the store needs no vacuum."""
