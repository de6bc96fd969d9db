"""Command phases: run a program under the process host, parse its output, and map its exit code to an outcome."""

import os
import shutil
import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from onerow.core import steps, values
from onerow.core.errors import BadInput
from onerow.core.failure import Failure, failure
from onerow.core.rules.attempts import Done, Failed, Interrupted, Outcome, Stopped
from onerow.core.task import Task
from onerow.engine.processes import CannotStart, Exit, ProcessHost
from onerow.engine.runners.attempt import Attempt
from onerow.engine.runners.attempt_process import (
    HOST_KILLED,
    AttemptProcess,
    ended_with_the_worker,
    how_it_ended,
    too_much_memory,
    unready,
)
from onerow.engine.runners.command_output import OutputParser, as_json
from onerow.pipelines import arguments
from onerow.pipelines.command import Command

# Values of the attempt, set in every command's environment as ONEROW_….
_VARIABLES = ("task_id", "user_id", "phase", "attempt", "token", "idempotency_key", "result_file", "log_file")


class Commands:
    """Run an attempt's program; block until its whole process tree has ended."""

    def __init__(self, process_host: ProcessHost, grace: float, *, leased: bool = True) -> None:
        self._process_host = process_host
        self._grace = grace
        self._leased = leased  # the test queue extends no leases, so its programs have no deadline
        self._environments: dict[str, tuple[dict[Any, Any], dict[str, str]]] = {}

    def __call__(self, attempt: Attempt) -> Outcome:
        command: Command = attempt.served.call.function  # type: ignore[assignment]
        folder = tempfile.mkdtemp(prefix="onerow-") if command.result == "file" or command.stdin else None
        try:
            return self._run(attempt, command, None if folder is None else Path(folder))
        except BadInput as error:
            return Failed(failure(f"{attempt.task.phase}: {error}", "permanent", exception=type(error).__name__))
        finally:
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)

    def _run(self, attempt: Attempt, command: Command, folder: Path | None) -> Outcome:
        command_env = CommandEnv(attempt, command, folder)
        argv = command_env.argv()
        env = command_env.env(self._inherited(command))
        stdin = command_env.stdin()
        parser = OutputParser(attempt, command)
        process = AttemptProcess(attempt, self._process_host, self._grace, parser.feed)
        try:
            process.start(
                argv,
                leased=self._leased,
                cwd=None if command.cwd is None else Path(command.cwd),
                env=env,
                stdin=stdin,
                memory_limit=command.memory_limit,
            )
        except (CannotStart, OSError) as error:
            return unready(attempt, error) or Failed(_cannot_start(attempt.task, error))
        finally:
            if stdin is not None:
                os.close(stdin)
        exit = process.wait(after_each=parser.remember_steps)
        return self._outcome(attempt, command, parser, exit, command_env.result_file)

    def _inherited(self, command: Command) -> dict[str, str]:
        """Return the worker's own variables that the command may see; cached until they change."""
        ours: Mapping[Any, Any] = getattr(os.environ, "_data", os.environ)
        known = self._environments.get(command.where)
        if known is None or known[0] != ours:
            passed = {name: value for name, value in os.environ.items() if command.passes_on(name)}
            known = self._environments[command.where] = dict(ours), passed
        return known[1]

    def _outcome(
        self, attempt: Attempt, command: Command, parser: OutputParser, exit: Exit | None, file: Path | None
    ) -> Outcome:
        if exit is None or exit.stopped or (attempt.stop is None and ended_with_the_worker(attempt, exit)):
            return Stopped(attempt.stop or "drain")
        if exit.over_memory:
            return Failed(too_much_memory(attempt, command.memory_limit))
        if not exit.seen:
            return Interrupted(HOST_KILLED)
        code = exit.code if exit.code is not None else 128 + (exit.signal or signal.SIGKILL)
        meaning = "ok" if code == 0 else command.class_of(code)
        if meaning != "ok":
            return Failed(_failed(attempt.task, exit, meaning, parser))
        if command.result == "last_line":
            # The next phase works with the result: only known secret values are masked in it.
            return Done(as_json(attempt.in_flight.masker.values_in(parser.last_line()), "result"))
        if command.result == "file":
            return Done(_read_result(file))
        return Done(None)


