"""The part of SqliteStore with the protocols of table_ports: views over the queue, and adopting a table."""

from onerow.core.table_mapping import TableMapping
from onerow.stores.sqlite import views
from onerow.stores.sqlite.connections import Connections
from onerow.stores.sqlite.old_table import SqliteOldTable


class Tables:
    """Views in the words of the user's table, and adopting that table."""

    _connections: Connections

    def view_sql(self, mapping: TableMapping) -> str:
        return views.sql(self._connections, mapping)

    def create_view(self, mapping: TableMapping) -> None:
        views.create(self._connections, mapping)

    def drop_view(self, name: str) -> None:
        views.drop(self._connections, name)

    def views(self) -> list[TableMapping]:
        return views.made(self._connections)

    def old_table(self, mapping: TableMapping) -> SqliteOldTable:
        return SqliteOldTable(self._connections, mapping)
