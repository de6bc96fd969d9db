"""The command `onerow` and its subcommands; each is imported when it is used, so that help comes at once."""

import importlib
import os
import sys

import click

from onerow.cli.exit_codes import exit_code, explain
from onerow.core.errors import OnerowError
from onerow.engine.output.terminal import neutral

SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Begin": {
        "demo": ("onerow.cli.start.demo:command", "Watch a pipeline survive the death of its worker; needs nothing."),
        "init": ("onerow.cli.start.init:command", "Write a small project that runs, with a test that passes."),
        "worker": ("onerow.cli.start.worker:command", "Run the phases of an app's pipelines."),
        "publish": ("onerow.cli.start.add:publish", "Write an app's pipelines to the store."),
        "add": ("onerow.cli.start.add:add", "Put a task in."),
    },
    "Look": {
        "watch": ("onerow.cli.inspect.watch:command", "A live board of all pipelines."),
        "counts": ("onerow.cli.inspect.tasks:counts", "How many tasks stand where."),
        "list": ("onerow.cli.inspect.tasks:list_", "Tasks that match a query, the newest first."),
        "show": ("onerow.cli.inspect.tasks:show", "One task: its row, its timeline, its results."),
        "why": ("onerow.cli.inspect.tasks:why", "Why a task isn't running, and what to do about it."),
        "logs": ("onerow.cli.inspect.logs:command", "What a task's code printed and logged."),
        "failures": ("onerow.cli.inspect.figures:failures", "The last failures, grouped by cause."),
        "workers": ("onerow.cli.inspect.figures:workers", "Who works, and what each holds."),
        "cron": ("onerow.cli.inspect.figures:cron", "What is started by the clock."),
        "stats": ("onerow.cli.inspect.figures:stats", "Outcomes and times by phase."),
    },
    "Act": {
        "retry": ("onerow.cli.act.tasks:retry", "Failed tasks run again, with a fresh budget."),
        "cancel": ("onerow.cli.act.tasks:cancel", "End tasks for good; running work is stopped."),
        "replay": ("onerow.cli.act.tasks:replay", "Ended tasks run again from an earlier phase."),
        "finish": ("onerow.cli.act.tasks:finish", "Mark tasks, or their phase, as done by hand."),
        "signal": ("onerow.cli.act.tasks:signal", "Tell a task that something happened."),
        "reschedule": ("onerow.cli.act.tasks:reschedule", "Waiting tasks are due at another time."),
        "priority": ("onerow.cli.act.tasks:priority", "Give tasks another place in the order."),
        "pause": ("onerow.cli.act.controls:pause", "Nobody claims from a phase or pipeline."),
        "resume": ("onerow.cli.act.controls:resume", "Undo a pause."),
        "limit": ("onerow.cli.act.controls:limit", "How many of a phase may run at once."),
        "purge": ("onerow.cli.act.controls:purge", "Remove tasks that ended long ago."),
    },
    "Care": {
        "check": ("onerow.cli.operate.maintenance:check", "Load an app and say what is wrong with it."),
        "doctor": ("onerow.cli.operate.maintenance:doctor", "Would the promises hold here?"),
        "migrate": ("onerow.cli.operate.maintenance:migrate", "Create or update the tables."),
        "backup": ("onerow.cli.operate.maintenance:backup", "Copy the store while others write."),
        "move": ("onerow.cli.operate.move:command", "Carry a whole queue to another store."),
        "bench": ("onerow.cli.bench:command", "Measure this machine and store against a thin loop."),
        "completion": ("onerow.cli.start.completion:command", "Shell completion for bash, zsh or fish."),
    },
}
COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}


class _Commands(click.Group):
    """Subcommands by name, imported late; errors of ours are one line of what and one of what to do."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        return getattr(importlib.import_module(module), attribute)  # type: ignore[no-any-return]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, 1)
            ctx.fail(f"no command {args[0]!r}." + (f" Did you mean {near[0]!r}?" if near else " Try: onerow --help"))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, section in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, text) for name, (_, text) in section.items()])

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except (OnerowError, KeyboardInterrupt) as error:
            if ctx.params.get("debug"):
                raise
            what, fix = explain(error)
            if what:
                click.echo(neutral(f"onerow: {what}"), err=True)
            if fix:
                click.echo(neutral(f"        {fix}"), err=True)
            ctx.exit(exit_code(error))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show tracebacks.")
@click.version_option(package_name="onerow")
def main(debug: bool) -> None:
    """Durable multi-phase work in the database you already have: one task, one row.

    Start with: onerow demo
    """
    # Commands that load the user's code find it in the folder they were started in, as `python -m` does.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
