"""Read model of all user interfaces, as plain values. It changes no task, and no view scans all tasks."""

from onerow.engine.views.board import Board, Lane, Overview, PipelineBoard
from onerow.engine.views.failures import FailureGroup, Failures
from onerow.engine.views.rows import Row, TaskPage
from onerow.engine.views.timeline import Moment, TaskView
from onerow.engine.views.views import Views
from onerow.engine.views.why import Reason, why
from onerow.engine.views.workers import Holding, WorkerLine

__all__ = [
    "Board",
    "FailureGroup",
    "Failures",
    "Holding",
    "Lane",
    "Moment",
    "Overview",
    "PipelineBoard",
    "Reason",
    "Row",
    "TaskPage",
    "TaskView",
    "Views",
    "WorkerLine",
    "why",
]
