"""The SQL of one view over the queue: the view, its trigger and its indexes."""

from collections.abc import Iterator

from onerow.core.errors import BadInput
from onerow.stores.postgres.view_columns import literal
from onerow.stores.postgres.view_trigger import TriggerSql


class ViewSql(TriggerSql):
    """Renders the statements of one view."""

    def create(self) -> Iterator[str]:
        """Yield the statements that create the view and its triggers, or replace the triggers' function."""
        yield self.trigger_function()
        yield (f"CREATE VIEW {self.view} WITH (security_invoker = true) AS\n{self.select()}\nWHERE {self.condition()}")
        yield f"COMMENT ON VIEW {self.view} IS 'onerow view of pipeline {self.mapping.pipeline.replace(chr(39), '')}'"
        yield (
            f"CREATE TRIGGER onerow INSTEAD OF INSERT OR UPDATE OR DELETE ON {self.view} "
            f"FOR EACH ROW EXECUTE FUNCTION {self.function}()"
        )

    def drop(self) -> Iterator[str]:
        """Yield the statements that remove the view and what belongs to it."""
        yield f"DROP VIEW IF EXISTS {self.view}"
        yield f"DROP FUNCTION IF EXISTS {self.function}()"

    def indexes(self) -> list[tuple[str, str]]:
        """Return name and definition (after ON) of the indexes that the view needs: its own, and one for a typed key."""
        wanted = [list(names) for names in self.mapping.indexes]
        key = self.mapping.key
        if key.kind != "text" and [key.name] not in wanted:
            wanted.append([key.name])
        columns = {column.name: column for column in self.mapping.columns}
        bare = ViewSql(self.mapping, self.schema_name, row="")
        found = []
        for number, names in enumerate(wanted, 1):
            for name in names:
                column = columns[name]
                if "as_time" in self.shown(column) or column.kind == "json":
                    raise BadInput(
                        f"mapping: an index on {name!r} ({column.kind} of {column.field}) is not possible",
                        fix="index another column, or map the column as text",
                        field="indexes",
                    )
            body = ", ".join(f"({bare.shown(columns[name])})" for name in names)
            where = f"WHERE pipeline = {literal(self.mapping.pipeline)}"
            found.append((f"{self.index_prefix}_{number}", f"{self.schema}.task_queue ({body}) {where}"))
        return found
