"""Render docs/reference.md from the help texts of the commands."""

import inspect

import click

from onerow.cli.exit_codes import EXIT_CODES
from onerow.cli.lazy_group import LazyGroup
from onerow.cli.main import SECTIONS, main
from onerow.core.query import KEYS


def reference_page() -> str:
    """Return the text of docs/reference.md."""
    context = click.Context(main, info_name="onerow")
    lines = [
        "# Reference",
        "",
        "Rendered by `python docs/render_reference.py` from the commands themselves.",
        "",
        "Commands that inspect or operate a store do not need your code. The store URL comes from `--store`, else from "
        '`ONEROW_STORE`, else from the nearest settings file at or above the current folder: `store = "…"` in '
        "`onerow.toml`, or under `[tool.onerow]` in `pyproject.toml`. `Queue()` without a URL follows the same order. "
        "The URL of `Queue('…')` in an app is a default, which `--store` and `ONEROW_STORE` replace. `onerow config` "
        "shows the store of the commands, and `onerow check APP` that of an app. A relative SQLite path is relative to the project folder. `--json` prints JSON for "
        "programs; otherwise the output is a table, coloured in a terminal and plain elsewhere. Remarks for people go "
        "to standard error. `onerow --debug COMMAND` shows tracebacks.",
        "",
    ]
    for title, section in SECTIONS.items():
        lines += [f"## {title}", ""]
        for name in section:
            command = main.get_command(context, name)
            assert command is not None
            lines += _command(command, click.Context(command, info_name=f"onerow {name}"))
            if isinstance(command, LazyGroup):
                inner = click.Context(command, info_name=f"onerow {name}")
                for member in command.members:
                    found = command.get_command(inner, member)
                    assert found is not None
                    lines += _command(found, click.Context(found, info_name=f"onerow {name} {member}"))
    lines += [
        "## Queries",
        "",
        "Words without a key form one text, which is searched in title, error, id and payload. `OR`, `-` or `NOT`, and "
        "parentheses combine conditions; see [Query language](query-language.md).",
        "",
    ]
    lines += ["| key | meaning |", "| --- | --- |", *(f"| `{key}:` | {text} |" for key, text in KEYS.items()), ""]
    lines += [
        "A search in titles, errors or payloads, or for free text, starts at the newest task and stops after a second. "
        "It prints how far it searched and the command for the next page.",
        "",
        "## Exit codes",
        "",
        "| code | meaning |",
        "| --- | --- |",
        *(f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()),
        "",
    ]
    return "\n".join(lines)


def _command(command: click.Command, context: click.Context) -> list[str]:
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    lines = [f"### `{usage}`", ""]
    for part in inspect.cleandoc(command.help or "").split("\n\n"):
        if part.startswith("\b"):
            lines += ["<!-- fixture: some_videos -->", "```sh", *part.removeprefix("\b\n").splitlines(), "```", ""]
        else:
            lines += [" ".join(part.split()), ""]
    options = [
        option.get_help_record(context)
        for option in command.params
        if isinstance(option, click.Option) and not option.is_eager
    ]
    if shown := [record for record in options if record is not None]:
        lines += ["| option | |", "| --- | --- |"]
        lines += [f"| `{names}` | {text.replace('|', chr(92) + '|')} |" for names, text in shown]
        lines.append("")
    return lines
