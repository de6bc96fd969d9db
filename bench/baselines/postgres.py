"""Benchmark baseline: a minimal queue on PostgreSQL.

A narrow table; one UPDATE … RETURNING claims 500 rows and another UPDATE finishes them, each in its own transaction. It
has no history, no results, no retries, and never reads its leases.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import psycopg

from onerow.stores.postgres import connection_url

_BATCH = 500
_PAYLOAD = json.dumps({"ts": 0.0, "to": "x" * 60})


class Baseline:
    """A minimal queue in its own table, which `close` drops."""

    def __init__(self, url: str) -> None:
        self._where = connection_url.parse(url)
        self._connection = psycopg.connect(self._where.conninfo, autocommit=True, prepare_threshold=0)
        self._table = f"onerow_baseline_{uuid4().hex[:12]}"
        self._connection.execute(
            f"CREATE TABLE {self._table} (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
            "queue text NOT NULL DEFAULT 'q', state smallint NOT NULL DEFAULT 0, priority smallint NOT NULL DEFAULT 0, "
            "run_at timestamptz NOT NULL DEFAULT now(), attempt smallint NOT NULL DEFAULT 0, worker int, "
            "lease timestamptz, payload jsonb)"
        )
        self._connection.execute(f"CREATE INDEX ON {self._table} (queue, priority, run_at, id) WHERE state = 0")

    def add(self, count: int) -> float:
        """Add `count` tasks, one transaction each; return the seconds."""
        insert = f"INSERT INTO {self._table} (payload) VALUES (%s)"
        start = time.perf_counter()
        for _ in range(count):
            self._connection.execute(insert, (_PAYLOAD,))
        return time.perf_counter() - start

    def add_many(self, count: int) -> float:
        """Add `count` tasks by COPY, 1,000 per transaction; return the seconds."""
        copy_sql = f"COPY {self._table} (payload) FROM STDIN"
        start = time.perf_counter()
        for first in range(0, count, 1000):
            with self._connection.cursor().copy(copy_sql) as copy:
                for _ in range(min(1000, count - first)):
                    copy.write_row((_PAYLOAD,))
        return time.perf_counter() - start

    def drain(self, count: int) -> float:
        """Claim and finish `count` tasks; return the seconds."""
        claim = (
            f"UPDATE {self._table} SET state = 1, attempt = attempt + 1, worker = 1, lease = now() + interval '30 s' "
            f"WHERE id = ANY (ARRAY(SELECT id FROM {self._table} WHERE queue = 'q' AND state = 0 AND run_at <= now() "
            f"ORDER BY priority, run_at, id LIMIT {_BATCH} FOR UPDATE SKIP LOCKED)) RETURNING id, payload"
        )
        finish = f"UPDATE {self._table} SET state = 2, lease = NULL WHERE id = ANY (%s)"
        done = 0
        start = time.perf_counter()
        while done < count:
            rows = self._connection.execute(claim, binary=True).fetchall()
            if not rows:
                break
            self._connection.execute(finish, ([row[0] for row in rows],))
            done += len(rows)
        return time.perf_counter() - start

    def log(self, count: int, line: str) -> float:
        """Write `count` output lines by COPY, 1,000 per transaction; return the seconds."""
        copy_sql = f"COPY {self._table} (attempt, payload) FROM STDIN"
        body = json.dumps(line)
        start = time.perf_counter()
        for first in range(0, count, 1000):
            with self._connection.cursor().copy(copy_sql) as copy:
                for _ in range(min(1000, count - first)):
                    copy.write_row((1, body))
        return time.perf_counter() - start

    @contextmanager
    def old_snapshot(self) -> Iterator[None]:
        """Hold a snapshot open during the block, so that vacuum cannot remove dead rows."""
        with psycopg.connect(self._where.conninfo) as other:
            other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            other.execute("SELECT txid_current()")
            yield

    def maintain(self) -> None:
        """Vacuum and analyze now, so that autovacuum does not run during a measurement."""
        self._connection.execute("VACUUM ANALYZE")

    def server_cpu(self) -> float | None:
        """Return the CPU seconds used by all processes of the server; None if it runs on another host."""
        try:
            main = _stat(self._connection.info.backend_pid)[_PARENT]
            if main == os.getpid() or "postgres" not in Path(f"/proc/{main}/comm").read_text():
                return None
            children = Path(f"/proc/{main}/task/{main}/children").read_text().split()
            ticks = sum(sum(_stat(int(child))[_OWN]) for child in children) + sum(_stat(main)[_OWN_AND_ENDED])
        except OSError:
            return None
        return ticks / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        self._connection.execute(f"DROP TABLE {self._table}")
        self._connection.close()


_PARENT, _OWN, _OWN_AND_ENDED = 1, slice(11, 13), slice(11, 15)  # fields of /proc/PID/stat after the process name


def _stat(pid: int) -> list[int]:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return [0, *map(int, fields[1:])]
