"""Numbers, durations, sizes, times and progress as the pages spell them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from onerow.core.times import FAR
from onerow.web.pages import formatting


@pytest.mark.parametrize(
    "value, text",
    [(0, "0"), (999, "999"), (1000, "1.0k"), (12_345, "12k"), (1_000_000, "1.0M"), (3_400_000_000, "3.4G")],
)
def test_counts_for_narrow_places(value: int, text: str) -> None:
    assert formatting.short(value) == text


@pytest.mark.parametrize(
    "value, text", [(None, formatting.NOTHING), (0, "0"), (0.25, "0.2"), (12.7, "13"), (1234567, "1,234,567")]
)
def test_counts_and_rates(value: float | None, text: str) -> None:
    assert formatting.number(value) == text


@pytest.mark.parametrize(
    "value, text",
    [
        (None, formatting.NOTHING), (0, "0 ms"), (999, "999 ms"), (1000, "1.0 s"), (9_990, "10.0 s"), (59_600, "1 m"), (61_000, "1 m 1 s"),
        (timedelta(hours=2), "2 h"), (timedelta(days=2, hours=4, minutes=3), "2 d 4 h"), (timedelta(days=1, minutes=5), "1 d"),
    ],
)  # fmt: skip
def test_durations_have_at_most_two_units(value: Any, text: str) -> None:
    assert formatting.duration(value) == text


@pytest.mark.parametrize(
    "value, text",
    [(None, formatting.NOTHING), (0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (150_000, "150 kB"), (2.5e12, "2.5 TB")],
)
def test_sizes(value: Any, text: str) -> None:
    assert formatting.size(value) == text


def test_times_are_read_by_the_browser_and_without_scripts() -> None:
    when = datetime(2026, 11, 19, 9, 5, tzinfo=UTC)
    assert formatting.moment(when) == (
        '<time datetime="2026-11-19T09:05:00.000+00:00" data-kind="ago">2026-11-19 09:05:00Z</time>'
    )
    assert formatting.moment(when.isoformat(), "clock").endswith('data-kind="clock">09:05:00Z</time>')
    assert (formatting.moment(None), formatting.moment(""), formatting.moment(FAR)) == (
        formatting.NOTHING,
        formatting.NOTHING,
        "∞",
    )


@pytest.mark.parametrize(
    "progress, share, text",
    [
        ({"done": 31, "total": 50, "note": "frame 31"}, 0.62, "62% · frame 31"),
        ({"done": 60, "total": 50}, 1.0, "100%"), ({"done": -1, "total": 50}, 0.0, "0%"),
        ({"done": 7, "total": 0}, None, "7"), ({"done": 7}, None, "7"), ({"done": "7"}, None, ""), (None, None, ""),
    ],
)  # fmt: skip
def test_progress(progress: Any, share: float | None, text: str) -> None:
    assert (formatting.share(progress), formatting.progress_text(progress)) == (share, text)


def test_numbers_keep_every_digit() -> None:
    assert formatting.encoded({"id": 12345678901234567890}) == '{"id":12345678901234567890}'
