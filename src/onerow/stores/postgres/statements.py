"""Loads the SQL files; several statements share the parts in sql/parts."""

import re
from functools import cache
from importlib.resources import files

_FOLDER = files("onerow.stores.postgres").joinpath("sql")


@cache
def statement(name: str, schema: str) -> str:
    """Return sql/<name>.sql with each {include part} replaced by sql/parts/<part>.sql.

    Indentation and comments are removed, except the name, by which pg_stat_activity shows what is executed: psycopg
    parses a statement of more than 4,096 characters each time it is sent.
    """
    _, _, rest = script(name, schema).partition("\n")
    return f"-- {name}\n" + re.sub(
        r"\{include (\w+)\}", lambda found: _condensed(script(f"parts/{found[1]}", schema)), _condensed(rest)
    )


@cache
def script(name: str, schema: str) -> str:
    """Return the text of sql/<name>.sql, with {schema} replaced by the quoted schema name."""
    return _FOLDER.joinpath(f"{name}.sql").read_text(encoding="utf-8").replace("{schema}", quoted(schema))


def _condensed(text: str) -> str:
    lines = [line.strip() for line in text.splitlines()]
    return "\n".join(line for line in lines if line and not line.startswith("--"))


def quoted(name: str) -> str:
    """Return a name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'
