"""Loads the SQL files and inserts the schema name."""

from functools import cache
from importlib.resources import files


@cache
def statement(name: str, schema: str) -> str:
    """Return the text of sql/<name>.sql, with {schema} replaced by the quoted schema name."""
    text = files("onerow.stores.postgres").joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")
    return text.replace("{schema}", quoted(schema))


def quoted(name: str) -> str:
    """Return a name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'
