"""Which phases a worker serves, and the runner of each."""

from collections.abc import Sequence

from onerow.core.errors import UnknownName
from onerow.core.plan import PhasePlan
from onerow.core.suggest import did_you_mean
from onerow.engine.handler.call import Call
from onerow.engine.handler.middleware import surround
from onerow.engine.handler.resources import OpenResources, by_name
from onerow.engine.processes import ProcessHost
from onerow.engine.queue.queue import Queue
from onerow.engine.runners import child_extensions
from onerow.engine.runners.attempt import Runner, ServedPhase
from onerow.engine.runners.batch import BatchRunner
from onerow.engine.runners.command import Commands
from onerow.engine.runners.event_loop import LoopRunner
from onerow.engine.runners.function_names import importable_name
from onerow.engine.runners.isolated import Isolated
from onerow.engine.runners.prestarted import PrestartedProcesses
from onerow.engine.runners.threads import ThreadRunner, run_in_thread
from onerow.pipelines.command import Command
from onerow.pipelines.extensions import Middleware
from onerow.pipelines.pipeline import Pipeline


def check_phases(queue: Queue, only: Sequence[str]) -> frozenset[str]:
    """Return the names of phases ('phase' or 'pipeline.phase'); raise UnknownName if one does not exist."""
    known = {
        name
        for pipeline in queue.pipelines.values()
        for phase in pipeline.plan.phases
        for name in (phase.name, f"{pipeline.name}.{phase.name}")
    }
    for name in only:
        if name not in known:
            raise UnknownName(f"no phase {name!r} in this app", fix=did_you_mean(name, known), field="phases")
    return frozenset(only)


def phases_with_code(queue: Queue, only: frozenset[str]) -> list[tuple[Pipeline, PhasePlan]]:
    """Return the phases that have a handler; with `only`, those that it names."""
    return [
        (pipeline, phase)
        for pipeline in queue.pipelines.values()
        for phase in pipeline.plan.phases
        if phase.name in pipeline.handlers
        and (not only or phase.name in only or f"{pipeline.name}.{phase.name}" in only)
    ]


class Runners:
    """The runners of a worker, created as its phases need them."""

    def __init__(
        self,
        concurrency: int,
        host: ProcessHost,
        grace: float,
        prestart: int,
        middlewares: Sequence[Middleware] = (),
    ) -> None:
        self._concurrency = concurrency
        self._middlewares = middlewares
        self.prestarted = PrestartedProcesses(host, prestart)
        self._threads = ThreadRunner(concurrency, run_in_thread, "thread")
        self._isolated = ThreadRunner(concurrency, Isolated(host, grace, self.prestarted), "isolated")
        self._commands = ThreadRunner(concurrency, Commands(host, grace), "command")
        self._batches: list[BatchRunner] = []
        self.loop: LoopRunner | None = None

    def serve(self, pipeline: Pipeline, phase: PhasePlan) -> ServedPhase:
        """Return a phase with its call and its runner."""
        handler = pipeline.handlers[phase.name]
        call = Call(handler, pipeline.plan)
        if isinstance(handler.function, Command):
            return ServedPhase(pipeline.plan, phase, call, self._commands, self._commands)
        surround(call, (*self._middlewares, *pipeline.middlewares))
        if handler.isolated:
            child_extensions.check(call, f"phase {phase.name!r} of pipeline {pipeline.name!r}")
            self.prestarted.handlers.append(importable_name(handler.function))
        loop = self._on_loop() if handler.is_async and not handler.isolated else None
        runner: Runner = self._isolated if handler.isolated else loop or self._threads
        if phase.kind == "batch":
            runner = BatchRunner(phase, self._concurrency, loop)
            self._batches.append(runner)
        return ServedPhase(pipeline.plan, phase, call, runner, self._isolated)

    def open_resources(self, resources: OpenResources, served_phases: Sequence[ServedPhase]) -> None:
        """Make the resources of handlers that run in this process, and hand them over; raise ResourceError."""
        here = [served.call for served in served_phases if not served.call.handler.isolated]
        wanted = [resource for call in here for resource in call.handler.resources.values()]
        if wanted:
            resources.open(wanted, None if self.loop is None else self.loop.begin)
            for call in here:
                call.resources = by_name(call.handler.resources, resources.values)

    def close(self) -> None:
        """End all threads that are idle."""
        runners: list[Runner] = [*self._batches, self._threads, self._isolated, self._commands]
        for runner in runners:
            runner.close()
        self.prestarted.close()
        if self.loop is not None:
            self.loop.close()

    def _on_loop(self) -> LoopRunner:
        if self.loop is None:
            self.loop = LoopRunner(self._concurrency)
        return self.loop
