"""Statistics: counts and histograms by (minute, pipeline, phase, worker), stored as notes and summed when read.

A histogram maps a bucket number to a count: one bucket per millisecond below 16, then eight buckets per doubling, so
that a value read from it is off by at most six percent.
"""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from onerow.core.times import spell
from onerow.ports import Note

STATS = "stats"
"""Kind of the notes."""
KEPT_FOR = 24 * 60
"""Minutes for which statistics are kept in the store."""

Histogram = dict[int, int]


class Outcomes(msgspec.Struct):
    """Outcomes of the attempts of one phase in a period; run and wait times in milliseconds."""

    done: int = 0
    failed: int = 0
    retried: int = 0
    cancelled: int = 0
    put_off: int = 0  # snoozed, parked, handed back
    rescued: int = 0
    run: Histogram = {}
    wait: Histogram = {}
    whole: Histogram = {}  # of tasks that were completed in this phase: from added to completed
    errors: dict[str, int] = {}  # failed and retried attempts by 'failed/CLASS' or 'retry/CLASS'

    @property
    def attempts(self) -> int:
        return self.done + self.failed + self.retried + self.cancelled + self.put_off

    def add(self, other: "Outcomes") -> None:
        """Add the counts of another period or worker."""
        self.done += other.done
        self.failed += other.failed
        self.retried += other.retried
        self.cancelled += other.cancelled
        self.put_off += other.put_off
        self.rescued += other.rescued
        for mine, theirs in ((self.run, other.run), (self.wait, other.wait), (self.whole, other.whole)):
            for number, count in theirs.items():
                mine[number] = mine.get(number, 0) + count
        for name, count in other.errors.items():
            self.errors[name] = self.errors.get(name, 0) + count


def bucket(millis: int) -> int:
    """Return the bucket of a duration."""
    if millis < 16:
        return millis if millis > 0 else 0
    shift = millis.bit_length() - 4
    return (shift << 3) + (millis >> shift)


def middle(number: int) -> int:
    """Return the middle of a bucket in milliseconds."""
    if number < 16:
        return number
    shift = (number >> 3) - 1
    low = ((number & 7) + 8) << shift
    return low + ((1 << shift) >> 1)


def quantile(histogram: Histogram, share: float) -> int | None:
    """Return the quantile `share` in milliseconds; None if the histogram is empty."""
    total = sum(histogram.values())
    if not total:
        return None
    seen = 0
    for number in sorted(histogram):
        seen += histogram[number]
        if seen >= share * total:
            return middle(number)
    return None


def minute_of(moment: datetime) -> str:
    """Return the minute as used in note names; these sort by time."""
    return spell(moment)[:16]


def note_name(minute: str, pipeline: str, phase: str, worker: str) -> str:
    return f"{minute}/{pipeline}/{phase}/{worker}"


def add_up(notes: Iterable[Note]) -> dict[tuple[str, str], Outcomes]:
    """Sum the notes of all workers and minutes by pipeline and phase."""
    found: dict[tuple[str, str], Outcomes] = {}
    for note in notes:
        _, pipeline, phase, _ = note.name.split("/", 3)
        found.setdefault((pipeline, phase), Outcomes()).add(msgspec.convert(note.body, Outcomes, strict=False))
    return found
