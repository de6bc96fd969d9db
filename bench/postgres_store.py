"""Benchmark the PostgreSQL store against a minimal baseline in the same run.

    python -m bench.postgres_store [URL] [--tasks 20000] [--batch 500] [--rounds 3] [--only drain,add,snapshot,scale,policies]

Without a URL it starts a test server. Compare ratios: rates vary on a shared machine.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from datetime import timedelta
from urllib.parse import urlsplit

import psycopg
from msgspec.structs import replace

from onerow.core import rules
from onerow.core.plan import PhasePlan, Plan
from onerow.core.task import Task
from onerow.engine.queue.insert import new_ids
from onerow.ports import Claim, Move, PhaseClaim
from onerow.sql_ports import PolicySettings
from onerow.stores.postgres import PostgresStore
from tests.samples import a_task
from tests.servers.postgres import PostgresServer

PLAN = Plan(name="bench", phases=(PhasePlan(name="run"),))
LEASE = timedelta(seconds=30)
PAYLOAD = '{"ts":0.0,"to":"' + "x" * 60 + '"}'

BASELINE_TABLE = """
CREATE TABLE baseline (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, queue text NOT NULL DEFAULT 'q',
  state smallint NOT NULL DEFAULT 0, priority smallint NOT NULL DEFAULT 0, run_at timestamptz NOT NULL DEFAULT now(),
  attempt smallint NOT NULL DEFAULT 0, worker int, lease timestamptz, payload jsonb);
CREATE INDEX ON baseline (queue, priority, run_at, id) WHERE state = 0
"""
BASELINE_CLAIM = """
UPDATE baseline SET state = 1, attempt = attempt + 1, worker = 1, lease = now() + interval '30s'
 WHERE id = ANY (ARRAY(SELECT id FROM baseline WHERE queue = 'q' AND state = 0 AND run_at <= now()
                        ORDER BY priority, run_at, id LIMIT {batch} FOR UPDATE SKIP LOCKED))
