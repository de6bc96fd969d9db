"""Benchmark baseline: a minimal queue on MongoDB.

Small documents. It claims a job by find_one_and_update and finishes it by one update, both journaled. It has no
history, leases, results or retries.
"""

import time
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from pymongo import MongoClient

from onerow.stores.mongo.connections import JOURNALED

_PAYLOAD = {"ts": 0.0, "to": "x" * 60}


class Baseline:
    """A minimal queue in its own collection, dropped on close."""

    def __init__(self, url: str) -> None:
        self._client: MongoClient[dict[str, Any]] = MongoClient(url)
        database = self._client.get_default_database(write_concern=JOURNALED)
        self._jobs = database[f"onerow_baseline_{uuid4().hex[:8]}"]
        self._jobs.create_index(
            [("queue", 1), ("priority", 1), ("run_at", 1), ("_id", 1)], partialFilterExpression={"state": 0}
        )

    def add(self, count: int) -> float:
        """Add jobs, one per write; return the seconds it took."""
        start = time.perf_counter()
        for _ in range(count):
            self._jobs.insert_one(_job())
        return time.perf_counter() - start

    def add_many(self, count: int) -> float:
        """Add jobs, 1,000 per write; return the seconds it took."""
        start = time.perf_counter()
        for _ in range(0, count, 1000):
            self._jobs.insert_many([_job() for _ in range(1000)], ordered=False)
        return time.perf_counter() - start

    def drain(self, count: int) -> float:
        """Claim and finish jobs; return the seconds it took."""
        order = [("priority", 1), ("run_at", 1), ("_id", 1)]
        start = time.perf_counter()
        for _ in range(count):
            job = self._jobs.find_one_and_update(
                {"queue": "q", "state": 0, "run_at": {"$lte": datetime.now(UTC)}},
                {"$set": {"state": 1, "worker": 1}, "$inc": {"attempt": 1}},
                sort=order,
            )
            if job is None:
                break
            self._jobs.update_one({"_id": job["_id"], "state": 1}, {"$set": {"state": 2, "worker": None}})
        return time.perf_counter() - start

    def log(self, count: int, line: str) -> float:
        """Write output lines, 1,000 per write; return the seconds it took."""
        start = time.perf_counter()
        for first in range(0, count, 1000):
            some = range(first, min(first + 1000, count))
            self._jobs.insert_many([{"task": "t", "at": number, "text": line} for number in some], ordered=False)
        return time.perf_counter() - start

    def close(self) -> None:
        self._jobs.drop()
        self._client.close()


def _job() -> dict[str, Any]:
    return {"queue": "q", "state": 0, "priority": 0, "run_at": datetime.now(UTC), "attempt": 0, "payload": _PAYLOAD}
