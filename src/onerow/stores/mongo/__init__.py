"""MongoDB: one task, one document. Every atomic step touches one document, so that a standalone server is enough."""

from onerow.stores.mongo.store import MongoStore

__all__ = ["MongoStore"]
