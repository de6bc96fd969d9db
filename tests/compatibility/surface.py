"""The public surface as data: everything that scripts, dashboards and other programs may depend on.

`python -m tests.compatibility.surface` writes surface.json anew; list what changed in CHANGELOG.md.
"""

import ast
import importlib
import inspect
import json
import os
import re
import sqlite3
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner

import onerow
from onerow.cli.exit_codes import EXIT_CODES
from onerow.cli.lazy_group import LazyGroup
from onerow.cli.main import COMMANDS, main
from onerow.core.failure import ERROR_CLASSES
from onerow.core.status import Status
from onerow.engine.control.definitions import WORKER
from onerow.engine.events import events
from onerow.engine.queue.move import KINDS
from onerow.stores.mongo import schema as mongo_schema
from onerow.stores.sqlite import SqliteStore
from tests.compatibility.contents import write

FILE = Path(__file__).with_name("surface.json")
SOURCE = Path(onerow.__file__).parent
POSTGRES_SCHEMA = SOURCE / "stores" / "postgres" / "sql" / "schema_1.sql"


def collect(folder: Path) -> dict[str, Any]:
    """The surface of this code; `folder` is empty and takes a store with a task in every state."""
    store = SqliteStore(folder / "surface.db")
    write(store)
    store.close()
    return {
        "python names": sorted(onerow.__all__),
        "python signatures": dict(_signatures()),
        "commands": dict(_commands()),
        "exit codes": sorted(EXIT_CODES),
        "environment variables": sorted(_environment_variables()),
        "json keys": _json_keys(f"sqlite:///{folder / 'surface.db'}"),
        "statuses": [str(status) for status in Status],
        "error classes": sorted(ERROR_CLASSES),
        "history words": sorted(_history_words()),
        "events": sorted(
            name for name, _ in inspect.getmembers(events, inspect.isclass) if _.__module__ == events.__name__
        ),
        "note kinds": sorted(_note_kinds(folder / "surface.db")),
        "sqlite": _sqlite_objects(folder / "surface.db"),
        "postgresql": _postgres_objects(),
        "mongodb indexes": sorted(index.name for index in mongo_schema.INDEXES),
    }


def _signatures() -> Iterator[tuple[str, list[str]]]:
    """Parameters of the public methods that applications call."""
    classes = (
        onerow.Queue, onerow.Pipeline, onerow.Worker, onerow.Context, onerow.AsyncContext, onerow.Selection,
        onerow.Leased, onerow.Puller, onerow.Crons,
    )  # fmt: skip
    for owner in classes:
        for name, method in inspect.getmembers(owner, callable):
            if not name.startswith("_") or name == "__init__":
                yield f"{owner.__name__}.{name}", _parameters(method)
    yield "Pipeline.phase", _parameters(onerow.Pipeline._phase)  # a property, which returns this method


def _parameters(method: Callable[..., Any]) -> list[str]:
    """Names of parameters; shared keywords are named one by one."""
    names = []
    for parameter in inspect.signature(method).parameters.values():
        shared = typing.get_args(parameter.annotation) if parameter.kind is parameter.VAR_KEYWORD else ()
        names += [name for each in shared for name in typing.get_type_hints(each)] or [parameter.name]
    return [name for name in names if name != "self"]


def _commands() -> Iterator[tuple[str, dict[str, Any]]]:
    for name in sorted(COMMANDS):
        command = _imported(COMMANDS[name][0])
        yield name, _command(command)
        if isinstance(command, LazyGroup):
            for member, (place, _) in sorted(command.members.items()):
                yield f"{name} {member}", _command(_imported(place))


def _imported(place: str) -> click.Command:
    module, _, attribute = place.partition(":")
    return getattr(importlib.import_module(module), attribute)  # type: ignore[no-any-return]


