"""The timeline of a task: one line per phase, drawn with block characters; idle time is folded."""

from collections.abc import Sequence
from datetime import timedelta
from itertools import groupby
from typing import NamedTuple

from rich.text import Text

from onerow.cli import formatting
from onerow.core.durations import spell_duration
from onerow.engine.output.terminal import neutral
from onerow.engine.views import PhaseSpan, Segment, TaskDetail
from onerow.tui.cells import fit

GLYPHS = {
    "waiting": ("░", "yellow", "in line"),
    "scheduled": ("·", "dim", "not due"),
    "running": ("█", "cyan", "running"),
    "back-off": ("╌", "red", "back-off"),
    "sleeping": ("~", "dim", "sleeping"),
    "signal": ("┈", "magenta", "waiting for a signal"),
    "children": ("┄", "magenta", "waiting for children"),
    "paused": ("▒", "yellow", "paused"),
    "ended": (" ", "", ""),
    "unknown": ("?", "dim", "history dropped"),
}
_NAME, _SUMMARY, _LEAST = 20, 30, 20


class Bar(NamedTuple):
    """A segment and the cells that it takes."""

    segment: Segment
    start: int
    end: int
    folded: bool


def place_bars(segments: Sequence[Segment], width: int, *, fold: bool) -> list[Bar]:
    """Place segments on `width` cells in proportion to their length; folded ones take the width of their label."""
    labels = [len(_fold_label(each)) if fold and each.foldable else 0 for each in segments]
    if sum(labels) > width // 2:
        labels = [0 for _ in segments]
    free = max(1, width - sum(labels))
    spans = [0 if label else max(1, each.ms) for each, label in zip(segments, labels, strict=True)]
    total = max(1, sum(spans))
    found = []
    at = 0.0
    for each, label, span in zip(segments, labels, spans, strict=True):
        after = at + (label or span / total * free)
        start = min(round(at), width - 1)
        end = min(max(round(after), start + 1), width)
        found.append(Bar(each, start, end, bool(label)))
        at = after
    return found


def draw_timeline(detail: TaskDetail, width: int, *, fold: bool) -> Text:
    """Return the timeline in lines of at most `width` cells."""
    name = min(_NAME, max((len(span.phase) for span in detail.spans), default=0)) + 1
    summary = _SUMMARY if width >= name + _SUMMARY + 2 * _LEAST else 14
    room = max(_LEAST, width - name - summary - 2)
    bars = place_bars(detail.segments, room, fold=fold)
    text = Text(no_wrap=True, overflow="crop")
    for span in detail.spans:
        here = span.state == "here"
        text.append(
            " " + fit(neutral(span.phase), name), "bold" if here else "dim" if span.state == "not-reached" else ""
        )
        _draw_line(text, [bar for bar in bars if bar.segment.phase == span.phase], room)
        text.append(" " + fit(_summary(span, detail), summary).rstrip() + "\n", "" if here else "dim")
    for glyph, style, meaning in _legend([bar.segment for bar in bars]):
        text.append(f" {glyph}", style)
        text.append(f" {meaning} ", "dim")
    if any(bar.folded for bar in bars):
        text.append(" ⟨⟩ idle time folded (i)", "dim")
    return text


def _legend(segments: Sequence[Segment]) -> list[tuple[str, str, str]]:
    """Return the signs that are in use, with their styles and meanings."""
    kinds = {each.kind for each in segments}
    found = [each for kind, each in GLYPHS.items() if kind in kinds - {"running"} and each[2]]
    runs = {_run_sign(each) for each in segments if each.kind == "running"}
    return found + [each for each in _RUNS if each in runs]


_RUNS = (("▶", "cyan", "running"), ("█", "green", "ran"), ("✗", "red", "failed"))


def _run_sign(segment: Segment) -> tuple[str, str, str]:
    """Return the tip of a run, its style and its meaning."""
    if segment.open:
        return _RUNS[0]
    return _RUNS[2 if segment.error_class or segment.outcome in ("failed", "rescued") else 1]


def _draw_line(text: Text, bars: Sequence[Bar], width: int) -> None:
    cells = [(" ", "")] * width
    # Runs over the rest: an attempt that is shorter than a cell must not be hidden by the wait before or after it.
    for bar in sorted(bars, key=lambda bar: bar.segment.kind == "running"):
        glyph, style, _ = GLYPHS[bar.segment.kind]
        long = bar.end - bar.start
        if bar.folded:
            drawn, style = fit(_fold_label(bar.segment), long), style or "dim"
        elif bar.segment.kind == "running":
            tip, style, _ = _run_sign(bar.segment)
            drawn = "█" * (long - 1) + tip
        else:
            drawn = glyph * long
        cells[bar.start : bar.end] = [(char, style) for char in drawn]
    for style, group in groupby(cells, key=lambda cell: cell[1]):
        text.append("".join(char for char, _ in group), style)


def _fold_label(segment: Segment) -> str:
    return f"⟨{formatting.span(segment.ms / 1000)}⟩"


def _summary(span: PhaseSpan, detail: TaskDetail) -> str:
    if span.state == "not-reached":
        return "not reached"
    parts = []
    if span.run_ms:
        parts.append(formatting.millis(span.run_ms))
    if span.attempts > 1:
        parts.append(f"{span.attempts} attempts")
    if span.state == "here" and (progress := formatting.progress(detail.view.task["progress"])):
        parts.append(progress)
    if span.idle_ms >= 1000:
        parts.append(f"idle {formatting.millis(span.idle_ms)}")
    if not parts:
        parts.append("here" if span.state == "here" else "done")
    return neutral(" · ".join(parts))


def life_text(detail: TaskDetail) -> str:
    """Return how long the task has lived, and how long of that it ran."""
    ran = sum(each.ms for each in detail.segments if each.kind == "running")
    total = sum(each.ms for each in detail.segments if each.kind != "ended")
    spelled = spell_duration(timedelta(seconds=total // 1000))
    return f"total {spelled}, running {formatting.span(ran / 1000)}"
