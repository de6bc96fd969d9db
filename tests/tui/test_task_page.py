"""The page of one task: tabs, timeline, log, neighbours."""

import stat
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.cells import cell_len

from onerow.engine.queue.queue import Queue
from onerow.engine.views import Segment, Views
from onerow.ports import LogLine
from onerow.tui.json_tree import tree_lines
from onerow.tui.timeline import GLYPHS, draw_timeline, place_bars
from tests.samples import NOW, a_task
from tests.tui.conftest import Session, opened, run


async def open_task(session: Session, task_id: str) -> None:
    await session.press("colon")
    await session.type(f"task {task_id}")
    await session.press("enter")
    await session.sees("attempts", task_id)


def test_every_tab_of_a_task(queue: Queue) -> None:
    async def test() -> None:
        async with opened(queue) as session:
            await open_task(session, "parked")
            await session.sees("It is parked for the signal images.ready", "$ onerow signal parked images.ready", "No attempt yet.")  # fmt: skip
            for texts in (
                ("This task has logged nothing yet.",),
                ("results: {1}", 'script: "글"'),
                ("waits for the signal images.ready",),
                ("It has no parent and no children.",),
                ("added",),
            ):
                await session.press("tab")
                await session.sees(*texts)
            await session.press("shift+tab")
            await session.sees("It has no parent")

    run(test)


def test_the_log_is_followed_filtered_searched_and_saved(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    queue.store.append_log([LogLine("runs", NOW, "video", 1, "info", f"frame {n}") for n in range(100)])

    async def test() -> None:
        async with opened(queue) as session:
            await open_task(session, "runs")
            await session.press("tab")
            await session.sees("frame 99", "following")
            queue.store.append_log([LogLine("runs", NOW, "video", 1, "warning", "부드러운 frame")])
            await session.sees("부드러운 frame")
            await session.press("up", "up")
            await session.sees("f: follow")
            queue.store.append_log([LogLine("runs", NOW, "video", 1, "info", "later")])
            await session.read()
            assert "later" not in session.text
            await session.press("f")
            await session.sees("later", "following")
            await session.press("l", "l")
            await session.sees("level warning")
            await session.until(lambda: "frame 99" not in session.text)
            await session.press("l", "l", "slash")
            await session.type("frame 12")
            await session.press("enter")
            await session.sees("frame 12")
            await session.press("w")
            await session.press("enter")
            await session.sees("wrote 102 lines")
            assert (tmp_path / "runs.log").read_text().count("\n") == 102
            assert stat.S_IMODE((tmp_path / "runs.log").stat().st_mode) == 0o600
            await session.press("w", "enter")
            await session.sees("not saved", "File exists")
            await session.press("w", *["backspace"] * 8)
            await session.type("~no-such-user/runs.log")
            await session.press("enter")
            await session.sees("home directory")

    run(test)


def test_values_fold_and_unfold(queue: Queue) -> None:
    queue.store.insert([a_task("deep", payload={"a": {"b": {"c": [1, 2, {"d": "끝"}]}}}, created_at=NOW, run_at=NOW)])

    async def test() -> None:
        async with opened(queue) as session:
            await open_task(session, "deep")
            await session.press("tab", "tab")
            await session.sees("▾ payload: {1}", "▸ b: {1}")
            await session.press("down", "down", "enter")
            await session.sees("▸ c: [3]")
            await session.press("enter")
            await session.until(lambda: "▸ c: [3]" not in session.text)

    run(test)


def test_parent_and_children_are_linked(queue: Queue) -> None:
    queue.store.insert(
        [
            a_task("mother", title="Mother", created_at=NOW, run_at=NOW),
            a_task("child", title="Child", parent_id="mother", created_at=NOW, run_at=NOW),
        ]
    )

    async def test() -> None:
        async with opened(queue) as session:
            await open_task(session, "mother")
            await session.press("shift+tab", "shift+tab")
            await session.sees("children: 1 waiting in script", "Child")
            await session.press("down", "enter")
            await session.until(lambda: session.monitor.trail.here.argument == "child")
            await session.sees("parent", "Mother")
            await session.press("escape")
            await session.until(lambda: session.monitor.trail.here.argument == "mother")

    run(test)


def test_brackets_go_to_the_neighbours_in_the_list_and_i_unfolds_idle_time(queue: Queue) -> None:
    async def test() -> None:
        async with opened(queue) as session:
            await session.press("2")
            await session.sees("Tides")
            await session.press("enter")
            await session.sees("attempts")
            first = session.monitor.trail.here.argument
            await session.press("right_square_bracket")
            await session.until(lambda: session.monitor.trail.here.argument != first)
            await session.press("left_square_bracket")
            await session.until(lambda: session.monitor.trail.here.argument == first)
            await open_task(session, "failed")
            await session.sees("idle time folded")
            await session.press("i")
            await session.until(lambda: "idle time folded" not in session.text)
            await session.press("y")
            await session.sees("copied failed")

    run(test)


def test_a_task_is_found_by_the_beginning_of_its_id(queue: Queue) -> None:
    async def test() -> None:
        async with opened(queue) as session:
            await session.press("colon")
            await session.type("parke")
            await session.press("enter")
            await session.sees("It is parked for the signal")
            queue.store.insert([a_task(f"wide-{number}", created_at=NOW, run_at=NOW) for number in range(2)])
            await session.press("colon")
            await session.type("task wide")
            await session.press("enter")
            await session.sees("several tasks begin with 'wide': ", "wide-0", "wide-1")
            assert "not reached" not in session.text  # of the task before

    run(test)


def test_a_short_attempt_is_drawn_between_long_waits(queue: Queue) -> None:
    times = [NOW + timedelta(seconds=at) for at in (0, 100, 100.1, 100.2, 200, 200.1, 300)]
    kinds = ("scheduled", "waiting", "running", "back-off", "waiting", "back-off")
    segments = [
        Segment(kind=kind, phase="video", began_at=began, ended_at=ended, error_class="unknown")  # type: ignore[arg-type]
        for kind, began, ended in zip(kinds, times, times[1:], strict=False)
    ]
    detail = replace(Views(queue).detail("runs"), segments=segments)
    assert "✗" in draw_timeline(detail, 110, fold=False).plain.split("\n")[3]


def test_retries_are_counted_from_the_last_manual_one(queue: Queue) -> None:
    queue.store.insert([a_task("tried", attempt=1, retry_count=5, retry_base=3, max_retries=2)])

    async def test() -> None:
        async with opened(queue) as session:
            await open_task(session, "tried")
            await session.sees("2 of 2 retries used")

    run(test)


@given(
    st.lists(st.tuples(st.sampled_from(sorted(GLYPHS)), st.integers(0, 10**9), st.booleans()), max_size=30),
    st.integers(1, 150),
    st.booleans(),
)
def test_bars_stay_in_their_line_and_in_order(parts: list[tuple[str, int, bool]], width: int, fold: bool) -> None:
    at, segments = NOW, []
    for kind, ms, foldable in parts:
        end = at + timedelta(milliseconds=ms)
        segments.append(Segment(kind=kind, phase="p", began_at=at, ended_at=end, foldable=foldable))  # type: ignore[arg-type]
        at = end
    bars = place_bars(segments, width, fold=fold)
    assert all(0 <= bar.start < bar.end <= width for bar in bars)
    assert [bar.start for bar in bars] == sorted(bar.start for bar in bars)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4), max_leaves=20))  # fmt: skip
