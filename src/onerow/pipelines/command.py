"""The definition of a command phase: the program, its environment, and how its output is interpreted."""

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, Literal

import msgspec

from onerow.core.errors import PipelineError
from onerow.core.failure import ERROR_CLASSES, EXIT_CLASSES
from onerow.core.sizes import Size
from onerow.pipelines.arguments import Argument, parse, parse_text
from onerow.pipelines.options import size

ResultFrom = Literal["last_line", "file"]

PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "SHELL")
"""Variables of the worker's environment that every command gets; `env` adds others."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ALLOWED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\*?")
_PROGRESS_GROUPS = {"done", "total", "percent", "note"}


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A program and its arguments, never a shell."""

    where: str
    arguments: tuple[Argument, ...]
    cwd: str | None
    env: tuple[str, ...]
    set_env: tuple[tuple[str, Argument], ...]
    stdin: bool
    memory_limit: int | None
    exits: dict[int, str]
    progress: re.Pattern[str] | None
    result: ResultFrom | None
    steps: bool

    def __call__(self, *_: object) -> Any:
        raise TypeError(f"{self.where} is a command; a worker runs it")

    def class_of(self, code: int) -> str:
        """Return the error class of an exit code (128 + number for a signal), or 'ok'."""
        return self.exits.get(code) or EXIT_CLASSES.get(code, "unknown")

    def passes_on(self, variable: str) -> bool:
        """Whether the command gets this variable of the worker's environment."""
        return any(
            variable.startswith(name[:-1]) if name.endswith("*") else variable == name
            for name in (*PASSED_ON, *self.env)
        )


def build(
    where: str,
    argv: Any,
    *,
    cwd: str | PurePath | None,
    env: Sequence[Any],
    set_env: Mapping[str, str],
    stdin: Literal["payload"] | None,
    memory_limit: Size | None,
    exits: Mapping[Any, str],
    progress: str | re.Pattern[str] | None,
    result: ResultFrom | None,
    steps: bool,
) -> Command:
    """Validate the options and build a command; raise PipelineError."""
    if isinstance(env, str) or not all(isinstance(name, str) and _ALLOWED.fullmatch(name) for name in env):
        raise PipelineError(
            f"{where}: env is a list of the variables to pass on, like ['OPENAI_API_KEY', 'AWS_*']",
            fix="to give a variable a value, use set_env",
        )
    for name in set_env:
        if not _VARIABLE.fullmatch(name):
            raise PipelineError(f"{where}: {name!r} can't name a variable")
    for code, meaning in exits.items():
        if type(code) is not int or not 0 <= code <= 255 or meaning not in ("ok", *ERROR_CLASSES):
            raise PipelineError(
                f"{where}: exits maps exit codes (0 to 255) to 'ok' or one of {', '.join(ERROR_CLASSES)}, "
                f"not {code!r} to {meaning!r}"
            )
    if result not in (None, "last_line", "file"):
        raise PipelineError(f"{where}: result is 'last_line', 'file' or None, not {result!r}")
    if stdin not in (None, "payload"):
        raise PipelineError(f"{where}: stdin is 'payload' or None, not {stdin!r}")
    return Command(
        where=where,
        arguments=parse(argv, where),
        cwd=None if cwd is None else str(cwd),
        env=tuple(env),
        set_env=tuple((name, parse_text(str(value), f"{where}, {name}")) for name, value in set_env.items()),
        stdin=stdin == "payload",
        memory_limit=None if memory_limit is None else size(memory_limit, "memory_limit"),
        exits=dict(exits),
        progress=_pattern(where, progress),
        result=result,
        steps=steps,
    )


def _pattern(where: str, progress: str | re.Pattern[str] | None) -> re.Pattern[str] | None:
    if progress is None:
        return None
    try:
        pattern = re.compile(progress)
    except re.error as error:
        raise PipelineError(f"{where}: progress is no regular expression: {error}") from None
    if not set(pattern.groupindex) <= _PROGRESS_GROUPS or not set(pattern.groupindex) & {"done", "percent"}:
        raise PipelineError(
            f"{where}: progress needs a group (?P<percent>…) or (?P<done>…), and may have (?P<total>…) and (?P<note>…)"
        )
    return pattern
