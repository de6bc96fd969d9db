"""`onerow bench`: measure this machine and store, each figure as a ratio to a minimal baseline in the same run."""

import json
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from onerow.cli.bench.figures import FIGURES
from onerow.cli.bench.ground import Figure, Ground
from onerow.core.errors import BadInput


@click.command("bench")
@click.option("--store", help="Store to measure; default: a new SQLite file. Its tasks are not deleted.")
@click.option("--only", multiple=True, help="Measure only this figure; repeatable.")
@click.option(
    "--tasks",
    type=click.IntRange(1_000, 1_000_000),
    default=40_000,
    show_default=True,
    help="Number of tasks to drain.",
)
@click.option(
    "--runs", type=click.IntRange(1, 20), default=3, show_default=True, help="Number of runs; the median is shown."
)
@click.option(
    "--scale",
    type=click.IntRange(10_000, 5_000_000),
    default=1_000_000,
    show_default=True,
    help="Number of rows in front of a claim.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def command(store: str | None, only: Sequence[str], tasks: int, runs: int, scale: int, as_json: bool) -> None:
    """Measure drain, add, latency, scale, idle cost, logs and commands.

    Where the store has a minimal baseline program, the figure is shown as a ratio to it.
    """
    for name in only:
        if name not in FIGURES:
            raise BadInput(f"no figure {name!r}; there are {', '.join(FIGURES)}", field="only")
    chosen = only or list(FIGURES)
    if not as_json:
        click.echo(f"{'figure':<28}{'value':>12}  {'unit':<12}{'baseline':>12}{'ratio':>8}")
    for name in chosen:
        results: dict[str, list[Figure]] = {}
        for _ in range(runs if FIGURES[name].repeats else 1):
            with tempfile.TemporaryDirectory(prefix="onerow-bench-") as folder:
                for figure in FIGURES[name].measure(Ground(Path(folder), store, tasks, scale)):
                    results.setdefault(figure.figure, []).append(figure)
        for found in results.values():
            _show(_median(found), as_json)


def _median(found: list[Figure]) -> Figure:
    """Return the run with the median ratio (or value)."""
    ranked = sorted(found, key=lambda figure: figure.value if figure.ratio is None else figure.ratio)
    middle = ranked[(len(ranked) - 1) // 2]
    spread = [figure.value for figure in found]
    middle.runs = len(found)
    middle.spread = round((max(spread) - min(spread)) / (statistics.median(spread) or 1), 2) if len(found) > 1 else 0.0
    return middle


def _show(figure: Figure, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(figure.as_dict()))
        return
    baseline = "" if figure.thin is None else f"{figure.thin:,.0f}"
    ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
    click.echo(f"{figure.figure:<28}{figure.value:>12,.1f}  {figure.unit:<12}{baseline:>12}{ratio:>8}")
