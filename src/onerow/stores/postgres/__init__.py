"""PostgreSQL store: many machines share one table. Each operation is one short transaction, sent in one pipeline."""

from onerow.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
