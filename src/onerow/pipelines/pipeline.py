"""Pipeline definitions: functions, commands and waits in order, validated when the pipeline is built."""

import inspect
import re
import string
import typing
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from inspect import formatannotation
from pathlib import PurePath
from typing import Any, Generic, Literal, Unpack, overload

import msgspec

from onerow.core import schedule, values
from onerow.core.addition import Addition, new_task
from onerow.core.durations import Duration
from onerow.core.errors import BadInput, BadPayload, PipelineError
from onerow.core.keywords import check_keywords
from onerow.core.labels import Labels, check_labels
from onerow.core.names import check_name
from onerow.core.outcomes import Finish, Jump
from onerow.core.plan import PhasePlan, Plan
from onerow.core.retention import KeepOption, parse_keep
from onerow.core.schedule import CatchUp, Cron, Overlap
from onerow.core.sizes import Size
from onerow.core.task import Task
from onerow.core.times import FAR
from onerow.pipelines import arguments, command
from onerow.pipelines.command import Command, ResultFrom
from onerow.pipelines.decoding import check_payload, decoder
from onerow.pipelines.errors import ErrorMap, ErrorTable, table
from onerow.pipelines.extensions import Extensible, interactive
from onerow.pipelines.handlers import Handler, Parameter, items_parameters, parameters_of
from onerow.pipelines.options import RunOptions, check_importable, duration, names, naming, run_phase, size, span
from onerow.pipelines.result_types import never_fits, result_type, return_type
from onerow.pipelines.signature import (
    fields,
    is_typed,
    payload_schema,
)
from onerow.pipelines.typed import Function, Payload, PhaseDecorator, Result, Signal, Untyped


