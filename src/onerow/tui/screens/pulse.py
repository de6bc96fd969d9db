"""The pulse: charts of throughput, waits, run times and failures, and the present backlog."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.widget import Widget

from onerow.cli import formatting
from onerow.core.durations import spell_duration
from onerow.core.errors import OnerowError, with_fix
from onerow.engine.output.terminal import neutral
from onerow.engine.views import Pulse, Series, Views
from onerow.tui.cells import bar, columns_chart, fit
from onerow.tui.page import Page, page_bindings
from onerow.tui.text_block import TextBlock

SPANS = (
    timedelta(minutes=15),
    timedelta(hours=1),
    timedelta(hours=6),
    timedelta(hours=12),
    timedelta(hours=24),
)
_LABEL = 22
_BACKLOG_BAR = 30


class PulsePage(Page):
    """Charts over the last minutes or hours, of all phases or of one."""

    page = "pulse"
    BINDINGS: ClassVar[list[BindingType]] = page_bindings("pulse")
    DEFAULT_CSS = (
        "PulsePage VerticalScroll { height: 1fr; scrollbar-size-vertical: 1; } PulsePage Static { height: auto; }"
    )

    def __init__(self) -> None:
        super().__init__()
        self._span = 1
        self._phase = 0  # 0: all; n: the n-th phase
        self._found: Pulse | None = None

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield TextBlock(id="charts")

    def focus_main(self) -> Widget:
        return self.query_one(VerticalScroll)

    def reading(self) -> Callable[[Views], Any]:
        over = SPANS[self._span]
        return lambda views: views.pulse(over)

    def show(self, found: Pulse) -> None:
        self._found = found
        self._phase %= len(found.phases) + 1
        self.query_one("#charts", TextBlock).tell(charts(found, self._phase, self.size.width, self.size.height))

    def on_resize(self) -> None:
        if self._found is not None:
            self.show(self._found)

    def refused(self, error: OnerowError) -> None:
        self.query_one("#charts", TextBlock).tell(Text(neutral(with_fix(error)), style="red"))

    def search(self, text: str) -> None:
        found = self._found
        wanted = text.casefold()
        names = [] if found is None else [f"{each.pipeline}.{each.phase}".casefold() for each in found.phases]
        match = next((number for number, name in enumerate(names, start=1) if wanted in name), None)
        if match is None:
            self.monitor.say(f"no phase has {text!r} in its name", bad=True)
            return
        self._phase = match
        self.monitor.poke()

    def action_span(self, step: int) -> None:
        self._span = min(max(self._span + step, 0), len(SPANS) - 1)
        self.monitor.poke()

    def action_tab(self, step: int) -> None:
        self._phase += step
        if self._found is not None:
            self.show(self._found)


def charts(pulse: Pulse, phase: int, width: int, height: int) -> Text:
    """Return the charts of all phases (0) or of one, for a page of this size."""
    chosen = pulse.phases[phase - 1] if phase else None
    series = pulse.total if chosen is None else chosen.series
    name = "all phases" if chosen is None else f"{chosen.pipeline}.{chosen.phase}"
    high = 2 if height < 26 else 3 if height < 40 else 6
    wide = max(10, width - _LABEL - 2)
    apart = 1 + 4 * (high + 1) + 2 + len(pulse.phases) <= height
    per = spell_duration(pulse.step)
    text = Text(no_wrap=True, overflow="crop")
    text.append(f" {neutral(name)}", "bold")
    text.append(f"  last {spell_duration(pulse.over)}, one column per {per}   Tab: next phase   < >: period\n", "dim")
    _chart(text, f"completed /{per}", series.done, wide, high, "green", formatting.number, apart)
    _chart(text, f"failed, retried /{per}", _failed(series), wide, high, "red", formatting.number, apart)
    _chart(text, "wait p95", series.wait_p95, wide, high, "yellow", _millis, apart)
    _chart(text, "run p95", series.run_p95, wide, high, "cyan", _millis, apart)
    text.append("\n backlog now\n", "bold")
    most = max((each.waiting for each in pulse.phases), default=0)
    for number, each in enumerate(pulse.phases, start=1):
        style = "bold" if number == phase else ""
        text.append(" " + fit(neutral(f"{each.pipeline}.{each.phase}"), _LABEL), style)
        text.append(bar(each.waiting / most if most else 0.0, _BACKLOG_BAR), "yellow")
        text.append(f" {each.waiting:,} waiting, {each.processing:,} running, {each.parked:,} parked")
        if each.failed:
            text.append(f", {each.failed:,} failed", "red")
        if each.oldest is not None and each.oldest <= pulse.at:
            text.append(f", oldest {formatting.ago(each.oldest, pulse.at)}", "dim")
        text.append("\n")
    return text


def _failed(series: Series) -> list[int]:
    return [failed + retried for failed, retried in zip(series.failed, series.retried, strict=True)]


def _millis(value: float) -> str:
    return formatting.millis(round(value))


def _chart(
    text: Text,
    label: str,
    values: Sequence[float | None],
    width: int,
    height: int,
    style: str,
    spelled: Callable[[float], str],
    apart: bool,
) -> None:
    known = [value or 0.0 for value in values]
    # A period with few points is widened, so that the chart fills its line.
    times = max(1, width // max(1, len(known)))
    spread = [value for value in known for _ in range(times)][-width:]
    most = max(known, default=0.0)
    now = "-" if not values or values[-1] is None else spelled(values[-1]) or "0"
    labels = [label, f" most {spelled(most) or '0'}", f" now {now}"]
    for number, line in enumerate(columns_chart(spread, width, height)):
        shown = labels[number] if number < len(labels) else ""
        if number == height - 1 and height < len(labels):
            shown = f" {spelled(most) or '0'}, now {now}"
        text.append(" " + fit(shown, _LABEL), "bold" if number == 0 else "dim")
        text.append(line + "\n", style)
    if apart:
        text.append("\n")
