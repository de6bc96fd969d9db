"""Measure this machine and store: python -m bench [--store URL] [--only FIGURE …] [--json].

Each figure is compared with a minimal baseline, or with a simpler case, in the same run.
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path

from bench.figures import FIGURES
from bench.setting import Figure, Setting


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--store", metavar="URL", help="store to measure (the tasks stay there); default: a new SQLite file"
    )
    parser.add_argument("--only", action="append", choices=list(FIGURES), help="measure only this figure; repeatable")
    parser.add_argument("--tasks", type=int, default=40_000, help="number of tasks to drain")
    parser.add_argument("--runs", type=int, default=3, help="number of runs; the median is shown")
    parser.add_argument("--scale", type=int, default=1_000_000, help="number of rows in front of a claim")
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    given = parser.parse_args()
    if not given.json:
        print(f"{'figure':<28}{'value':>12}  {'unit':<12}{'compared':>12}{'ratio':>8}  with")
    for name in given.only or FIGURES:
        results: dict[str, list[Figure]] = {}
        for _ in range(given.runs if FIGURES[name].repeats else 1):
            with tempfile.TemporaryDirectory(prefix="onerow-bench-") as folder:
                for figure in FIGURES[name].measure(Setting(Path(folder), given.store, given.tasks, given.scale)):
                    results.setdefault(figure.figure, []).append(figure)
        for found in results.values():
            _show(_median(found), given.json)


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
        print(json.dumps(figure.as_dict()), flush=True)
        return
    reference = "" if figure.reference is None else f"{figure.reference:,.1f}"
    ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
    line = f"{figure.figure:<28}{figure.value:>12,.1f}  {figure.unit:<12}{reference:>12}{ratio:>8}  {figure.compared_with or ''}"
    print(line.rstrip(), flush=True)


if __name__ == "__main__":
    main()
