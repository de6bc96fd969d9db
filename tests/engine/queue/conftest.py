"""The queue's own decisions do not depend on the store, so two stores without a server are enough."""

from tests.engine.local import queue

__all__ = ["queue"]
