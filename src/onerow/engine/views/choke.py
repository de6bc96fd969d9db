"""The choke point of a pipeline: the phase that would need the longest to work off its due tasks."""

from onerow.engine.views.board import Board, Lane

_FEWEST = 5


def choke_points(board: Board) -> dict[tuple[str, str], str]:
    """Return, for each pipeline that has one, its choke point and a sentence about it.

    It has at least twice as many due tasks as running ones, a minute of work or more at its present rate, and of all
    phases it would take longest. Pauses, holds and missing workers are other findings.
    """
    found = {}
    for pipeline in board.pipelines:
        lanes = [lane for lane in pipeline.lanes if _chokes(lane, board)]
        if lanes:
            worst = max(lanes, key=lambda lane: (_minutes(lane), lane.waiting))
            found[worst.pipeline, worst.phase] = f"choke point: {worst.waiting:,} due, {worst.per_minute:.1f}/min"
    return found


def _chokes(lane: Lane, board: Board) -> bool:
    due = lane.oldest is not None and lane.oldest <= board.at
    free = lane.paused is None and lane.held_until is None and lane.workers > 0 and lane.has_code
    return due and free and lane.waiting >= max(_FEWEST, 2 * lane.processing) and _minutes(lane) >= 1


def _minutes(lane: Lane) -> float:
    return lane.waiting / lane.per_minute if lane.per_minute else float("inf")