RETURNING id, payload
"""
BASELINE_DONE = "UPDATE baseline SET state = 2, lease = NULL WHERE id = ANY (%s)"


class Bench:
    def __init__(self, url: str, tasks: int, batch: int) -> None:
        self.url = url
        self.tasks = tasks
        self.batch = batch
        self.admin = psycopg.connect(url, autocommit=True, prepare_threshold=1)
        self.schemas = 0

    def fresh(self) -> PostgresStore:
        self.schemas += 1
        self.admin.execute(f"DROP SCHEMA IF EXISTS bench{self.schemas - 1} CASCADE")
        store = PostgresStore(self.url, schema=f"bench{self.schemas}")
        store.prepare()
        return store

    def fresh_baseline(self) -> None:
        self.admin.execute("DROP TABLE IF EXISTS baseline")
        self.admin.execute(BASELINE_TABLE, prepare=False)

    def new_tasks(self, store: PostgresStore, count: int) -> list[Task]:
        now = store.now()
        blank = replace(
            a_task(), pipeline="bench", phase="run", created_at=now, run_at=now, updated_at=now, payload_json=PAYLOAD
        )
        return [replace(blank, task_id=task_id) for task_id in new_ids(now, count)]

    # ── measurements: each returns seconds ──

    def drain(self) -> float:
        store = self.fresh()
        for _ in range(0, self.tasks, 5000):
            store.insert(self.new_tasks(store, min(5000, self.tasks)))
        self.admin.execute("VACUUM ANALYZE")
        claim = Claim("w1", [PhaseClaim(pipeline="bench", phase="run", limit=self.batch, lease_for=LEASE)])
        done = 0
        moves: list[Move] = []
        began = time.perf_counter()
        while True:
            _, tasks = store.settle_and_claim(moves, claim)
            if not tasks and not moves:
                break
            now = store.now()
            moves = [Move(task, rules.complete(task, PLAN, None, now, by="w1")) for task in tasks]
            done += len(tasks)
        spent = time.perf_counter() - began
        assert done == self.tasks, (done, self.tasks)
        store.close()
        return spent

    def drain_baseline(self) -> float:
        self.fresh_baseline()
        self.admin.execute(
            "INSERT INTO baseline (payload) SELECT %s::jsonb FROM generate_series(1, %s)", (PAYLOAD, self.tasks)
        )
        self.admin.execute("VACUUM ANALYZE")
        claim = BASELINE_CLAIM.format(batch=self.batch)
        began = time.perf_counter()
        while rows := self.admin.execute(claim, binary=True).fetchall():
            self.admin.execute(BASELINE_DONE, ([row[0] for row in rows],))
        return time.perf_counter() - began

    def add(self) -> float:
        store = self.fresh()
        count = self.tasks // 10
        tasks = self.new_tasks(store, count)
        began = time.perf_counter()
        for task in tasks:
            store.insert([task])
        spent = time.perf_counter() - began
        store.close()
        return spent * 10

    def add_baseline(self) -> float:
        self.fresh_baseline()
        began = time.perf_counter()
        for _ in range(self.tasks // 10):
            self.admin.execute("INSERT INTO baseline (payload) VALUES (%s)", (PAYLOAD,))
        return (time.perf_counter() - began) * 10

    def add_many(self) -> float:
        store = self.fresh()
        spent = 0.0
        for _ in range(0, self.tasks, 1000):
            tasks = self.new_tasks(store, 1000)
            began = time.perf_counter()
            store.insert(tasks)
            spent += time.perf_counter() - began
        store.close()
        return spent

    def add_many_baseline(self) -> float:
        self.fresh_baseline()
        began = time.perf_counter()
        for _ in range(0, self.tasks, 1000):
            with self.admin.cursor().copy("COPY baseline (payload) FROM STDIN") as copy:
                for _ in range(1000):
                    copy.write_row((PAYLOAD,))
        return time.perf_counter() - began

    # ── comparisons: each returns seconds per task (at the start, at the end) ──

    def scale(self) -> tuple[float, float]:
        """Rounds with few waiting tasks and with a million."""
        rates = []
        for waiting in (10 * self.batch, 1_000_000):
            store = self.fresh()
            for _ in range(0, waiting, 5000):
                store.insert(self.new_tasks(store, min(5000, waiting)))
            self.admin.execute("VACUUM ANALYZE")
            rates.append(self._run_rounds(store, 9))
            store.close()
        return rates[0], rates[1]

    def snapshot(self) -> tuple[float, float]:
        """Rounds at the start and after 80,000 tasks, while a transaction holds an old snapshot."""
        store = self.fresh()
        for _ in range(0, 100_000, 5000):
            store.insert(self.new_tasks(store, 5000))
        self.admin.execute("VACUUM ANALYZE")
        with psycopg.connect(self.url) as old:
            old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            old.execute("SELECT 1")
            first = self._run_rounds(store, 10)
            self._run_rounds(store, 80_000 // self.batch)
            last = self._run_rounds(store, 10)
        store.close()
        return first, last

    def policies(self) -> tuple[float, float]:
        """Rounds of a role without and with row-level security, whose policy lets it read and write everything."""
        role = f"bench_service_{os.getpid()}"
        self.admin.execute(f"DROP ROLE IF EXISTS {role}")
        self.admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'bench'")
        parts = urlsplit(self.url)
        url = parts._replace(netloc=f"{role}:bench@{parts.netloc.rpartition('@')[2]}").geturl()
        spent = []
        try:
            for secured in (False, True):
                owner = self.fresh()
                self.admin.execute(f"GRANT USAGE ON SCHEMA {owner.schema} TO {role}")
                self.admin.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA {owner.schema} TO {role}")
                if secured:
                    owner.apply_policies(PolicySettings(services=[role], tenants=[]))
                for _ in range(0, self.tasks, 5000):
                    owner.insert(self.new_tasks(owner, 5000))
                owner.close()
                self.admin.execute("VACUUM ANALYZE")
                store = PostgresStore(url, schema=owner.schema)
                spent.append(self._run_rounds(store, self.tasks // self.batch))
                store.close()
        finally:
            self.admin.execute(f"DROP OWNED BY {role}")
            self.admin.execute(f"DROP ROLE {role}")
        return spent[0], spent[1]

    def _run_rounds(self, store: PostgresStore, count: int) -> float:
        claim = Claim("w1", [PhaseClaim(pipeline="bench", phase="run", limit=self.batch, lease_for=LEASE)])
        moves: list[Move] = []
        done = 0
        began = time.perf_counter()
        for _ in range(count):
            _, tasks = store.settle_and_claim(moves, claim)
            moves = [Move(task, rules.complete(task, PLAN, None, store.now())) for task in tasks]
            done += len(tasks)
        spent = time.perf_counter() - began
        store.swap(moves)
        assert done == count * self.batch
        return spent / done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", nargs="?")
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="drain,add,add_many")
    given = parser.parse_args()
    server = None if given.url else PostgresServer()
    url = given.url or (server.fresh_database() if server else "")
    bench = Bench(url, given.tasks, given.batch)
    try:
        for name in given.only.split(","):
            if baseline := getattr(bench, f"{name}_baseline", None):
                report(name, getattr(bench, name), baseline, given.tasks, given.rounds)
            else:
                compare(name, getattr(bench, name), given.rounds)
    finally:
        bench.admin.close()
        if server is not None:
            server.close()


def report(name: str, ours: Callable[[], float], baseline: Callable[[], float], tasks: int, rounds: int) -> None:
    """Print the rate and its ratio to the baseline, measured back to back under the same load."""
    pairs = [(ours(), baseline()) for _ in range(rounds)]
    rate, floor = (statistics.median(tasks / pair[index] for pair in pairs) for index in (0, 1))
    ratio = statistics.median(pair[1] / pair[0] for pair in pairs)
    print(f"{name:10s} {rate:>9,.0f}/s   baseline {floor:>9,.0f}/s   ratio {ratio:.2f}", flush=True)


def compare(name: str, both: Callable[[], tuple[float, float]], rounds: int) -> None:
    """Print the ratio of the second measurement to the first."""
    pairs = [both() for _ in range(rounds)]
    first, last = (statistics.median(1 / pair[index] for pair in pairs) for index in (0, 1))
    ratio = statistics.median(pair[0] / pair[1] for pair in pairs)
    print(f"{name:10s} {last:>9,.0f}/s   at first {first:>6,.0f}/s   ratio {ratio:.2f}", flush=True)


if __name__ == "__main__":
    main()
