"""Records of a soak: what task bodies, operators and the fault driver did, and when.

Each process appends to a file of its own, one JSON object per line, opened with O_APPEND and written with one call, so
that a killed process leaves at most one incomplete last line. Times are CLOCK_MONOTONIC, which all processes of a host
share.
"""

import os
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec


class Record(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One event. `what` says which fields it has.

    add: task, phase (the first), key, name (its unique key), hash (of the payload), until (not to start before).
    begin, end: a task body: task, phase, worker, pid, token, attempt, key, hash (payload at the begin, result at the
    end), outcome (end: done, failed, stopped). operation: task, name (cancel, retry, replay, signal). limit: phase, name
    (phase, key or rate), number (0: none). fault: name, worker, pid, until (its end; 0: no end).
    row: task, row (the stored task at the end). process: pid, name (a process that was still there at the end).
    end of run: marks the time of the final rows.
    """

    at: float
    what: str
    task: str = ""
    phase: str = ""
    worker: str = ""
    pid: int = 0
    token: int = 0
    attempt: int = 0
    key: str = ""
    hash: str = ""
    outcome: str = ""
    name: str = ""
    parent: str = ""
    number: int = 0
    until: float = 0.0
    row: dict[str, Any] | None = None


class Recorder:
    """Appends records to one file of a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}.jsonl"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        self._encode = msgspec.json.Encoder().encode

    def write(self, what: str, **fields: Any) -> None:
        """Append one record, with the present time unless `at` is given."""
        record = Record(what=what, at=fields.pop("at", None) or monotonic(), **fields)
        os.write(self._file, self._encode(record) + b"\n")

    def close(self) -> None:
        os.close(self._file)


def read_records(folder: Path) -> list[Record]:
    """Return the records of all files in the order of their times; an incomplete last line is left out."""
    decoder = msgspec.json.Decoder(Record)
    records: list[Record] = []
    for path in sorted(folder.glob("*.jsonl")):
        lines = path.read_bytes().split(b"\n")
        records += [decoder.decode(line) for line in lines[:-1] if line]
    return sorted(records, key=lambda record: record.at)
