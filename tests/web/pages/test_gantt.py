"""The picture of a task's timeline: where bars, usual run times, steps and acts are drawn."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onerow.engine.views import Moment, PhaseSpan, Segment, StepLine
from onerow.web.pages.gantt import LEFT, ROW, WIDTH, Gantt, draw

BEGIN = datetime(2026, 11, 19, 9, tzinfo=UTC)
SPANS = [
    PhaseSpan(phase="script", state="done"),
    PhaseSpan(phase="video", state="here", p50_ms=30_000),
    PhaseSpan(phase="upload", state="not-reached"),
]


def after(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def line(*parts: tuple[str, float, dict[str, Any]]) -> list[Segment]:
    """Segments of the phase video, one after another, each of a kind and a number of seconds."""
    found, at = [], 0.0
    for kind, lasts, more in parts:
        found.append(
            Segment(kind=kind, phase="video", began_at=after(at), ended_at=after(at + lasts), **more)  # type: ignore[arg-type]
        )
        at += lasts
    return found


def drawn(segments: list[Segment], fold: bool = True, **more: Any) -> Gantt:
    return draw(segments, SPANS, more.get("steps", []), more.get("history", []), fold=fold)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["waiting", "running", "back-off", "signal", "paused", "sleeping"]),
            st.floats(0, 10_000_000),
            st.booleans(),
        ),
        max_size=20,
    ),
    st.booleans(),
)
def test_bars_follow_each_other_inside_the_picture(parts: list[tuple[str, float, bool]], fold: bool) -> None:
    gantt = drawn(line(*((kind, lasts, {"foldable": foldable}) for kind, lasts, foldable in parts)), fold)
    assert len(gantt.bars) == len(parts)
    assert all(LEFT <= bar.x <= LEFT + WIDTH + 0.01 and bar.width >= 2 for bar in gantt.bars)
    assert all(bar.x + bar.width <= LEFT + WIDTH + 2.01 for bar in gantt.bars)
    assert all(one.x + one.width <= two.x + 2.01 for one, two in pairwise(gantt.bars))
    assert all(ghost.x >= LEFT and ghost.x + ghost.width <= LEFT + WIDTH + 2.01 for ghost in gantt.ghosts)


def test_idle_time_is_folded_so_that_work_can_be_seen() -> None:
    segments = line(("signal", 180_000.0, {"foldable": True}), ("running", 60.0, {}), ("waiting", 60.0, {}))
    folded, whole = drawn(segments), drawn(segments, fold=False)
    assert folded.foldable
    assert [bar.label for bar in folded.bars] == ["⟨⟩", "", ""]
    assert folded.bars[1].width == pytest.approx(folded.bars[2].width)
    assert folded.bars[1].width > 100
    assert whole.bars[0].width > 600
    assert [bar.label for bar in whole.bars] == ["", "", ""]


def test_each_kind_of_time_has_its_look() -> None:
    segments = line(
        ("waiting", 1, {}), ("running", 1, {"outcome": "failed", "error_class": "network"}), ("back-off", 1, {}),
        ("running", 1, {"outcome": "advanced"}), ("running", 1, {"outcome": "completed"}),
        ("running", 1, {"outcome": "parked"}), ("signal", 1, {}), ("paused", 1, {}), ("ended", 1, {}),
        ("running", 1, {"open": True}),
    )  # fmt: skip
    assert [bar.kind for bar in drawn(segments).bars] == [
        "g-wait", "g-bad", "g-backoff", "g-ok", "g-ok", "g-run", "g-park", "g-pause", "g-run g-open",
    ]  # fmt: skip


def test_the_usual_run_time_begins_where_the_last_attempt_began_and_ends_in_the_picture() -> None:
    segments = line(
        ("running", 60, {"outcome": "failed", "error_class": "timeout"}), ("waiting", 20, {}), ("running", 20, {})
    )
    (ghost,) = drawn(segments).ghosts
    last = drawn(segments).bars[-1]
    assert (ghost.x, ghost.ms) == (last.x, 30_000)
    assert ghost.width == pytest.approx(last.width)  # 30 s are usual, but the picture ends after 20
    assert drawn(line(("waiting", 20, {}))).ghosts == []


def test_steps_and_acts_are_marked_in_the_row_of_their_phase_at_their_time() -> None:
    segments = line(("running", 100, {}))
    steps = [StepLine(phase="video", name="outline", kind="step", at=after(25))]
    history = [
        Moment(at=after(50), what="retry", phase="video", by="kim"),
        Moment(at=after(60), what="advanced", phase="video"),
        Moment(at=after(70), what="cancel", phase="unknown"),
    ]
    gantt = drawn(segments, steps=steps, history=history)
    assert [(mark.kind, mark.text) for mark in gantt.marks] == [("g-step", "outline"), ("g-flag", "retry kim")]
    assert [mark.x for mark in gantt.marks] == [LEFT + WIDTH / 4, LEFT + WIDTH / 2]
    assert all(ROW < mark.y < 2 * ROW for mark in gantt.marks)


def test_times_before_the_addition_are_drawn_at_its_beginning() -> None:
    steps = [StepLine(phase="video", name="skewed", kind="step", at=after(-30))]
    (mark,) = drawn(line(("running", 10, {})), steps=steps).marks
    assert mark.x == LEFT
    assert drawn([], steps=steps).marks == []
