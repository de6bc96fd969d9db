"""Read model of all user interfaces, as plain values. It changes no task, and no view scans all tasks."""

from onerow.engine.control.definitions import Pause
from onerow.engine.control.schedules import Scheduled
from onerow.engine.views.board import Board, Lane, Overview, PipelineBoard
from onerow.engine.views.completion import Completion, Completions
from onerow.engine.views.failures import FailureGroup, Failures
from onerow.engine.views.findings import QueueFinding
from onerow.engine.views.payload_form import FormField, PayloadForm
from onerow.engine.views.phases import PhaseLine
from onerow.engine.views.pulse import PhasePulse, Pulse, Series
from onerow.engine.views.rows import Row, TaskPage, TaskTable
from onerow.engine.views.segments import PhaseSpan, Segment
from onerow.engine.views.task_detail import AttemptLine, Awaited, Link, SignalLine, StepLine, TaskDetail
from onerow.engine.views.timeline import Moment, TaskView
from onerow.engine.views.tracebacks import Traceback, TracePart
from onerow.engine.views.views import Views
from onerow.engine.views.why import Reason, why
from onerow.engine.views.workers import Holding, WorkerLine

__all__ = [
    "AttemptLine",
    "Awaited",
    "Board",
    "Completion",
    "Completions",
    "FailureGroup",
    "Failures",
    "FormField",
    "Holding",
    "Lane",
    "Link",
    "Moment",
    "Overview",
    "Pause",
    "PayloadForm",
    "PhaseLine",
    "PhasePulse",
    "PhaseSpan",
    "PipelineBoard",
    "Pulse",
    "QueueFinding",
    "Reason",
    "Row",
    "Scheduled",
    "Segment",
    "Series",
    "SignalLine",
    "StepLine",
    "TaskDetail",
    "TaskPage",
    "TaskTable",
    "TaskView",
    "TracePart",
    "Traceback",
    "Views",
    "WorkerLine",
    "why",
]
