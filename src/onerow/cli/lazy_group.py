"""A group of commands that are imported on use."""

import importlib
from collections.abc import Mapping
from typing import Any

import click

from onerow.core.suggest import did_you_mean


class LazyGroup(click.Group):
    """A command with subcommands: `members` has the place (module:attribute) and the summary of each."""

    def __init__(self, *given: Any, members: Mapping[str, tuple[str, str]], **more: Any) -> None:
        super().__init__(*given, **more)
        self.members = members

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.members)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.members:
            return None
        module, _, attribute = self.members[cmd_name][0].partition(":")
        return getattr(importlib.import_module(module), attribute)  # type: ignore[no-any-return]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.members and not args[0].startswith("-"):
            see = f"see: {ctx.command_path} --help"
            ctx.fail(f"no command {ctx.command_path} {args[0]}; {did_you_mean(args[0], self.members, see)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.members.items()])
