"""Charts of simulations as PNG or SVG; needs the extra `charts` (matplotlib)."""

import warnings
from collections.abc import Sequence
from itertools import cycle
from math import nan
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from onerow.core.errors import BadInput
from onerow.simulator.measurements import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TITLE = 45  # characters in a line; those of some languages are as wide as high
_LABEL = 60  # characters in a line of the legend
_MARKED = 48  # periods
_FONTS = ("DejaVu Sans", "Noto Sans CJK KR", "Noto Sans CJK JP", "Noto Sans CJK SC", "Noto Emoji")
_BLUE, _RED, _GREEN, _YELLOW = "#1f6feb", "#d1495b", "#2a9d5c", "#b07d12"
_COLOURS = (_BLUE, _RED, _GREEN, _YELLOW, "#7b4fb5", "#4a5560")
_SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",  # text stays text, in the reader's fonts
    "svg.hashsalt": "onerow",  # the same chart gives the same file
    "font.size": 9,
    "axes.grid": True,
    "grid.color": "#e3e6ea",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#8a929c",
    "legend.frameon": False,
    "text.parse_math": False,  # a name may contain dollar signs
}


def check_chart_file(path: Path) -> None:
    """Raise BadInput unless a chart can be written there, before the simulation takes its time."""
    if path.suffix.lower() not in (".png", ".svg"):
        raise BadInput(f"--chart: {path.name!r} must end with .png or .svg", field="chart")
    if not path.parent.is_dir():
        raise BadInput(f"--chart: there is no folder {path.parent}", field="chart")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise BadInput("charts need matplotlib", fix="pip install 'onerow[charts]'", field="chart") from None


def write_chart(results: Sequence[Result], path: Path) -> str | None:
    """Draw backlog, workers, waits and cost over time; of several results, one line each.

    Return a hint if this machine has no font for some characters of a PNG.
    """
    import matplotlib

    with matplotlib.rc_context(_settings()):
        figure = drawn(results)
        metadata = {"Date": None} if path.suffix.lower() == ".svg" else {}
        try:
            with warnings.catch_warnings(record=True) as found:
                warnings.simplefilter("always")
                figure.savefig(path, dpi=130, metadata=metadata)
        except OSError as error:
            raise BadInput(f"--chart: can't write {path}: {error}", field="chart") from None
    if path.suffix.lower() == ".png" and any("missing from font" in str(each.message) for each in found):
        return "some characters have no font on this machine; install fonts-noto-cjk, or write an .svg"
    return None


def _settings() -> Any:
    from matplotlib import font_manager

    known = {font.name for font in font_manager.fontManager.ttflist}
    fonts = [font for font in _FONTS if font in known]
    return _SETTINGS | {"font.family": fonts or ["sans-serif"]}


def drawn(results: Sequence[Result]) -> "Figure":
    """Return the chart of some results."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 8.6), layout="constrained")
    backlog, workers, waits, cost = panels = list(figure.subplots(4, 1, sharex=True))
    unit, seconds = _unit(max(result.lasted for result in results))
    single = len(results) == 1
    columns = 3 if single else min(3, max(1, _LABEL // max(len(_cut(result.plan)) + 5 for result in results)))
    if single:  # else the legend names the plans
        figure.suptitle(fill(results[0].plan, _TITLE), fontsize=11)
    for result, colour in zip(results, cycle(_COLOURS)):
        at = [period.at / seconds for period in result.periods]
        lines: list[tuple[Axes, Sequence[float | None], str, str]] = [
            (backlog, [period.most_backlog for period in result.periods], "backlog", colour),
            (workers, [period.workers for period in result.periods], "workers", colour),
            (waits, [period.wait_p99 for period in result.periods], "p99", _RED if single else colour),
            (cost, [period.cost_per_thousand for period in result.periods], "cost", colour),
        ]
        if single:
            busy = [period.running / result.slots for period in result.periods]
            lines += [
                (workers, busy, "busy (running tasks / slots)", _GREEN),
                (waits, [period.wait_p95 for period in result.periods], "p95", _YELLOW),
                (waits, [period.wait_p50 for period in result.periods], "p50", _GREEN),
            ]
        for axes, values, name, its_colour in lines:
            shown = [nan if value is None else value for value in values]
            axes.plot(
                at,
                shown,
                label=name if single else _cut(result.plan),
                color=its_colour,
                linewidth=1.4,
                # A period between others without a value has no line.
                marker="." if len(at) <= _MARKED else "",
                markersize=4,
            )
    for axes, name in zip(
        panels, ("tasks due,\nnot started", "workers", "wait (s)", "cost per\nthousand tasks"), strict=True
    ):
        axes.set_ylabel(name)
        axes.set_ylim(bottom=0, top=None if axes.dataLim.ymax > 0 else 1)
        axes.margins(x=0)
        if axes in (workers, waits) if single else axes is backlog:
            # Above the panel, where it covers no line.
            axes.legend(loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0, ncols=columns, fontsize=8)
    waits.set_ylabel("wait (s)" if single else "wait p99 (s)")
    cost.set_xlabel(f"{unit} from the start")
    return figure


def _cut(name: str) -> str:
    return name if len(name) <= _LABEL - 5 else f"{name[: _LABEL - 6]}…"


def _unit(lasted: float) -> tuple[str, float]:
    if lasted > 2 * 86_400:
        return "days", 86_400
    if lasted > 2 * 3_600:
        return "hours", 3_600
    return ("minutes", 60) if lasted > 120 else ("seconds", 1)