class Pipeline(Extensible, Generic[Payload]):
    """A named, ordered list of phases. Importing or building it opens no connection.

    name: letters, digits, '_', '-' and '.'; stored in each row. title: the title of each task, with fields of the
    payload: '{topic}'. payload: the type of the payload; `add` and the handlers are then checked against it, at run
    time and by type checkers. code: the version of your code, shown with the published definition. errors: exception
    class → error class, or a function of the exception that returns an error class or None. keep: how long ended tasks
    are stored: '30d', or by status {'completed': '7d', 'failed': '90d'}; without it, that of the queue. {'completed':
    '0s'} deletes a completed task in the same write that completes it. labels: how user interfaces show its tasks:
    status words, tabs and columns.
    """

    @overload
    def __init__(
        self,
        name: str,
        *,
        title: str = "",
        payload: None = None,
        code: str = "",
        errors: ErrorMap | None = None,
        keep: KeepOption | None = None,
        labels: Labels | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self,
        name: str,
        *,
        title: str = "",
        payload: type[Payload],
        code: str = "",
        errors: ErrorMap | None = None,
        keep: KeepOption | None = None,
        labels: Labels | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self: "Pipeline[Any]",
        name: str,
        *,
        title: str = "",
        payload: Any,
        code: str = "",
        errors: ErrorMap | None = None,
        keep: KeepOption | None = None,
        labels: Labels | None = None,
    ) -> None: ...

    def __init__(
        self,
        name: str,
        *,
        title: str = "",
        payload: Any = None,
        code: str = "",
        errors: ErrorMap | None = None,
        keep: KeepOption | None = None,
        labels: Labels | None = None,
    ) -> None:
        super().__init__()
        self.name: str = check_name(name, "pipeline")
        self.title: str = _template(title)
        self.code = code
        self.payload_type: Any = payload
        self.keep: dict[str, timedelta] = parse_keep(keep)
        self.labels: Labels | None = None if labels is None else check_labels(labels)
        self.errors: tuple[ErrorTable, ...] = table(errors, f"pipeline {name!r}")
        self.handlers: dict[str, Handler] = {}
        self._phases: list[PhasePlan] = []
        self._crons: list[Cron] = []
        self._plan: Plan | None = None

    def __repr__(self) -> str:
        return f"Pipeline({self.name!r}: {' → '.join(phase.name for phase in self._phases) or 'no phases yet'})"

    @property
    def plan(self) -> Plan:
        """The pipeline as data; raises PipelineError if it has no phases or refers to an unknown one."""
        if self._plan is None:
            if not self._phases:
                raise PipelineError(f"pipeline {self.name!r} has no phases", fix=f"add one with @{self.name}.phase")
            schema, required = payload_schema(self.payload_type)
            plan = Plan(
                name=self.name,
                phases=tuple(self._phases),
                title=self.title,
                code=self.code,
                payload_schema=schema,
                required=required,
                crons=tuple(self._crons),
                keep=self.keep,
                labels=self.labels,
            )
            self._check_payload_names(plan)
            self._check_placeholders(plan)
            for cron in self._crons:
                self._check_cron(cron, plan)
            for phase in plan.phases:
                if phase.on_timeout and not plan.knows(phase.on_timeout):
                    raise PipelineError(
                        f"phase {phase.name!r} of {self.name!r}: on_timeout names no phase: {phase.on_timeout!r}"
                    )
            self._plan = plan
        return self._plan

    def _check_payload_names(self, plan: Plan) -> None:
        """Raise PipelineError if a payload parameter has the name of any phase, including one defined later."""
        for name, handler in self.handlers.items():
            for parameter in handler.parameters:
                if parameter.source == "payload" and plan.knows(parameter.name):
                    raise PipelineError(
                        f"phase {name!r} of pipeline {self.name!r}: the first parameter is the payload "
                        f"and can't be named after the phase {parameter.name!r}"
                    )

    def _check_placeholders(self, plan: Plan) -> None:
        """Raise PipelineError if a placeholder names neither an earlier phase nor a field of the payload."""
        known = fields(plan.payload_schema)
        for name, handler in self.handlers.items():
            if not isinstance(handler.function, Command):
                continue
            texts = (*handler.function.arguments, *(text for _, text in handler.function.set_env))
            for placeholder in arguments.placeholders(texts):
                head = placeholder.path[0] if placeholder.path else "ctx"
                if plan.knows(head) and plan.position(head) >= plan.position(name):
                    raise PipelineError(
                        f"{handler.function.where}: {{{placeholder.name}}} names a phase that comes later"
                    )
                if head != "ctx" and not plan.knows(head) and known is not None and head not in known:
                    raise PipelineError(
                        f"{handler.function.where}: {{{placeholder.name}}} names neither an earlier phase nor a field of the "
                        f"payload (which has {', '.join(sorted(known))})"
                    )

    @property
    def phase(self) -> PhaseDecorator[Payload]:
        """Decorator: add a function as the next phase, and return the function unchanged.

        `@posts.phase`, or with options: `@posts.phase(concurrency=4, timeout="2m")`.

        function: its first parameter is the payload; parameters named after earlier phases get their results, `ctx`
        gets the context, and names of resources get these. name: the phase's name; by default the function's. isolate:
        'process' runs each attempt in its own process. memory_limit: how much memory that process and all that it
        starts may use together ('512MB'); beyond it they are killed and the attempt fails (class 'resource'). errors:
        exception class → error class (or a function), asked before the pipeline's `errors`.
        """
        return self._phase

    def _phase(
        self,
        function: Any = None,
        /,
        *,
        name: str = "",
        isolate: Literal["process"] | None = None,
        memory_limit: Size | None = None,
        errors: ErrorMap | None = None,
        **options: Unpack[RunOptions],
    ) -> Any:
        if isolate not in (None, "process"):
            raise PipelineError(f"isolate must be 'process' or None, not {isolate!r}")
        if memory_limit is not None and isolate is None:
            raise PipelineError("memory_limit needs isolate='process': all threads of a worker share its memory")
        check_keywords("phase", options, RunOptions)

        def add(function: Function) -> Function:
            phase_name = name or getattr(function, "__name__", "")
            handler = self._handler(function, phase_name, isolated=isolate == "process", errors=errors)
            with naming(self._where(phase_name)):
                if memory_limit is not None:
                    handler = msgspec.structs.replace(handler, memory_limit=size(memory_limit, "memory_limit"))
                self._append(run_phase(phase_name, "run", options, isolated=handler.isolated))
            self.handlers[phase_name] = handler
            return function

        return add if function is None else add(function)

    def command(
        self,
        name: str,
        argv: Sequence[str | PurePath],
        *,
        cwd: str | PurePath | None = None,
        env: Sequence[str] = (),
        set_env: Mapping[str, str] | None = None,
        stdin: Literal["payload"] | None = None,
        exits: Mapping[int, str] | None = None,
        progress: str | re.Pattern[str] | None = None,
        result: ResultFrom | None = None,
        steps: bool = False,
        memory_limit: Size | None = None,
        **options: Unpack[RunOptions],
    ) -> None:
        """Add a program as the next phase: an argument list with placeholders ({url}, {force?--force}).

        name: the phase's name. argv: the program and its arguments; no shell is involved. cwd: the folder in which it
        runs. env: variables of the worker's environment that the program gets. set_env: variables with values, which
        may have placeholders. stdin: 'payload' gives the program the payload as JSON. exits: exit code → error class,
        or 'ok'. progress: a regular expression for output lines with progress. result: the last line of output, or the
        JSON file that the program writes to $ONEROW_RESULT_FILE. steps: record output lines '::step NAME ok' as steps.
        memory_limit: for all processes of an attempt together.
        """
        where = self._where(name)
        with naming(where):
            program = command.build(
                where, argv, cwd=cwd, env=env, set_env=set_env or {}, stdin=stdin,
                memory_limit=memory_limit, exits=exits or {}, progress=progress, result=result, steps=steps,
            )  # fmt: skip
            self._append(run_phase(name, "command", options, isolated=True))
        self.handlers[name] = Handler(program, (), is_async=False, isolated=True)

    def batch(
        self,
        name: str,
        *,
        size: int,
        within: Duration = 0,
        errors: ErrorMap | None = None,
        **options: Unpack[RunOptions],
    ) -> Callable[[Function], Function]:
        """Add a function of a list of items as the next phase: up to `size` tasks in one call, each settled separately.

        name: the phase's name. size: the most tasks of one call. within: how long the first task waits for others.
        errors: as for `phase`.

        The option `concurrency` counts tasks, not calls.
        """
        if type(size) is not int or not 1 <= size <= 1000:
            raise PipelineError(f"size must be a whole number from 1 to 1000, not {size!r}", field="size")
        check_keywords("batch", options, RunOptions)
        limit = options.get("concurrency")
        if type(limit) is int and 1 <= limit < size:
            raise PipelineError(
                f"concurrency counts tasks: batches of {size} need at least {size}, not {limit}", field="concurrency"
            )

        def add(function: Function) -> Function:
            handler = self._handler(function, name, isolated=False, items=True, errors=errors)
            with naming(self._where(name)):
                self._append(
                    run_phase(name, "batch", options, batch_size=size, batch_within=duration(within, "within"))
                )
            self.handlers[name] = handler
            return function

        return add

    def wait_until(self, name: str, *, field: str, renamed_from: str | Sequence[str] = ()) -> None:
        """Add a phase without code that waits until the time in a payload field.

        name: the phase's name. field: the field, for example 'scheduled_time'. renamed_from: former names of the phase.
        """
        with naming(self._where(name)):
            self._append(
                PhasePlan(
                    name=name,
                    kind="wait_until",
                    field=check_name(field, "field"),
                    timeout=None,
                    renamed_from=names(renamed_from),
                )
            )

    @overload
    def wait_for(
        self,
        name: str,
        *,
        signal: str,
        payload: type[Result],
        timeout: Duration | None = None,
        on_timeout: str = "",
        renamed_from: str | Sequence[str] = (),
    ) -> Signal[Result]: ...

    @overload
    def wait_for(
        self,
        name: str,
        *,
        signal: str,
        payload: None = None,
        timeout: Duration | None = None,
        on_timeout: str = "",
        renamed_from: str | Sequence[str] = (),
    ) -> Signal[Any]: ...

    def wait_for(
        self,
        name: str,
        *,
        signal: str,
        payload: Any = None,
        timeout: Duration | None = None,
        on_timeout: str = "",
        renamed_from: str | Sequence[str] = (),
    ) -> Signal[Any]:
        """Add a phase without code that waits for a signal; the signal's payload is the phase's result.

        Returns the signal: `queue.signal(task_id, image, Image("…"))` checks its payload against the type.

        name: the phase's name. signal: the name of the signal. payload: the type of the signal's payload. timeout: after
        this time the task goes on at the phase `on_timeout`, or fails with class timeout. on_timeout: a phase of the
        same pipeline. renamed_from: former names of the phase.
        """
        with naming(self._where(name)):
            self._append(
                PhasePlan(
                    name=name,
                    kind="wait_for",
                    signal=check_name(signal, "signal"),
                    timeout=span(timeout, "timeout"),
                    on_timeout=on_timeout,
                    renamed_from=names(renamed_from),
                )
            )
        return Signal(signal, payload)

    def wait_children(
        self,
        name: str,
        *,
        all_must_succeed: bool = False,
        timeout: Duration | None = None,
        on_timeout: str = "",
        renamed_from: str | Sequence[str] = (),
    ) -> None:
        """Add a phase without code that waits until all spawned children have ended; its result is their counts.

        name: the phase's name. all_must_succeed: fail the task if a child did not complete. timeout, on_timeout: as in
        `wait_for`. renamed_from: former names of the phase.
        """
        with naming(self._where(name)):
            self._append(
                PhasePlan(
                    name=name,
                    kind="wait_children",
                    timeout=span(timeout, "timeout"),
                    on_timeout=on_timeout,
                    all_must_succeed=all_must_succeed,
                    renamed_from=names(renamed_from),
                )
            )

    @overload
    def cron(
        self: "Pipeline[Untyped]",
        expression: str,
        *,
        name: str = "",
        tz: str = "UTC",
        payload: Any = None,
        user_id: str = "",
        catch_up: CatchUp = "one",
        overlap: Overlap = "allow",
    ) -> None: ...

    @overload
    def cron(
        self,
        expression: str,
        *,
        name: str = "",
        tz: str = "UTC",
        payload: Payload,
        user_id: str = "",
        catch_up: CatchUp = "one",
        overlap: Overlap = "allow",
    ) -> None: ...

    def cron(
        self,
        expression: str,
        *,
        name: str = "",
        tz: str = "UTC",
        payload: Any = None,
        user_id: str = "",
        catch_up: CatchUp = "one",
        overlap: Overlap = "allow",
    ) -> None:
        """Add a schedule: workers add a task at each time of a cron expression in a time zone.

        expression: such as '0 6 * * 1-5'. tz: the time zone, such as 'Europe/Berlin'.
        payload: given to these tasks; it must have the type that the pipeline and its first phase take.
        catch_up: which of the times missed while no worker ran to fire: the last ('one'), 'all', or none ('skip').
        overlap: 'skip' adds no task while the schedule's previous task has not ended. name: identifies the schedule;
        the default is expression and time zone.
        """
        label = values.check_text(name or f"{expression} {tz}", "name", 200)
        others = [cron for cron in self._crons if cron.name != label]
        if len(others) < len(self._crons) and not interactive():
            raise PipelineError(
                f"pipeline {self.name!r} already has a schedule {label!r}", fix="give one a name", field="name"
            )
        cron = Cron(
            name=label, expression=expression, tz=tz, payload=values.to_plain(payload, "payload"), user_id=user_id,
            catch_up=catch_up, overlap=overlap,
        )  # fmt: skip
        self._check_cron(schedule.check(cron))
        self._crons = [*others, cron]
        self._plan = None

    @overload
    def result_of(self, task: Task, phase: Callable[..., Coroutine[Any, Any, Result | Jump | Finish]]) -> Result: ...

    @overload
    def result_of(self, task: Task, phase: Callable[..., Result | Jump | Finish]) -> Result: ...

    def result_of(self, task: Task, phase: Callable[..., Any]) -> Any:
        """Return the result of a phase of a task, as the type that the phase's function declares.

        Raises BadInput if there is none, because the phase was skipped or has not run, and the type has no None.

        task: a task of this pipeline. phase: the function of the phase.
        """
        name = next((each for each, it in self.handlers.items() if it.function is phase and not it.takes_items), None)
        if name is None:
            raise BadInput(
                f"{getattr(phase, '__name__', phase)!r} is no function of a phase of pipeline {self.name!r}",
                fix="results of commands, waits and batches are in task.results",
                field="phase",
            )
        results, what = task.results, f"the result of phase {name!r}"
        try:
            return decoder(result_type(phase), what)(values.encode(results.get(name), what))
        except BadPayload:
            if name in results:
                raise
            raise BadInput(
                f"task {task.task_id} has no result of phase {name!r}: it is {task.status} in {task.phase!r}",
                field="phase",
            ) from None

    def _check_result(self, parameter: Parameter, where: str) -> None:
        """Raise PipelineError if a parameter can't take what the phase that it names returns."""
        producer = self.handlers.get(parameter.name) if parameter.source == "result" else None
        if producer is None or producer.takes_items:
            return  # the results of commands, waits and batches have no declared type
        returned = return_type(producer.function)
        if never_fits(returned, parameter.type):
            raise PipelineError(
                f"{where}: {parameter.name}: {formatannotation(parameter.type)} can't take the result of phase "
                f"{parameter.name!r}, which returns {formatannotation(returned)}",
                fix=f"annotate the parameter {parameter.name!r} with the type that the phase returns",
                field=parameter.name,
            )

    def _check_cron(self, cron: Cron, plan: Plan | None = None) -> None:
        """Raise PipelineError if the pipeline, or its first handler, can't take the tasks of a schedule."""
        first = next((self.handlers[phase.name] for phase in self._phases if phase.name in self.handlers), None)
        try:
            text = check_payload(self.payload_type, cron.payload)
            for parameter in (first.parameters if first is not None else ())[:1]:
                check_payload(parameter.type, cron.payload)
            if plan is not None:
                new_task(plan, Addition(user_id=cron.user_id), text, "", FAR, None)
        except BadInput as error:
            raise PipelineError(
                f"schedule {cron.name!r} of pipeline {self.name!r}: {error.args[0]}",
                fix="give the schedule a payload=… that its tasks can run with",
                field="payload",
            ) from None

    def _where(self, phase_name: str) -> str:
        return f"phase {phase_name!r} of pipeline {self.name!r}"

    def _append(self, phase: PhasePlan) -> None:
        check_name(phase.name, "phase")
        before = [each.name for each in self._phases]
        again = phase.name in before and interactive()
        others = [each for each in self._phases if not (again and each.name == phase.name)]
        taken = {known for each in others for known in (each.name, *each.renamed_from)}
        for known in (phase.name, *phase.renamed_from):
            if known in taken:
                raise PipelineError(
                    f"pipeline {self.name!r} already has a phase {known!r}", fix="give the phase another name"
                )
        if phase.name in self.resources:
            raise PipelineError(
                f"pipeline {self.name!r} has a resource {phase.name!r}", fix="give the phase another name"
            )
        if self.payload_type is None:  # `Pipeline[Post]("posts")` means the same as payload=Post
            (declared,) = typing.get_args(getattr(self, "__orig_class__", None)) or (None,)
            self.payload_type = None if declared is Any or isinstance(declared, typing.TypeVar) else declared
        if again:
            self._phases[before.index(phase.name)] = phase
            self.handlers.pop(phase.name, None)  # its successor may be a wait
        else:
            self._phases.append(phase)
        self._plan = None

    def _handler(
        self,
        function: Callable[..., Any],
        phase_name: str,
        *,
        isolated: bool,
        items: bool = False,
        errors: ErrorMap | None = None,
    ) -> Handler:
        where = self._where(phase_name)
        if not callable(function):
            raise PipelineError(
                f"a phase of pipeline {self.name!r} must be a function, not {function!r}",
                fix=f"write @{self.name}.phase(name={function!r})" if isinstance(function, str) else "",
            )
        if next(iter(inspect.signature(function).parameters), "") in ("self", "cls"):
            raise PipelineError(
                f"{where}: a phase is a function, not a method",
                fix="define it outside of the class; objects that it needs are resources",
            )
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise PipelineError(f"{where} is a generator", fix="return the result; report progress with ctx.progress")
        if isolated:
            check_importable(function, where)
        parameters = (
            items_parameters(function, where, self.resources)
            if items
            else parameters_of(function, where, {phase.name for phase in self._phases}, self.resources)
        )
        if self.payload_type is None and parameters and parameters[0].source in ("payload", "items"):
            declared = parameters[0].type
            if is_typed(declared):
                self.payload_type = declared
        for parameter in parameters:
            self._check_result(parameter, where)
        is_async = inspect.iscoroutinefunction(function)
        resources = {each.name: self.resources[each.name] for each in parameters if each.source == "resource"}
        for name, resource in resources.items():
            if resource.is_async and not is_async:
                raise PipelineError(f"{where} is a plain function and can't take the async resource {name!r}")
        return Handler(function, parameters, is_async, isolated, (*table(errors, where), *self.errors), resources)


def _template(title: str) -> str:
    try:
        list(string.Formatter().parse(title))
    except (TypeError, ValueError):
        raise PipelineError(
            f"the title {title!r} is no template", fix="write it like '{topic}'; write a brace as '{{'", field="title"
        ) from None
    return title


def not_a_pipeline(given: Any) -> BadInput:
    """Return the error for what is given in the place of a pipeline."""
    name = getattr(given, "__name__", "")
    return BadInput(
        f"pipeline must be a Pipeline or its name, not {repr(name) if name else type(given).__name__}",
        fix=f"if {name!r} is a phase, give its pipeline" if name else "",
        field="pipeline",
    )
