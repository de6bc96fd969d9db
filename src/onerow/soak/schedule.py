"""Which faults a soak injects, and when: all of it follows from the seed."""

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from onerow.core.errors import BadInput
from onerow.core.suggest import did_you_mean

PROCESS_FAULTS = {
    "kill": "kill -9 of a worker process",
    "kill-supervisor": "kill -9 of a supervisor; its workers notice it and end",
    "kill-host": "kill -9 of the process that starts isolated attempts",
    "kill-group": "kill -9 of a supervisor and all its descendants",
    "pause": "SIGSTOP of a worker, or of a supervisor with all its descendants, past the lease",
    "hold-gil": "a C call that holds the GIL past the lease",
    "block-loop": "a blocking call in the event loop past the lease",
    "clock-step": "the store clock of one worker is wrong from then on",
    "hide-proc": "a supervisor restarts; no other worker can prove the death of its workers",
    "wake-ups": "a supervisor restarts; its workers lose some wake-ups and get others twice",
    "deploy": "a supervisor restarts with another release of the code, which has one more phase",
}
STORE_FAULTS = {
    "restart-store": "immediate stop and start of the database server",
    "cut": "all connections to the server are reset",
    "lost-answer": "requests arrive, their answers do not, and the connections are reset",
    "delay": "all answers of the server are delayed",
    "write-lock": "another program holds the write lock (SQLite)",
    "disk-full": "no space is left on the file system (SQLite, on a small file system)",
}
OPERATIONS = {
    "cancel": "cancel of a random task",
    "retry": "retry of a failed or cancelled task",
    "replay": "replay of an ended task from a random phase",
    "limit": "another concurrency limit",
}
FAULTS: Mapping[str, str] = PROCESS_FAULTS | STORE_FAULTS | OPERATIONS
DEFAULT = "kill=20,kill-supervisor=2,kill-group=2,kill-host=2,pause=4,hold-gil=1,block-loop=1,cancel=20,retry=10,replay=10,limit=4"


class Fault(msgspec.Struct, frozen=True):
    """One fault. at: the share of the expected bodies after which it happens. choice: decides about its target."""

    at: float
    name: str
    choice: int


def parse_faults(text: str) -> dict[str, int]:
    """Read `kill=20,pause=4`; a name alone means one."""
    counts: dict[str, int] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, _, number = part.partition("=")
        if name not in FAULTS:
            raise BadInput(
                f"no fault {name!r}", fix=did_you_mean(name, FAULTS, "see: onerow soak --help"), field="faults"
            )
        if not (number or "1").isdecimal():
            raise BadInput(f"{part!r}: the number of faults must be a whole number", fix=f"{name}=5", field="faults")
        counts[name] = int(number or 1)
    return counts


def plan(seed: int, counts: Mapping[str, int]) -> list[Fault]:
    """Return the faults of a seed in the order of their times."""
    chance = random.Random(seed)
    faults = [
        Fault(round(chance.uniform(0.02, 0.95), 5), name, chance.randrange(1_000_000))
        for name in FAULTS
        for _ in range(counts.get(name, 0))
    ]
    return sorted(faults, key=lambda fault: fault.at)


def read_plan(path: Path) -> list[Fault]:
    """Read the faults of an earlier run."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[Fault])
    except (OSError, msgspec.DecodeError) as error:
        raise BadInput(
            f"cannot read {path}: {error}", fix="give the folder of an earlier soak", field="replay"
        ) from None


def write_plan(path: Path, faults: Sequence[Fault]) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(list(faults))))


def shrink(faults: Sequence[Fault], fails: Callable[[Sequence[Fault]], bool], *, runs: int) -> list[Fault]:
    """Return fewer faults with which the run still fails, after at most `runs` runs (delta debugging).

    Real processes do not repeat exactly: a run that does not fail proves little, so `fails` may try several times.
    """
    kept, parts = list(faults), 2
    while len(kept) > 1 and runs > 0:
        size = -(-len(kept) // parts)
        for start in range(0, len(kept), size):
            fewer = kept[:start] + kept[start + size :]
            if runs <= 0:
                break
            runs -= 1
            if fewer and fails(fewer):
                kept, parts = fewer, max(parts - 1, 2)
                break
        else:
            if size == 1:
                break
            parts = min(parts * 2, len(kept))
    return kept
