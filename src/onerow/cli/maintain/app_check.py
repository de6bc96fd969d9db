"""Findings of `onerow check` about an app."""

from datetime import timedelta

from onerow.core.durations import spell_duration
from onerow.engine.queue.queue import Queue
from onerow.ports import Finding

_LONG = timedelta(minutes=1)


def check_app(queue: Queue) -> list[Finding]:
    """Return findings about an app, without running it."""
    findings = []
    for pipeline in queue.pipelines.values():
        phases = " → ".join(phase.name for phase in pipeline.plan.phases)
        findings.append(Finding("good", f"pipeline {pipeline.name}: {phases}"))
        for phase in pipeline.plan.phases:
            handler = pipeline.handlers.get(phase.name)
            if handler is None or handler.is_async or handler.isolated:
                continue
            if phase.timeout is None or phase.timeout > _LONG:
                span = "without end" if phase.timeout is None else f"for {spell_duration(phase.timeout)}"
                findings.append(
                    Finding(
                        "slow",
                        f"{pipeline.name}.{phase.name} may run {span} in a thread, and a thread that hangs can't be "
                        f"stopped: the whole worker process has to be replaced",
                        f'@{pipeline.name}.phase(isolate="process"), a timeout of a minute, or async def',
                    )
                )
    return findings
