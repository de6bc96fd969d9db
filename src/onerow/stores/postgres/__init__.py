"""PostgreSQL: many machines, one table. Each act is one short transaction, sent in one piece."""

from onerow.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
