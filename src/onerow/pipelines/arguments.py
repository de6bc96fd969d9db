"""Argument lists with placeholders: `{url}`, `{script.path}`, `{force?--force}`, `{lang?}`, `{files*}`.

A placeholder names an earlier phase, whose result it stands for, or else a field of the payload; dots access nested
fields. `{}` is the whole payload, `{ctx.task_id}` and similar names belong to the attempt. `{{` and `}}` are literal
braces.

    {field}         the value; the task fails if there is none
    {field?}        the value; the argument is omitted if there is none
    {field?TEXT}    TEXT if the value is true; the argument is omitted otherwise
    {field*}        one argument for each item of a list
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import PurePath
from typing import Any, Literal

import msgspec

from onerow.core import values
from onerow.core.errors import BadInput, PipelineError

CONTEXT_NAMES = (
    "task_id", "user_id", "phase", "attempt", "token", "generation", "idempotency_key", "result_file", "log_file",
)  # fmt: skip
"""The names allowed in `{ctx.…}`; in addition, `{ctx.steps.NAME?TEXT}` tests whether a step is done."""

_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_PLACEHOLDER = re.compile(r"((?:[\w-]+(?:\.[\w-]+)*)?)(\*|\?.*)?", re.DOTALL)
# Programs that execute the text after an option like -c: a value inside that text could run any code.
_INTERPRETERS = re.compile(r"(?:ba|da|z|k|fi|c|tc)?sh|python[\d.]*|perl|ruby|node|php|lua|powershell|pwsh|env|su|ssh")
_RUNS_TEXT = re.compile(r"-[a-zA-Z]*[ceEr]|--?(?:eval|command|execute)")


class Placeholder(msgspec.Struct, frozen=True):
    """A placeholder in an argument."""

    path: tuple[str, ...]
    how: Literal["value", "optional", "flag", "many"] = "value"
    text: str = ""  # of a flag: the argument if the value is true

    @property
    def name(self) -> str:
        return ".".join(self.path) or "the payload"


Part = str | Placeholder
Argument = tuple[Part, ...]


class NoValue(BadInput):
    """The task has no value for a placeholder, or one that can't be an argument."""


def parse(argv: Any, where: str) -> tuple[Argument, ...]:
    """Parse and validate the arguments of a command; raise PipelineError."""
    if isinstance(argv, str | bytes) or not isinstance(argv, Sequence) or not argv:
        raise PipelineError(
            f"{where}: a command is a list of arguments, not a line for a shell: ['ffmpeg', '-i', '{{source}}']"
        )
    arguments = tuple(parse_text(_as_text(given, where), where) for given in argv)
    program = "".join(part for part in arguments[0] if isinstance(part, str))
    if not program or any(isinstance(part, Placeholder) for part in arguments[0]):
        raise PipelineError(f"{where}: the program itself can't depend on a value", fix="name it")
    if _INTERPRETERS.fullmatch(PurePath(program).name):
        _check_scripts(arguments, where)
    return arguments


def _as_text(given: Any, where: str) -> str:
    if isinstance(given, PurePath):
        return str(given)
    if not isinstance(given, str) or "\0" in given:
        raise PipelineError(f"{where}: arguments are text, not {given!r}")
    return given


def _check_scripts(arguments: Sequence[Argument], where: str) -> None:
    for option, script in pairwise(arguments):
        runs_text = len(option) == 1 and isinstance(option[0], str) and _RUNS_TEXT.fullmatch(option[0])
        if runs_text and any(isinstance(part, Placeholder) for part in script):
            raise PipelineError(
                f"{where}: a value inside a script could run anything",
                fix=("hand it over as an argument: ['sh', '-c', 'echo \"$1\"', 'sh', '{name}']"),
            )


def parse_text(text: str, where: str) -> Argument:
    """Parse one text with placeholders; raise PipelineError."""
    parts: list[Part] = []
    end = 0
    for token in _TOKEN.finditer(text):
        _add_text(parts, text[end : token.start()])
        end = token.end()
        if token[0] in ("{{", "}}"):
            _add_text(parts, token[0][0])
        elif token[1] is None:
            raise PipelineError(f"{where}: a single {token[0]!r} in {text!r}", fix="double it if it is meant")
        else:
            parts.append(_placeholder(token[1], text, where))
    _add_text(parts, text[end:])
    if len(parts) > 1 and any(isinstance(part, Placeholder) and part.how == "many" for part in parts):
        raise PipelineError(f"{where}: {text!r}: a place for many values must be an argument of its own")
    return tuple(parts)


