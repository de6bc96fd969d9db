"""The part of PostgresStore with the protocols of table_ports: views over the queue, and adopting a table."""

from onerow.core.table_mapping import TableMapping
from onerow.stores.postgres import views
from onerow.stores.postgres.connections import Connections
from onerow.stores.postgres.old_table import PostgresOldTable


class Tables:
    """Views in the words of the user's table, and adopting that table."""

    _connections: Connections
    _schema: str

    def view_sql(self, mapping: TableMapping) -> str:
        return views.sql(self._schema, mapping)

    def create_view(self, mapping: TableMapping) -> None:
        views.create(self._connections, self._schema, mapping)

    def drop_view(self, name: str) -> None:
        views.drop(self._connections, self._schema, name)

    def views(self) -> list[TableMapping]:
        return views.made(self._connections, self._schema)

    def old_table(self, mapping: TableMapping) -> PostgresOldTable:
        return PostgresOldTable(self._connections, self._schema, mapping)
