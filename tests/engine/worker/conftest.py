"""The worker is one and the same on every store."""

from tests.engine.local import queue

__all__ = ["queue"]
