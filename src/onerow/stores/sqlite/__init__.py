"""SQLite: the embedded default. One file, one writer per process, one transaction per turn."""

from onerow.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
