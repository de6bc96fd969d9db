"""SQLite: the embedded default. One file, one writer per process, one transaction per worker round."""

from onerow.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
