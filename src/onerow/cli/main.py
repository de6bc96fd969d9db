"""The command `onerow`. Subcommands are imported on use, so that `onerow --help` is fast."""

import importlib
import json
import os
import re
import sys

import click

from onerow.cli.exit_codes import exit_code
from onerow.core.errors import OnerowError
from onerow.core.suggest import did_you_mean
from onerow.engine.output.terminal import neutral

SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Start": {
        "demo": ("onerow.cli.start.demo:command", "Run a demo pipeline whose worker is killed; needs no setup."),
        "init": ("onerow.cli.start.init:command", "Create a small example project with a test."),
        "worker": ("onerow.cli.start.worker:command", "Run the pipelines of an app."),
        "inbox": (
            "onerow.cli.start.inbox:command",
            "Receive tasks from a folder or signed webhooks, without running them.",
        ),
        "dev": ("onerow.cli.start.dev:command", "Run a worker that follows code changes, and the dashboard."),
        "web": ("onerow.cli.start.web:command", "Serve the dashboard and the HTTP API."),
        "access": ("onerow.cli.start.access:command", "Make users and tokens for the dashboard."),
        "publish": ("onerow.cli.start.add:publish", "Write the pipeline definitions of an app to the store."),
        "add": ("onerow.cli.start.add:add", "Add a task."),
    },
    "Inspect": {
        "monitor": ("onerow.tui.command:command", "Watch and operate a queue in the terminal."),
        "watch": ("onerow.cli.inspect.watch:command", "Show a live board of all pipelines."),
        "counts": ("onerow.cli.inspect.tasks:counts", "Count tasks by phase and status."),
        "list": ("onerow.cli.inspect.tasks:list_", "List tasks that match a query, newest first."),
        "show": ("onerow.cli.inspect.tasks:show", "Show one task: row, timeline, results."),
        "why": ("onerow.cli.inspect.tasks:why", "Explain why a task is not running and what to do."),
        "logs": ("onerow.cli.inspect.logs:command", "Show the output and log lines of a task."),
        "failures": ("onerow.cli.inspect.figures:failures", "Group recent failures by cause."),
        "workers": ("onerow.cli.inspect.figures:workers", "List workers and the tasks they hold."),
        "inboxes": ("onerow.cli.inspect.figures:inboxes", "Count the messages of each inbox."),
        "cron": ("onerow.cli.inspect.figures:cron", "List schedules."),
        "stats": ("onerow.cli.inspect.figures:stats", "Show outcomes and durations by phase."),
    },
    "Operate on tasks": {
        "retry": ("onerow.cli.operate.tasks:retry", "Run failed tasks again with a new retry budget."),
        "cancel": ("onerow.cli.operate.tasks:cancel", "Cancel tasks and stop their running work."),
        "replay": ("onerow.cli.operate.tasks:replay", "Run ended tasks again from an earlier phase."),
        "finish": ("onerow.cli.operate.tasks:finish", "Mark tasks, or their current phase, as completed."),
        "fail": ("onerow.cli.operate.tasks:fail", "Fail waiting tasks with a reason."),
        "annotate": ("onerow.cli.operate.tasks:annotate", "Replace the metadata of tasks."),
        "signal": ("onerow.cli.operate.tasks:signal", "Send a signal to a task."),
        "reschedule": ("onerow.cli.operate.tasks:reschedule", "Change when waiting tasks are due."),
        "set-priority": ("onerow.cli.operate.tasks:set_priority", "Change the priority of tasks."),
        "pause": ("onerow.cli.operate.phases:pause", "Stop claiming from a phase or pipeline."),
        "resume": ("onerow.cli.operate.phases:resume", "Resume a paused phase, pipeline or schedule."),
        "limit": ("onerow.cli.operate.phases:limit", "Show or set the concurrency limit of a phase."),
        "scale": ("onerow.cli.operate.scale:command", "Decide how many workers the work needs, and say why."),
        "operations": ("onerow.cli.operate.operations:command", "List operations on many tasks, or stop one."),
        "drain": ("onerow.cli.operate.phases:drain", "Ask a worker to finish its tasks and end."),
        "purge": ("onerow.cli.operate.phases:purge", "Delete tasks that ended long ago."),
    },
    "Maintain": {
        "check": ("onerow.cli.maintain.maintenance:check", "Load an app and report its problems."),
        "config": ("onerow.cli.maintain.config:command", "Show the settings and where each comes from."),
        "doctor": ("onerow.cli.maintain.maintenance:doctor", "Check store, clock, workers and leases."),
        "migrate": ("onerow.cli.maintain.maintenance:migrate", "Create or update the tables."),
        "backup": ("onerow.cli.maintain.maintenance:backup", "Copy the store while it is in use."),
        "move": ("onerow.cli.maintain.move:command", "Move a queue to another store."),
        "pg": ("onerow.cli.maintain.pg:group", "PostgreSQL: row-level security, attached tables."),
        "sqlite": ("onerow.cli.maintain.sqlite:group", "SQLite: views, adopting a queue table."),
        "deploy": (
            "onerow.cli.maintain.deploy:command",
            "Print files that run workers: systemd, Docker, Kubernetes, ….",
        ),
        "simulate": ("onerow.cli.maintain.simulate:command", "Try a plan of work and workers on a virtual clock."),
        "soak": ("onerow.cli.maintain.soak:command", "Run a store under faults and check the recorded history."),
        "completion": ("onerow.cli.start.completion:command", "Print a completion script for bash, zsh or fish."),
    },
}
COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}
_OTHER_NAMES = {"enqueue": "add", "run": "worker", "status": "counts"}
"""What other task queues call these commands."""


class _Commands(click.Group):
    """Import subcommands on use; print an onerow error as one line for the problem and one for the fix."""

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
            near = did_you_mean(_OTHER_NAMES.get(args[0], args[0]), COMMANDS, "see: onerow --help")
            ctx.fail(f"no command {args[0]!r}; {near}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, section in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, text) for name, (_, text) in section.items()])

    def invoke(self, ctx: click.Context) -> object:
        as_json = "--json" in ctx.args  # read now, because the command takes its arguments out
        try:
            return super().invoke(ctx)
        except (OnerowError, KeyboardInterrupt) as error:
            if ctx.params.get("debug"):
                raise
            if isinstance(error, OnerowError):
                _report(error, as_json=as_json)
            ctx.exit(exit_code(error))
        except click.BadParameter as error:
            raise _with_suggestion(error) from None


def _report(error: OnerowError, *, as_json: bool) -> None:
    if as_json:
        found = {"error": str(error), "fix": error.fix, "error_class": type(error).__name__}
        click.echo(json.dumps(found, ensure_ascii=False), err=True)
        return
    click.echo(neutral(f"onerow: {error}"), err=True)
    if error.fix:
        click.echo(neutral(f"        {error.fix}"), err=True)


def _with_suggestion(error: click.BadParameter) -> click.BadParameter:
    """Add the nearest valid value of an option to click's message."""
    choices = getattr(error.param and error.param.type, "choices", ())
    wrong = re.match("'(.*)' is not one of", error.message)
    if wrong is None:
        return error
    near = did_you_mean(wrong[1], map(str, choices), " ")
    return click.BadParameter(f"{error.message} {near.capitalize()}".strip(), ctx=error.ctx, param=error.param)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show tracebacks.")
@click.version_option(package_name="onerow")
def main(debug: bool) -> None:
    """Durable multi-phase work in the database you already have: one task, one row.

    Start with: onerow demo
    """
    # User code is imported from the current folder, as with `python -m`.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
