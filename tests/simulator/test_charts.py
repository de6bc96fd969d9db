"""What is drawn stays inside of the picture, and nothing covers the lines."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from onerow.simulator.charts import drawn
from onerow.simulator.simulation import simulate
from tests.simulator.kit import small_plan

NAMES = ["reports", "videos of the whole day, encoded in three sizes", "영상 인코딩 — 하루 종일 계속되는 작업"]


@pytest.mark.parametrize(
    "names",
    [
        NAMES[:1],
        NAMES[2:],
        ["long " * 40],
        NAMES,
        ["x" * 200, "y"],
        [f"{name} {number}" for name in NAMES for number in range(4)],
    ],
)
@pytest.mark.filterwarnings("ignore:Glyph:UserWarning")
def test_titles_and_legends_fit_and_cover_no_lines(names: list[str]) -> None:
    result = simulate(small_plan())
    figure = drawn([replace(result, plan=name) for name in names])
    figure.draw_without_rendering()
    whole = figure.bbox
    for axes in figure.axes:
        panel = axes.get_window_extent()
        assert panel.height > 0.1 * whole.height
        if legend := axes.get_legend():
            box = legend.get_window_extent()
            assert box.y0 >= panel.y1 - 1
            assert whole.x0 <= box.x0 < box.x1 <= whole.x1
    for title in figure.texts:  # of one plan; the legend names several
        box = title.get_window_extent()
        assert whole.x0 <= box.x0 < box.x1 <= whole.x1
        assert box.y1 <= whole.y1 + 1


def test_a_single_period_is_visible() -> None:
    result = simulate(small_plan(period=timedelta(minutes=1)))
    assert len(result.periods) == 1
    for axes in drawn([result]).axes:
        assert {line.get_marker() for line in axes.get_lines()} == {"."}
