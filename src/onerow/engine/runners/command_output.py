"""Parse a command's output: progress, completed steps, the last line."""

import re
from typing import Any

import msgspec

from onerow.core import steps, values
from onerow.core.errors import BadInput
from onerow.core.outcomes import Cancelled
from onerow.engine.handler.requests import Remember
from onerow.engine.output.lines import storable
from onerow.engine.runners.attempt import Attempt
from onerow.pipelines.command import Command

_STEP = re.compile(r"::step\s+(?P<name>\S.*?)\s+ok(?:\s+(?P<result>\S.*))?\s*")
_LONGEST_WORDS = 500
_LONGEST_UNFINISHED = 2_000


class OutputParser:
    """Store a command's output and find progress, steps and the last line in it, as the command declares."""

    def __init__(self, attempt: Attempt, command: Command) -> None:
        self._attempt = attempt
        self._command = command
        self._done: list[Remember] = []
        self._words: dict[str, str] = {}
        self._last = LastLine()

    @property
    def last_words(self) -> str:
        """The last line of its error output, else of its output; for failure messages."""
        return (self._words.get("err") or self._words.get("out") or "").strip()[:_LONGEST_WORDS]

    def last_line(self) -> str:
        """Return the last non-blank line of the program's output; raise BadInput if it is too long."""
        return self._last.text()

    def feed(self, level: str, text: str) -> None:
        """Process a chunk of output; an empty one means the end of the stream."""
        if not text and self._attempt.output is None:
            return
        output = self._attempt.in_flight.output_of(self._attempt)
        stream = output.stream(level)
        lines = stream.feed(text) if text else stream.end()
        if lines:
            output.keep(level, lines)
            self._attempt.in_flight.queue_output(output)
            self._words[level] = next((line for line in reversed(lines) if line.strip()), self._words.get(level, ""))
        if self._command.result == "last_line" and level == "out":
            self._last.feed(text)
        if self._command.progress is not None:
            self._look_for_progress([*lines, stream.unfinished[-_LONGEST_UNFINISHED:]])
        if self._command.steps and level == "out" and lines:
            self._look_for_steps(lines)

    def remember_steps(self) -> None:
        """Store the completed steps, also of an attempt that is being stopped."""
        while self._done:
            try:
                self._attempt.in_flight.answer(self._attempt, self._done.pop(0))
            except Cancelled:
                return  # the lease is lost, and the attempt is about to be stopped

    def _look_for_progress(self, lines: list[str]) -> None:
        pattern = self._command.progress
        assert pattern is not None
        for line in reversed(lines):  # only the last state matters
            if (found := pattern.search(line)) is not None and (state := _progress(found.groupdict())) is not None:
                self._attempt.progress(values.encode(state, "progress"))
                return

    def _look_for_steps(self, lines: list[str]) -> None:
        for line in lines:
            if not line.startswith("::step") or (found := _STEP.fullmatch(line)) is None:
                continue
            try:
                self._done.append(Remember(steps.check_name(found["name"]), as_json(found["result"] or "null", "step")))
            except BadInput as error:
                self._attempt.log("warning", f"this step can't be remembered: {error}")


class LastLine:
    """The last non-blank line of a stream, unchanged."""

    def __init__(self) -> None:
        self._text = ""
        self._too_long = False

    def feed(self, text: str) -> None:
        whole = self._text + text
        start = whole.rfind("\n", 0, len(whole.rstrip())) + 1
        self._too_long = self._too_long and start == 0
        self._text = whole[start:]
        if len(self._text) > values.MAX_VALUE:
            self._too_long = True
            self._text = ""

    def text(self) -> str:
        if self._too_long:
            raise BadInput(f"the last line has more than {values.MAX_VALUE:,} characters", fix="write a file instead")
        return storable(self._text.strip().rpartition("\r")[2])


def as_json(text: str, what: str) -> str:
    """Return the text itself if it is JSON, else a JSON string."""
    try:
        return values.encode(values.decode(text), what)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return values.encode(text, what)


def _progress(groups: dict[str, Any]) -> dict[str, Any] | None:
    percent, done, total = (groups.get(name) for name in ("percent", "done", "total"))
    try:
        if percent is not None:
            state = {"done": _plain(percent), "total": 100}
        elif done is not None:
            state = {"done": _plain(done), "total": _plain(total)}
        else:
            return None
    except ValueError:
        return None  # not a number
    return state | {"note": groups.get("note") or ""}


def _plain(text: str | None) -> float | None:
    if text is None:
        return None
    number = float(text)
    return int(number) if number.is_integer() else number
