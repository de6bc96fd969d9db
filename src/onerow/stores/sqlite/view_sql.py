"""The SQL of one view over the queue: the view, its triggers and its indexes.

Differs from stores/postgres/view_sql.py: SQLite has no functions in SQL, so that each trigger is a list of statements with
conditions; what they can't do is refused with the command that does it.
"""

from collections.abc import Iterator

from onerow.stores.sqlite.view_columns import quoted
from onerow.stores.sqlite.view_insert import InsertSql
from onerow.stores.sqlite.view_update import UpdateSql


class ViewSql(InsertSql, UpdateSql):
    """Renders the statements of one view."""

    def create(self) -> Iterator[str]:
        """Yield the statements that create the view, its triggers and its indexes."""
        yield f"CREATE VIEW {self.view} AS\n{self.select()}"
        name = self.mapping.name
        for event, lines in (
            ("INSERT", self.insert_statements()),
            ("UPDATE", self.update_statements()),
            ("DELETE", self.delete_statements()),
        ):
            body = "".join(f"  {line};\n" for line in lines)
            trigger = quoted(f"onerow_{name}_{event.lower()}")
            yield f"CREATE TRIGGER {trigger} INSTEAD OF {event} ON {self.view} BEGIN\n{body}END"
        for index, definition in self.indexes():
            yield f"CREATE INDEX {quoted(index)} ON {definition}"
