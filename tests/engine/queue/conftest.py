"""What the queue itself decides is one and the same on every store."""

from tests.engine.local import queue

__all__ = ["queue"]
