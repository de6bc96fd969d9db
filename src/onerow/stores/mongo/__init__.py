"""MongoDB: one task, one document. Every atomic write changes one document, so a standalone server is enough."""

from onerow.stores.mongo.store import MongoStore

__all__ = ["MongoStore"]
