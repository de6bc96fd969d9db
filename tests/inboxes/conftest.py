"""Queues on every store, like the engine's tests."""

from tests.engine.conftest import entry, queue, sqlite_queue

__all__ = ["entry", "queue", "sqlite_queue"]