def _command(command: click.Command) -> dict[str, Any]:
    options, arguments = {}, []
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            arguments.append(parameter.name)
        else:
            spellings = "/".join([*parameter.opts, *parameter.secondary_opts])
            choices = getattr(parameter.type, "choices", None)
            flag = isinstance(parameter, click.Option) and parameter.is_flag
            options[spellings] = {"flag": flag, "variable": parameter.envvar} | (
                {"choices": list(choices)} if choices else {}
            )
    return {"arguments": arguments, "options": options}


def _environment_variables() -> set[str]:
    sources = [path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")]
    return {name for text in sources for name in re.findall(r"\bONEROW_[A-Z_]+[A-Z]\b", text)}


def _json_keys(url: str) -> dict[str, list[str]]:
    """Key paths in the answers of the commands that print JSON."""
    calls = [
        ["list"], ["show", "failed"], ["show", "album"], ["why", "parked"], ["why", "leased"], ["counts"], ["failures"],
        ["workers"], ["cron"], ["stats"], ["logs", "parked"], ["doctor"], ["migrate", "--check"], ["retry", "failed"],
        ["set-priority", "parked", "--priority", "3"],
    ]  # fmt: skip
    keys = {}
    for call in calls:
        answer = CliRunner().invoke(main, [*call, "--store", url, "--json"])
        text = answer.stdout.strip()
        values = [json.loads(line) for line in text.splitlines()] if call[0] == "logs" else [json.loads(text)]
        keys[" ".join(call)] = sorted({path for value in values for path in _paths(value)})
    return keys


def _paths(value: Any, prefix: str = "") -> Iterator[str]:
    """Dotted paths of keys; what users put in themselves (payload, results) is one key."""
    if isinstance(value, dict):
        for key, inner in value.items():
            path = f"{prefix}.{key}" if prefix else str(key)
            yield path
            if key not in ("payload", "results", "steps", "metadata", "progress", "run_ms", "wait_ms"):
                yield from _paths(inner, path)
    elif isinstance(value, list):
        for inner in value:
            yield from _paths(inner, f"{prefix}[]")


def _history_words() -> set[str]:
    """Words that rules write into a task's history."""
    words = set()
    for path in (SOURCE / "core").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                if node.func.id == "Entry":
                    values = [word.value for word in node.keywords if word.arg == "what"]
                elif node.func.id in ("attempted", "_entry", "by_hand"):
                    values = [argument for argument in node.args if isinstance(argument, ast.Constant)]
                else:
                    continue
                words |= {
                    value.value for value in values if isinstance(value, ast.Constant) and isinstance(value.value, str)
                }
    return words - {""}


def _note_kinds(path: Path) -> set[str]:
    """Kinds of notes: those that a move carries along, and those that a worker wrote into the store."""
    with sqlite3.connect(path) as connection:
        stored = {kind for (kind,) in connection.execute("SELECT DISTINCT kind FROM onerow_note")}
    connection.close()
    return stored | set(KINDS) | {WORKER}


def _sqlite_objects(path: Path) -> dict[str, Any]:
    with sqlite3.connect(path) as connection:
        names = [
            name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
        ]
        tables = {
            name: [row[1] for row in connection.execute(f"PRAGMA table_info({name})")]
            for name in names
            if not name.startswith("sqlite_") and "_title_" not in name
        }
        indexes = [
            name
            for (name,) in connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL ORDER BY name"
            )
        ]
    connection.close()
    return {"tables": tables, "indexes": indexes}


def _postgres_objects() -> dict[str, list[str]]:
    text = re.sub(r"--[^\n]*", "", POSTGRES_SCHEMA.read_text(encoding="utf-8"))
    return {
        kind.lower(): sorted(
            re.findall(
                rf"CREATE (?:OR REPLACE )?(?:UNLOGGED )?(?:UNIQUE )?{kind} (?:IF NOT EXISTS )?([\w.{{}}\"]+)", text
            )
        )
        for kind in ("TABLE", "INDEX", "FUNCTION", "TRIGGER", "DOMAIN", "TYPE")
    }


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        FILE.write_text(json.dumps(collect(Path(name)), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
