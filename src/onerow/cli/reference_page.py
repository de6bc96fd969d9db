"""The page about every command, in Markdown, with nothing in it but what the commands say of themselves."""

import inspect

import click

from onerow.cli.exit_codes import EXIT_CODES
from onerow.cli.main import SECTIONS, main
from onerow.engine.views.query import KEYS


def reference_page() -> str:
    """docs/reference.md."""
    context = click.Context(main, info_name="onerow")
    lines = [
        "# Reference",
        "",
        "Rendered by `python docs/render_reference.py` from the commands themselves.",
        "",
        "Commands that only operate need a store and none of your code. The store is named by `--store`, by "
        '`ONEROW_STORE`, or by the project: `store = "…"` in `onerow.toml`, or under `[tool.onerow]` in '
        "`pyproject.toml`. A relative SQLite path is taken from the project's folder. `--json` answers in JSON, for "
        "programs; without it answers are tables, coloured in a terminal and plain elsewhere. Notes for people go to "
        "standard error. `onerow --debug COMMAND` shows tracebacks.",
        "",
    ]
    for title, section in SECTIONS.items():
        lines += [f"## {title}", ""]
        for name in section:
            command = main.get_command(context, name)
            assert command is not None
            lines += _command(command, click.Context(command, info_name=f"onerow {name}"))
    lines += ["## Queries", "", "Words without a key are one text, looked for in title, error, id and payload.", ""]
    lines += ["| word | means |", "| --- | --- |", *(f"| `{key}:` | {text} |" for key, text in KEYS.items()), ""]
    lines += [
        "A search through payloads or free text goes from the newest task backwards, stops after 80 ms, says how far "
        "it looked, and offers more.",
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
            lines += ["```sh", *part.removeprefix("\b\n").splitlines(), "```", ""]
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
