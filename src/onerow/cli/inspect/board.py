"""The board as rows of cells, for a terminal, a pipe and the picture in the README."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from onerow.cli import formatting
from onerow.cli.output import Cell, Output, rich_table, styled
from onerow.engine.views import Board, Lane, Overview, PipelineBoard, Views

COLUMNS = (
    "phase", ">waiting", "running", ">parked", ">failed", ">a minute", "last 20 min", ">p50", ">p95", ">oldest", "state",
)  # fmt: skip
_BARS = "▁▂▃▄▅▆▇█"
_MOST_BOXES = 8
_CURVE = timedelta(minutes=20)

Curves = dict[tuple[str, str], list[int]]


def look(views: Views) -> tuple[Overview, Board, Curves]:
    """Read everything that the board shows."""
    return views.overview(), views.board(), _curves(views)


def _curves(views: Views) -> Curves:
    found = views.minutes(_CURVE)
    minutes = sorted(found)
    phases = {phase for by_phase in found.values() for phase in by_phase}
    return {
        phase: [found[minute][phase].done if phase in found[minute] else 0 for minute in minutes[-10:]]
        for phase in phases
    }


def pipeline_rows(pipeline: PipelineBoard, curves: Curves, now: datetime) -> list[list[Cell]]:
    """Return one row per phase of a pipeline."""
    return [_lane_row(lane, curves.get((lane.pipeline, lane.phase), []), now) for lane in pipeline.lanes]


def _lane_row(lane: Lane, counts: Sequence[int], now: datetime) -> list[Cell]:
    return [
        (phase_text(lane), "bold"),
        (formatting.number(lane.waiting), "yellow"),
        (slots_text(lane), "cyan"),
        (formatting.number(lane.parked), "magenta"),
        (formatting.number(lane.failed), "bold red"),
        formatting.number(lane.per_minute),
        (curve(counts), "green"),
        formatting.millis(lane.run_p50),
        formatting.millis(lane.run_p95),
        formatting.ago(lane.oldest, now) if lane.oldest is not None and lane.oldest <= now else "",
        state_cell(lane, now),
    ]


def phase_text(lane: Lane) -> str:
    """Return the name of a phase, with the signal or the payload field that it waits for."""
    return f"{lane.phase} ({lane.waits_for})" if lane.waits_for else lane.phase


def waits_cell(lane: Lane) -> Cell:
    """Return what a phase without code waits for, where its name has no room for it."""
    return (f"waits for {lane.waits_for}", "dim") if lane.waits_for else ""


def slots_text(lane: Lane) -> str:
    """Return the running tasks of a phase as used and free slots."""
    if lane.limit is None or lane.limit > _MOST_BOXES:
        most = "" if lane.limit is None else f"/{lane.limit}"
        return f"{lane.processing}{most}" if lane.processing else ""
    used = min(lane.processing, lane.limit)
    over = f" {lane.processing}" if lane.processing > lane.limit else ""
    return "■" * used + "□" * (lane.limit - used) + over


def curve(counts: Sequence[int]) -> str:
    """Return a small bar chart in one line; '' without any count."""
    most = max(counts, default=0)
    return "".join(_BARS[round(count / most * 7)] for count in counts) if most else ""


def state_cell(lane: Lane, now: datetime) -> Cell:
    """Return why a phase does not run its tasks; '' if it does."""
    if lane.paused is not None:
        why = f": {lane.paused.reason}" if lane.paused.reason else f" by {lane.paused.by}"
        return f"paused{why}", "yellow"
    if lane.held_until is not None:
        why = f": {lane.held_why[:60]}" if lane.held_why else ""
        return f"held, {formatting.due(lane.held_until, now)}{why}", "yellow"
    if not lane.kind:
        return "no code knows it", "red"
    if lane.has_code and not lane.workers and (lane.waiting or lane.processing):
        return "no worker", "red"
    return ""


def headline(overview: Overview) -> str:
    """Summarize the store in one line."""
    parts = [
        f"{overview.waiting:,} waiting",
        f"{overview.processing:,} running",
        f"{overview.parked:,} parked",
        f"{overview.failed:,} failed",
        f"{overview.completed:,} completed",
    ]
    workers = f"{overview.workers} worker" + ("" if overview.workers == 1 else "s")
    return f"{workers} · " + " · ".join(parts)


def print_board(out: Output, views: Views) -> None:
    """Print the board once, as text."""
    overview, board, curves = look(views)
    out.line(headline(overview))
    for pipeline in board.pipelines:
        out.line()
        out.table(COLUMNS, pipeline_rows(pipeline, curves, board.at), title=pipeline.name)


def rich_board(views: Views) -> Any:
    """Return the board for a live terminal display."""
    from rich.console import Group
    from rich.text import Text

    overview, board, curves = look(views)
    parts: list[Any] = [
        Text.assemble(("onerow ", "bold"), (f"{overview.store}  ", "dim"), (f"{overview.at:%H:%M:%S}Z", "dim")),
        Text(headline(overview)),
    ]
    for pipeline in board.pipelines:
        parts.append(Text())
        parts.append(Text(pipeline.name, style="bold underline"))
        parts.append(rich_table(COLUMNS, styled(pipeline_rows(pipeline, curves, board.at))))
    if any("□" in slots_text(lane) for pipeline in board.pipelines for lane in pipeline.lanes):
        parts.append(Text("\n■ running   □ free slot", style="dim"))
    if not board.pipelines:
        parts.append(Text("\nno pipeline yet: start a worker, or onerow publish APP", style="yellow"))
    return Group(*parts)
