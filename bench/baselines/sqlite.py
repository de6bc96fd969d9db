"""Benchmark baseline: a minimal queue on SQLite.

A narrow table. It claims 100 jobs by one UPDATE … RETURNING and finishes 100 by one statement, both in one transaction.
It has no history, leases, results or retries.
"""

import json
import sqlite3
import time
from pathlib import Path
from uuid import uuid4

_BATCH = 100
_PAYLOAD = json.dumps({"ts": 0.0, "to": "x" * 60})
_CLAIM = (
    "UPDATE job SET state = 1, attempt = attempt + 1, worker = 1, lease = ? WHERE id IN "
    "(SELECT id FROM job WHERE queue = 'q' AND state = 0 AND run_at <= ? ORDER BY priority, run_at, id LIMIT ?) "
    "RETURNING id, payload"
)
_INSERT = "INSERT INTO job (queue, priority, run_at, payload) VALUES ('q', 0, ?, ?)"
_NOW = 1 << 40


class Baseline:
    """A minimal queue in its own file."""

    def __init__(self, folder: Path) -> None:
        self._connection = sqlite3.connect(folder / f"baseline-{uuid4().hex[:12]}.db", isolation_level=None)
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "cache_size = -32768"):
            self._connection.execute(f"PRAGMA {pragma}")
        self._connection.execute(
            "CREATE TABLE job (id INTEGER PRIMARY KEY, queue TEXT NOT NULL, state INT NOT NULL DEFAULT 0, "
            "priority INT NOT NULL DEFAULT 0, run_at INT NOT NULL DEFAULT 0, attempt INT NOT NULL DEFAULT 0, "
            "worker INT, lease INT, payload TEXT)"
        )
        self._connection.execute("CREATE INDEX job_wait ON job (queue, priority, run_at, id) WHERE state = 0")

    def add(self, count: int) -> float:
        """Add jobs, one per transaction; return the seconds it took."""
        start = time.perf_counter()
        for number in range(count):
            self._connection.execute(_INSERT, (number, _PAYLOAD))
        return time.perf_counter() - start

    def add_many(self, count: int) -> float:
        """Add jobs, 1,000 per transaction; return the seconds it took."""
        start = time.perf_counter()
        for first in range(0, count, 1000):
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(_INSERT, [(number, _PAYLOAD) for number in range(first, first + 1000)])
            self._connection.execute("COMMIT")
        return time.perf_counter() - start

    def drain(self, count: int) -> float:
        """Claim and finish jobs; return the seconds it took."""
        finish = f"UPDATE job SET state = 2, lease = NULL WHERE id IN ({', '.join('?' * _BATCH)})"
        done, last = 0, None
        start = time.perf_counter()
        while done < count:
            self._connection.execute("BEGIN IMMEDIATE")
            if last:
                self._connection.execute(finish, last)
            rows = self._connection.execute(_CLAIM, (_NOW, _NOW, _BATCH)).fetchall()
            self._connection.execute("COMMIT")
            for _, payload in rows:
                json.loads(payload)
            last = [row[0] for row in rows]
            done += len(rows)
        if last:
            self._connection.execute(finish, last)
        return time.perf_counter() - start

    def log(self, count: int, line: str) -> float:
        """Write output lines, 1,000 per transaction; return the seconds it took."""
        self._connection.execute(
            "CREATE TABLE line (id INTEGER PRIMARY KEY, task TEXT NOT NULL, at INT NOT NULL, text TEXT NOT NULL)"
        )
        insert = "INSERT INTO line (task, at, text) VALUES ('t', ?, ?)"
        start = time.perf_counter()
        for first in range(0, count, 1000):
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(insert, [(number, line) for number in range(first, first + 1000)])
            self._connection.execute("COMMIT")
        return time.perf_counter() - start

    def close(self) -> None:
        self._connection.close()