class CommandEnv:
    """The arguments, environment and standard input of an attempt's program."""

    def __init__(self, attempt: Attempt, command: Command, folder: Path | None) -> None:
        task = attempt.task
        self._command = command
        self._folder = folder
        self._task = task
        self._payload = task.payload
        self.result_file = None if folder is None or command.result != "file" else folder / "result.json"
        done = {name: True for name, record in steps.records(task).items() if not record.open}
        self._done = [name for name in done if not name.startswith(steps.RESERVED)]
        self._own: dict[str, Any] = {
            "task_id": task.task_id,
            "user_id": task.user_id,
            "phase": task.phase,
            "attempt": task.attempt,
            "token": task.token,
            "generation": task.generation,
            "idempotency_key": f"{task.task_id}:{task.phase}:{task.generation}",
            "result_file": None if self.result_file is None else str(self.result_file),
            "log_file": attempt.in_flight.log_file_of(attempt),
            "steps": done,
        }
        results = task.results
        plan = attempt.served.plan
        earlier = {phase.name: phase for phase in plan.phases[: plan.position(task.phase)]}
        self._known = {
            name: next((results[known] for known in (name, *phase.renamed_from) if known in results), None)
            for name, phase in earlier.items()
        }
        self._known["ctx"] = self._own

    def argv(self) -> list[str]:
        return arguments.fill(self._command.arguments, self._known, self._payload)

    def env(self, inherited: dict[str, str]) -> dict[str, str]:
        """Return the inherited variables, overridden by those of the attempt, then by those that the command sets."""
        env = dict(inherited)
        for name in _VARIABLES:
            if self._own[name] is not None:
                env[f"ONEROW_{name.upper()}"] = str(self._own[name])
        env["ONEROW_PIPELINE"] = self._task.pipeline
        env["ONEROW_STEPS"] = "\n".join(self._done)[:100_000]
        for name, text in self._command.set_env:
            env[name] = arguments.fill_text(text, self._known, self._payload)
        return env

    def stdin(self) -> int | None:
        """Write the payload and the results of earlier phases as JSON to a file, and open it for reading."""
        if not self._command.stdin or self._folder is None:
            return None
        path = self._folder / "stdin.json"
        known = {name: value for name, value in self._known.items() if name != "ctx"}
        given = {"payload": self._payload, "results": known, "steps": self._steps(), "task_id": self._task.task_id}
        path.write_bytes(msgspec.json.encode(given))
        return os.open(path, os.O_RDONLY)

    def _steps(self) -> dict[str, Any]:
        found = steps.records(self._task)
        return {name: found[name].value for name in self._done}


def _failed(task: Task, exit: Exit, error_class: str, parser: OutputParser) -> Failure:
    how, said = f"{task.phase} {how_it_ended(exit)}", parser.last_words
    if exit.signal == signal.SIGXCPU:
        how += " (it used up its CPU time)"
    elif exit.signal == signal.SIGKILL:
        how += " (out of memory?)"
    if exit.signal is not None:
        return failure(f"{how}: {said}" if said else how, error_class, exception="Signal")
    # The program's own words first: lists show the beginning of a message.
    return failure(f"{said} ({how})" if said else how, error_class, exception=f"Exit{exit.code}")


def _cannot_start(task: Task, error: CannotStart | OSError) -> Failure:
    # No such program, no permission, arguments too long: a retry would not help.
    lasting = error.errno in (1, 2, 7, 8, 13, 20, 22, 40)
    return failure(f"{task.phase}: {error}", "permanent" if lasting else "resource", exception="CannotStart")


def _read_result(file: Path | None) -> str | None:
    if file is None or not file.exists():
        return None
    with file.open("rb") as opened:
        raw = opened.read(values.MAX_VALUE + 1)
    if len(raw) > values.MAX_VALUE:
        raise BadInput(f"the result file has more than {values.MAX_VALUE:,} bytes", fix="write a path instead")
    try:
        return values.encode(values.decode(raw.decode()), "result")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"the result file is not JSON: {error}") from None