def _add_text(parts: list[Part], text: str) -> None:
    if text and parts and isinstance(parts[-1], str):
        parts[-1] += text
    elif text:
        parts.append(text)


def _placeholder(inner: str, text: str, where: str) -> Placeholder:
    found = _PLACEHOLDER.fullmatch(inner)
    if found is None:
        raise PipelineError(
            f"{where}: can't read {{{inner}}} in {text!r}",
            fix="a place is {field}, {field?}, {field?--flag} or {field*}",
        )
    path = tuple(found[1].split(".")) if found[1] else ()
    if path[:1] == ("ctx",) and not (len(path) == 2 and path[1] in CONTEXT_NAMES) and path[1:2] != ("steps",):
        raise PipelineError(
            f"{where}: no {{{inner}}}",
            fix=f"there are {', '.join(f'ctx.{name}' for name in CONTEXT_NAMES)} and ctx.steps.NAME",
        )
    how = found[2] or ""
    if how == "*":
        return Placeholder(path, "many")
    if how == "?":
        return Placeholder(path, "optional")
    return Placeholder(path, "flag", how[1:]) if how else Placeholder(path)


def placeholders(arguments: Iterable[Argument]) -> Iterable[Placeholder]:
    """Return all placeholders of some arguments."""
    return (part for argument in arguments for part in argument if isinstance(part, Placeholder))


def fill(arguments: Sequence[Argument], known: Mapping[str, Any], payload: Any) -> list[str]:
    """Replace the placeholders by their values; raise NoValue.

    A value that starts with '-' is rejected, because it would be read as an option, unless a '--' precedes it.
    """
    filled: list[str] = []
    options_over = False
    for argument in arguments:
        options_over = options_over or argument == ("--",)
        for pieces in _variants(argument, known, payload):
            text = "".join(piece for piece, _ in pieces)
            own = next((is_ours for piece, is_ours in pieces if piece), True)
            if text.startswith("-") and not own and not options_over:
                raise NoValue(
                    f"the value {text[:40]!r} would be taken for an option; put '--' before it in the command's "
                    f"arguments, or write it as --option={{field}}"
                )
            if "\0" in text:
                raise NoValue("a value contains a NUL character, which no argument can carry")
            filled.append(text)
    return filled


def fill_text(argument: Argument, known: Mapping[str, Any], payload: Any) -> str:
    """Replace the placeholders of one text by their values; those without a value become empty."""
    return "".join(piece for pieces in _variants(argument, known, payload) for piece, _ in pieces)


def _variants(argument: Argument, known: Mapping[str, Any], payload: Any) -> list[list[tuple[str, bool]]]:
    """Return zero, one or (for a list) many arguments, each as pieces with whether the pipeline's author wrote them."""
    if len(argument) == 1 and isinstance(argument[0], Placeholder):
        placeholder = argument[0]
        value = _value(placeholder, known, payload)
        if placeholder.how == "many":
            if not isinstance(value, list):
                raise NoValue(f"{placeholder.name} must be a list", field=placeholder.name)
            return [[(_spell(item, placeholder), False)] for item in value]
        if _left_out(placeholder, value):
            return []
    pieces = []
    for part in argument:
        if isinstance(part, str):
            pieces.append((part, True))
            continue
        value = _value(part, known, payload)
        if _left_out(part, value):
            continue
        pieces.append((part.text, True) if part.how == "flag" else (_spell(value, part), False))
    return [pieces]


def _left_out(placeholder: Placeholder, value: Any) -> bool:
    return (placeholder.how == "flag" and not value) or (placeholder.how == "optional" and value in (None, ""))


def _value(placeholder: Placeholder, known: Mapping[str, Any], payload: Any) -> Any:
    if not placeholder.path:
        return payload
    value = known if placeholder.path[0] in known else payload
    for step in placeholder.path:
        if not isinstance(value, Mapping) or step not in value:
            value = None
            break
        value = value[step]
    if value is None and placeholder.how in ("value", "many"):
        raise NoValue(f"the task has no value for {{{placeholder.name}}}", field=placeholder.name)
    return value


def _spell(value: Any, placeholder: Placeholder) -> str:
    if value is None:
        raise NoValue(f"{placeholder.name} holds a null, which is no argument", field=placeholder.name)
    return value if isinstance(value, str) else values.encode(value, placeholder.name)
