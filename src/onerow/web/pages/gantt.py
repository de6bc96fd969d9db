"""The timeline of a task as geometry: one row for each phase, bars with open ends, folded idle time, usual run times."""

from bisect import bisect_right
from collections.abc import Sequence
from datetime import datetime

import msgspec

from onerow.engine.views import Moment, PhaseSpan, Segment, StepLine

LEFT, WIDTH, RIGHT, ROW, BAR = 160.0, 690.0, 210.0, 30.0, 14.0
_FOLDED = 72.0
_NARROWEST = 2.0
_CLASSES = {
    "waiting": "g-wait", "scheduled": "g-wait", "unknown": "g-wait", "back-off": "g-backoff", "sleeping": "g-park",
    "signal": "g-park", "children": "g-park", "paused": "g-pause",
}  # fmt: skip
_GOOD = ("advanced", "completed", "skipped")
_ACTS = ("retry", "replay", "cancel", "finish", "fail", "reschedule", "set_priority", "signal", "rescued")


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """One bar."""

    kind: str  # class of the style sheet
    segment: Segment
    x: float
    y: float
    width: float
    label: str = ""  # of folded time


class Mark(msgspec.Struct, frozen=True):
    """A step or an act at a time."""

    kind: str  # g-step or g-flag
    x: float
    y: float
    text: str
    at: datetime


class Ghost(msgspec.Struct, frozen=True):
    """The usual run time of a phase, drawn from where its last attempt began."""

    x: float
    y: float
    width: float
    ms: int


class Gantt(msgspec.Struct, frozen=True, kw_only=True):
    """The whole picture."""

    rows: list[tuple[PhaseSpan, float]]  # with the top of the row
    bars: list[Bar]
    marks: list[Mark]
    ghosts: list[Ghost]
    left: float = LEFT
    room: float = WIDTH
    width: float = LEFT + WIDTH + RIGHT
    height: float
    foldable: bool
    began_at: datetime | None
    ended_at: datetime | None


class Scale:
    """Time to x; folded segments have a fixed width."""

    def __init__(self, segments: Sequence[Segment], fold: bool) -> None:
        folded = [fold and each.foldable for each in segments]
        room = max(WIDTH - _FOLDED * sum(folded), WIDTH / 4)
        narrow = (WIDTH - room) / max(1, sum(folded))
        lasting = [(each.ended_at - each.began_at).total_seconds() for each in segments]
        visible = sum(span for span, is_folded in zip(lasting, folded, strict=True) if not is_folded) or 1.0
        self._begins = [each.began_at for each in segments]
        self._spans = lasting
        self._xs, at = [], LEFT
        self._widths = [
            narrow if hidden else room * span / visible for span, hidden in zip(lasting, folded, strict=True)
        ]
        for width in self._widths:
            self._xs.append(at)
            at += width
        self.per_second = room / visible

    def __call__(self, moment: datetime) -> float:
        number = max(0, bisect_right(self._begins, moment) - 1)
        if not self._begins:
            return LEFT
        inside = (moment - self._begins[number]).total_seconds() / (self._spans[number] or 1.0)
        return self._xs[number] + self._widths[number] * min(1.0, max(0.0, inside))


def draw(
    segments: Sequence[Segment],
    spans: Sequence[PhaseSpan],
    steps: Sequence[StepLine],
    history: Sequence[Moment],
    *,
    fold: bool,
) -> Gantt:
    """Return the picture of a task's life."""
    tops = {span.phase: number * ROW for number, span in enumerate(spans)}
    scale = Scale(segments, fold)
    bars, ghosts = [], []
    for each in segments:
        if each.kind == "ended":
            continue
        x, end, top = scale(each.began_at), scale(each.ended_at), tops.get(each.phase, 0.0)
        label = "⟨⟩" if fold and each.foldable else ""
        bars.append(Bar(kind=_class(each), segment=each, x=x, y=top + 6, width=max(end - x, _NARROWEST), label=label))
    for span in spans:
        runs = [each for each in segments if each.phase == span.phase and each.kind == "running"]
        if runs and span.p50_ms:
            x = scale(runs[-1].began_at)
            width = min(span.p50_ms / 1000 * scale.per_second, LEFT + WIDTH - x)
            ghosts.append(Ghost(x, tops[span.phase] + 3, max(width, _NARROWEST), span.p50_ms))
    marks = [
        Mark("g-step", scale(each.at), tops.get(each.phase, 0.0) + 23, each.name, each.at) for each in steps if segments
    ]
    marks += [
        Mark("g-flag", scale(each.at), tops.get(each.phase, 0.0) + 3, f"{each.what} {each.by}".strip(), each.at)
        for each in history
        if each.what in _ACTS and segments and each.phase in tops
    ]
    return Gantt(
        rows=[(span, tops[span.phase]) for span in spans], bars=bars, marks=marks, ghosts=ghosts,
        height=ROW * len(spans) + 18, foldable=any(each.foldable for each in segments),
        began_at=segments[0].began_at if segments else None, ended_at=segments[-1].ended_at if segments else None,
    )  # fmt: skip


def _class(segment: Segment) -> str:
    if segment.kind != "running":
        return _CLASSES.get(segment.kind, "g-wait")
    if segment.open:
        return "g-run g-open"
    return "g-ok" if segment.outcome in _GOOD else "g-bad" if segment.error_class else "g-run"
