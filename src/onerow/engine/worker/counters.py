"""What a worker counts for its metrics: claims, limits, wake-ups and lost leases."""

from dataclasses import astuple, dataclass, fields
from typing import Self


@dataclass
class Counters:
    """Counts since the start of a worker; increased by its claiming thread only."""

    settled: int = 0
    claims_got: int = 0
    claims_empty: int = 0
    limited_rate: int = 0
    limited_concurrency: int = 0
    wakeups_notify: int = 0
    wakeups_poll: int = 0
    lease_lost: int = 0

    def __add__(self, other: Self) -> Self:
        return type(self)(*(mine + its for mine, its in zip(astuple(self), astuple(other), strict=True)))

    def text(self) -> str:
        """Return the counts as one word, for `parse`."""
        return ",".join(map(str, astuple(self)))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the counts from the word of `text`; raises ValueError."""
        counts = [int(each) for each in text.split(",")]
        if len(counts) != len(fields(cls)):
            raise ValueError(text)
        return cls(*counts)


_METRICS = (
    ("onerow_settled_total", "", "settled", "Attempts whose outcome was written."),
    ("onerow_claims_total", 'result="got"', "claims_got", "Claims by result: whether they returned tasks."),
    ("onerow_claims_total", 'result="empty"', "claims_empty", ""),
    ("onerow_limited_total", 'limit="rate"', "limited_rate", "Claims that a limit kept from a phase or put off."),
    ("onerow_limited_total", 'limit="concurrency"', "limited_concurrency", ""),
    ("onerow_wakeups_total", 'source="notify"', "wakeups_notify", "Ends of a rest: woken by the store, or by a timer."),
    ("onerow_wakeups_total", 'source="poll"', "wakeups_poll", ""),
    ("onerow_lease_lost_total", "", "lease_lost", "Attempts that lost their lease."),
)


def metrics_text(counters: Counters, *, processes: int, running: int) -> str:
    """Return the counters in the text format of Prometheus."""
    lines = [
        "# HELP onerow_worker_processes Worker processes of this supervisor.",
        "# TYPE onerow_worker_processes gauge",
        f"onerow_worker_processes {processes}",
        "# HELP onerow_worker_running_tasks Tasks that run in them now.",
        "# TYPE onerow_worker_running_tasks gauge",
        f"onerow_worker_running_tasks {running}",
    ]
    for name, label, field, help_text in _METRICS:
        if help_text:
            lines += [f"# HELP {name} {help_text}", f"# TYPE {name} counter"]
        lines.append(f"{name}{{{label}}} {getattr(counters, field)}" if label else f"{name} {getattr(counters, field)}")
    return "\n".join(lines) + "\n"
