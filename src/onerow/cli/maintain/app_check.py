"""Findings of `onerow check` about an app."""

from onerow.engine.queue.queue import Queue
from onerow.ports import Finding


def check_app(queue: Queue) -> list[Finding]:
    """Return findings about an app, without running it."""
    findings = []
    for pipeline in queue.pipelines.values():
        phases = " → ".join(phase.name for phase in pipeline.plan.phases)
        findings.append(Finding("good", f"pipeline {pipeline.name}: {phases}"))
        for phase in pipeline.plan.phases:
            handler = pipeline.handlers.get(phase.name)
            if handler is None or handler.is_async or handler.isolated or phase.timeout is not None:
                continue
            findings.append(
                Finding(
                    "slow",
                    f"{pipeline.name}.{phase.name} has no timeout and runs in a thread: a call that hangs holds its slot "
                    "until the worker ends",
                    f'@{pipeline.name}.phase(timeout="15m"), or isolate="process", which a cancel can end',
                )
            )
    return findings