def test_a_tree_of_any_value_has_printable_lines(value: object) -> None:
    for line in tree_lines("payload", value, ()):
        assert "\n" not in line.value
        assert cell_len(line.value) >= 0


def test_a_dialog_does_not_change_the_widths_of_a_page(queue: Queue) -> None:
    """Textual's styles of a widget, which are loaded with the first dialog, apply to every class of that name."""

    async def test() -> None:
        async with opened(queue) as session:
            await session.press("p", "escape")
            await open_task(session, "waits")
            page = session.monitor.page
            assert page is not None
            assert {part.outer_size.width for part in page.children if part.display} == {110}

    run(test)


def test_a_long_traceback_can_be_read_to_its_end(queue: Queue) -> None:
    frames = "".join(f'  File "/srv/app/studio.py", line {n}, in step{n}\n    step{n + 1}()\n' for n in range(40))
    text = f"Traceback (most recent call last):\n{frames}LookupError: the last line"
    queue.store.append_log([LogLine("failed", NOW - timedelta(hours=4), "script", 1, "error", text)])

    async def test() -> None:
        async with opened(queue) as session:
            await open_task(session, "failed")
            await session.sees("step0")
            assert "the last line" not in session.text
            await session.press("enter")
            await session.until(lambda: "It failed" not in session.text)
            await session.press("end")
            await session.sees("the last line")
            await session.press("escape")
            await session.sees("It failed", "attempts")
            assert session.monitor.trail.here.page == "task"

    run(test)
