"""Statistics: counts and histograms by (minute, pipeline, phase, worker), kept as notes and added up when read.

A histogram's bucket is a number: milliseconds exactly below 16, then eight buckets to each doubling (so that a figure
read from it is off by six percent at the most).
"""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from onerow.core.times import spell
from onerow.ports import Note

STATS = "stats"
"""The kind of note."""
KEPT_FOR = 24 * 60
"""Minutes of statistics that workers leave in the store."""

Histogram = dict[int, int]


class Outcomes(msgspec.Struct):
    """What became of the attempts of one phase in some time; run and wait in buckets of milliseconds."""

    done: int = 0
    failed: int = 0
    retried: int = 0
    cancelled: int = 0
    put_off: int = 0  # snoozed, parked, handed back
    rescued: int = 0
    run: Histogram = {}
    wait: Histogram = {}

    @property
    def attempts(self) -> int:
        return self.done + self.failed + self.retried + self.cancelled + self.put_off

    def add(self, other: "Outcomes") -> None:
        """Count another's in."""
        self.done += other.done
        self.failed += other.failed
        self.retried += other.retried
        self.cancelled += other.cancelled
        self.put_off += other.put_off
        self.rescued += other.rescued
        for mine, theirs in ((self.run, other.run), (self.wait, other.wait)):
            for place, count in theirs.items():
                mine[place] = mine.get(place, 0) + count


def bucket(millis: int) -> int:
    """Where a duration is counted."""
    if millis < 16:
        return millis if millis > 0 else 0
    shift = millis.bit_length() - 4
    return (shift << 3) + (millis >> shift)


def middle(place: int) -> int:
    """The duration in milliseconds that a bucket stands for."""
    if place < 16:
        return place
    shift = (place >> 3) - 1
    low = ((place & 7) + 8) << shift
    return low + ((1 << shift) >> 1)


def quantile(histogram: Histogram, share: float) -> int | None:
    """The duration that `share` of all stayed within; None: there were none."""
    total = sum(histogram.values())
    if not total:
        return None
    seen = 0
    for place in sorted(histogram):
        seen += histogram[place]
        if seen >= share * total:
            return middle(place)
    return None


def minute_of(moment: datetime) -> str:
    """The minute as notes are named by it, in an order that counts."""
    return spell(moment)[:16]


def note_name(minute: str, pipeline: str, phase: str, worker: str) -> str:
    return f"{minute}/{pipeline}/{phase}/{worker}"


def add_up(notes: Iterable[Note]) -> dict[tuple[str, str], Outcomes]:
    """The notes of all workers and minutes, by pipeline and phase."""
    found: dict[tuple[str, str], Outcomes] = {}
    for note in notes:
        _, pipeline, phase, _ = note.name.split("/", 3)
        found.setdefault((pipeline, phase), Outcomes()).add(msgspec.convert(note.body, Outcomes, strict=False))
    return found
