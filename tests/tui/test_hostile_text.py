"""Text of tasks never steers the terminal, and columns stay aligned with wide, right-to-left and combining characters."""

import re
from datetime import timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from onerow.engine.queue.queue import Queue
from onerow.ports import LogLine
from onerow.tui.cells import bar, columns_chart, fit, message_of, progress_text, safe, short_ids
from onerow.tui.layout import GAP, Column, widths_of
from tests.samples import NOW, a_task
from tests.tui.conftest import opened, run, svg_text

EVIL = "\x1b]0;owned\x07\x1b[2J\x1b[31m[bold red]red[/] \x9b5A\u202eevil\x01\r\n\x08"
TITLES = (
    "조류의 비밀",
    "海洋紀錄片",
    "הסודות של הגאות",
    "العربية",
    "👩‍🚀 space 🚀",
    "e\u0301te\u0301",
    "\uff46\uff55\uff4c\uff4c",
    "plain",
)


def evil_store(queue: Queue) -> None:
    task = a_task(
        "evil", title=EVIL, payload={EVIL: [EVIL]}, created_at=NOW, run_at=NOW, user_id=EVIL[:20], limit_key="k",
        error=EVIL, error_class="network", results_json='{"script": "\\u001b[2J"}',
        logs_json='[{"at":"2026-11-15T02:29:57.000Z","what":"failed","phase":"script","attempt":1,"ms":3,"error":"\\u001b[2J","error_class":"network","by":"\\u001b[31mw","note":"\\u001b]0;x\\u0007"}]',
    )  # fmt: skip
    queue.store.insert([task])
    queue.store.append_log([LogLine("evil", NOW, "script", 1, "out", EVIL)])


def test_no_control_character_of_a_task_reaches_the_terminal(queue: Queue) -> None:
    evil_store(queue)

    async def test() -> None:
        async with opened(queue) as session:
            shown = []
            await session.press("2")
            await session.sees("[bold red]red[/]")
            shown.append(session.text)
            await session.press("colon")
            await session.type("task evil")
            await session.press("enter")
            await session.sees("attempts")
            for _ in range(6):
                await session.press("tab")
                await session.read()
                await session.read()
                shown.append(session.text)
            await session.press("C")
            await session.sees("Cancel task evil?")
            shown.append(session.text)
            for text in shown:
                assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)

    run(test)


def test_lines_with_wide_and_right_to_left_titles_are_aligned(queue: Queue) -> None:
    queue.store.insert(
        [
            a_task(f"wide-{number}", title=f"{title} {number}", created_at=NOW - timedelta(minutes=7), run_at=NOW)
            for number, title in enumerate(TITLES)
        ]
    )

    async def test() -> None:
        async with opened(queue, query="id:wide", size=(90, 20)) as session:
            await session.sees("plain 7")
            lines = [line for line in session.text.split("\n") if "wide-" in line]
            assert len(lines) == len(TITLES)
            # The age is the last column: it ends in the same cell on every line.
            assert len({cell_len(line[: line.rindex("7m")]) for line in lines}) == 1

    run(test)


@given(st.text(), st.integers(0, 60), st.booleans())
def test_fitted_text_has_exactly_the_width(text: str, width: int, right: bool) -> None:
    assert cell_len(fit(safe(text)[0], width, right=right)) == width


@given(
    st.lists(
        st.builds(
            Column, st.text("ab", max_size=9), st.integers(1, 60), st.booleans(), st.booleans(), st.integers(0, 9)
        ),
        min_size=1,
        max_size=9,
    ),
    st.data(),
    st.integers(1, 200),
)
def test_columns_never_exceed_the_line(columns: list[Column], data: st.DataObject, width: int) -> None:
    natural = data.draw(st.lists(st.integers(0, 80), min_size=len(columns), max_size=len(columns)))
    widths = widths_of(columns, natural, width)
    shown = [each for each in widths if each]
    assert all(each >= 0 for each in widths)
    assert sum(shown) + GAP * max(0, len(shown) - 1) <= max(width, 0)


@given(st.floats(allow_nan=False), st.integers(1, 40))
def test_bars_fill_their_width(share: float, width: int) -> None:
    assert cell_len(bar(share, width)) == width


@given(st.dictionaries(st.sampled_from(["done", "total", "note"]), st.none() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()))  # fmt: skip
@example({"done": 1, "total": "many"})
def test_any_progress_can_be_shown(progress: dict[str, object]) -> None:
    assert isinstance(progress_text(progress, 9), str)


@given(st.lists(st.floats(0, 1e9)), st.integers(1, 50), st.integers(1, 8))
def test_charts_have_their_height_and_at_most_their_width(values: list[float], width: int, height: int) -> None:
    lines = columns_chart(values, width, height)
    assert len(lines) == height
    assert all(cell_len(line) <= width for line in lines)


@given(st.lists(st.text("0123456789abcdef-", min_size=1, max_size=36), unique=True))
def test_short_ids_differ_and_are_beginnings(ids: list[str]) -> None:
    short = short_ids(ids)
    assert all(whole.startswith(each) for whole, each in zip(ids, short, strict=True))
    assert len(set(short)) == len(ids)


@pytest.mark.parametrize("size", [(80, 24), (60, 12), (200, 60)])
def test_every_page_fits_small_and_large_terminals(queue: Queue, size: tuple[int, int]) -> None:
    async def test() -> None:
        async with opened(queue, size=size) as session:
            for key in "1234567":
                await session.press(key)
                await session.read()
                lines = svg_text(session.svg).split("\n")
                assert all(cell_len(line) <= size[0] for line in lines)
                assert " 8" in lines[0]

    run(test)


def test_joined_emoji_take_the_cells_of_their_parts() -> None:
    assert (
        safe("\U0001f469\u200d\U0001f680 \U0001f3f3\ufe0f\u200d\U0001f308")[0]
        == "\U0001f469\U0001f680 \U0001f3f3\U0001f308"
    )
    assert safe("\u0915\u094d\u200d\u0937")[0] == "\u0915\u094d\u200d\u0937"  # a joiner between letters


def test_a_column_that_needs_little_leaves_the_rest_to_the_others() -> None:
    columns = (Column("title", 80, grow=True), Column("note", 80, grow=True))
    assert widths_of(columns, (60, 12), 72) == [54, 16]
    assert widths_of(columns, (12, 60), 72) == [16, 54]
    assert widths_of(columns, (60, 60), 72) == [35, 35]


def test_the_name_of_an_exception_is_not_repeated() -> None:
    assert message_of("ValueError: no", "ValueError") == "no"
    assert message_of("no: such", "") == "no: such"
