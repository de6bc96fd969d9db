"""The choke point of a pipeline."""

from datetime import timedelta
from typing import Any

import pytest

from onerow.engine.control.definitions import Pause
from onerow.engine.views import Board, Lane, PipelineBoard
from onerow.engine.views.choke import choke_points
from tests.samples import NOW, SECOND

BEHIND: dict[str, Any] = {"kind": "run", "waiting": 30, "processing": 2, "workers": 1, "oldest": NOW - SECOND}


def _chokes(*lanes: Lane) -> dict[str, str]:
    found = choke_points(Board(NOW, [PipelineBoard("videos", list(lanes))], NOW, timedelta(minutes=5)))
    return {phase: text for (_, phase), text in found.items()}


def _lane(phase: str, **changed: Any) -> Lane:
    return Lane(pipeline="videos", phase=phase, **BEHIND | changed)


def test_the_phase_that_needs_longest_for_its_due_tasks_is_the_choke_point() -> None:
    lanes = [
        _lane("script", per_minute=10.0),
        _lane("video", per_minute=0.2),
        _lane("image", waiting=60, per_minute=9.0),
    ]
    assert _chokes(*lanes) == {"video": "choke point: 30 due, 0.2/min"}


@pytest.mark.parametrize(
    "changed",
    [
        {"waiting": 4, "processing": 0},
        {"processing": 20},
        {"workers": 0},
        {"oldest": NOW + SECOND},
        {"paused": Pause("videos", "video", "ann", "", "")},
        {"held_until": NOW + SECOND},
        {"kind": "wait_for"},
        {"per_minute": 40.0},
    ],
)
def test_a_phase_that_is_not_behind_or_is_held_back_otherwise_is_none(changed: dict[str, Any]) -> None:
    assert _chokes(_lane("video", **{"per_minute": 0.2} | changed)) == {}
