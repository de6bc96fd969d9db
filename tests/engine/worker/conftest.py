"""The worker's tests run on every store."""

from tests.engine.local import queue

__all__ = ["queue"]
