"""The scaling decision: the formulas of message queues as a table, and what holds for every signal."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onerow.core.errors import BadInput
from onerow.core.scaling import (
    Decision,
    PhaseSignal,
    ScaleSettings,
    ScaleState,
    Signal,
    WorkerSignal,
    decide,
    restricted,
)

NOW = 1_800_000_000.0
TEN_MINUTES = 600.0


def phase(**values: Any) -> PhaseSignal:
    return PhaseSignal(pipeline="clips", phase=values.pop("phase", "video"), **values)


def workers(*running: int, slots: int = 2) -> tuple[WorkerSignal, ...]:
    return tuple(WorkerSignal(f"w{index}", slots, count) for index, count in enumerate(running))


# ── the formulas of message queues ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "mode, visible, inflight, slots, warm, current, zero_for, backlog_add, raw, new, decision",
    [
        # in flight + ceil(visible / slots)
        ("inflight", 0, 0, 1, 0, 0, None, 0, 0, 0, "hold"),
        ("inflight", 1, 0, 1, 0, 0, None, 1, 1, 1, "scale_out"),
        ("inflight", 5, 0, 2, 0, 0, None, 3, 3, 3, "scale_out"),
        ("inflight", 4, 2, 2, 0, 2, None, 2, 4, 4, "scale_out"),
        ("inflight", 0, 3, 2, 0, 3, None, 0, 3, 3, "hold"),
        ("inflight", 0, 1, 2, 0, 3, None, 0, 1, 3, "hold"),  # not zero: no scale-in
        ("inflight", 100, 0, 1, 0, 0, None, 100, 100, 8, "scale_out"),
        ("inflight", 100, 0, 1, 0, 8, None, 100, 100, 8, "at_max"),
        ("inflight", 9, 0, 1, 0, 8, None, 9, 9, 8, "at_max"),
        ("inflight", 8, 0, 1, 0, 8, None, 8, 8, 8, "hold"),
        ("inflight", 0, 0, 1, 0, 3, 0.0, 0, 0, 3, "hold"),
        ("inflight", 0, 0, 1, 0, 3, 599.0, 0, 0, 3, "hold"),
        ("inflight", 0, 0, 1, 0, 3, TEN_MINUTES, 0, 0, 0, "scale_in"),
        ("inflight", 0, 0, 1, 5, 3, TEN_MINUTES, 0, 0, 0, "scale_in"),  # the warm pool belongs to the other formula
        # ceil(visible / slots) + warm pool
        ("visible", 0, 0, 1, 1, 0, None, 0, 1, 1, "scale_out"),
        ("visible", 5, 4, 2, 1, 0, None, 3, 4, 4, "scale_out"),
        ("visible", 0, 4, 1, 0, 4, None, 0, 0, 4, "hold"),  # in flight: no scale-in
        ("visible", 0, 4, 1, 0, 0, None, 0, 0, 1, "scale_out"),  # a lease needs a worker that can rescue it
        ("visible", 0, 0, 1, 1, 4, TEN_MINUTES, 0, 1, 1, "scale_in"),
        ("visible", 20, 0, 2, 0, 8, None, 10, 10, 8, "at_max"),
    ],
)
def test_the_formulas_of_message_queues(
    mode: Any,
    visible: int,
    inflight: int,
    slots: int,
    warm: int,
    current: int,
    zero_for: float | None,
    backlog_add: int,
    raw: int,
    new: int,
    decision: str,
) -> None:
    settings = ScaleSettings(mode=mode, slots=slots, warm_pool=warm, maximum=8)
    signal = Signal(at=NOW, messages_visible=visible, messages_inflight=inflight, current=current)
    state = ScaleState(zero_since=None if zero_for is None else NOW - zero_for)

    decided = decide(signal, settings, state)

    zero_since = None if visible or inflight else NOW - (zero_for or 0.0)
    assert decided.fields("video") == {
        "video_visible": visible,
        "video_inflight": inflight,
        "video_backlog_add": backlog_add,
        "video_desired_raw": raw,
        "video_new_desired": new,
        "video_decision": decision,
        "stable_zero_since_epoch": None if zero_since is None else int(zero_since),
    }


def test_the_fields_take_any_prefix() -> None:
    fields = decide(Signal(at=NOW), ScaleSettings(), ScaleState()).fields("thumbnails")
    assert sorted(fields) == [
        "stable_zero_since_epoch",
        "thumbnails_backlog_add",
        "thumbnails_decision",
        "thumbnails_desired_raw",
        "thumbnails_inflight",
        "thumbnails_new_desired",
        "thumbnails_visible",
    ]


@pytest.mark.parametrize("mode", ["inflight", "visible"])
def test_running_leases_count_as_in_flight_after_their_messages_were_deleted(mode: Any) -> None:
    """With fast acknowledgement the queue shows 0 and 0 while workers encode."""
    signal = Signal(at=NOW, phases=(phase(running=2),), workers=workers(1, 1))
    state = ScaleState(zero_since=NOW - 3600)
    decided = decide(signal, ScaleSettings(mode=mode, slots=1), state)
    assert (decided.decision, decided.workers) == ("hold", 2)
    assert decided.fields("video")["video_inflight"] == 2
    assert decided.state.zero_since is None


def test_runnable_rows_are_visible_as_messages_are() -> None:
    signal = Signal(at=NOW, phases=(phase(ready=3, limit=2),), messages_visible=4, current=0)
    decided = decide(signal, ScaleSettings(mode="visible", slots=1), ScaleState())
    assert (decided.fields("video")["video_visible"], decided.raw) == (6, 6)


def test_a_warm_pool_does_not_grow_where_each_worker_has_little_work() -> None:
    spread = Signal(at=NOW, phases=(phase(running=4),), workers=workers(1, 1, 1, 1, slots=4))
    settings = ScaleSettings(slots=4, warm_pool=1, maximum=40)
    assert decide(spread, settings, ScaleState()).decision == "hold"
    full = Signal(at=NOW, phases=(phase(running=16),), workers=workers(4, 4, 4, 4, slots=4))
    assert decide(full, settings, ScaleState()).workers == 5


def test_zero_starts_to_last_when_it_is_first_seen_and_ends_with_work() -> None:
    settings = ScaleSettings(mode="inflight")
    first = decide(Signal(at=NOW, current=1), settings, ScaleState())
    again = decide(Signal(at=NOW + 60, current=1), settings, first.state)
    work = decide(Signal(at=NOW + 70, current=1, messages_visible=1), settings, again.state)
    assert [decided.state.zero_since for decided in (first, again, work)] == [NOW, NOW, None]


# ── leases ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "work, need",
    [
        (phase(), 0),
        (phase(ready=1), 1),
        (phase(ready=4), 2),
        (phase(ready=5), 3),
        (phase(soon=5), 3),
        (phase(ready=4, running=2), 3),
        (phase(ready=31, running=2, limit=2), 1),  # backlog behind a full limit
        (phase(ready=31, running=2, limit=8), 4),
        (phase(ready=31, paused=True), 0),
        (phase(ready=31, startable=0, limited_by="rate"), 0),
        (phase(ready=31, startable=3, limited_by="key"), 2),
        (phase(ready=31, running=9, limit=4), 5),  # the limit was lowered while nine ran
    ],
)
def test_a_backlog_that_cannot_run_adds_no_worker(work: PhaseSignal, need: int) -> None:
    decided = decide(Signal(at=NOW, phases=(work,)), ScaleSettings(slots=2, maximum=100), ScaleState())
    assert decided.raw == decided.workers == need


@pytest.mark.parametrize(
    "work, by",
    [
        (phase(ready=3), ""),
        (phase(ready=3, paused=True), "paused"),
        (phase(ready=3, limit=1), "concurrency"),
        (phase(ready=3, startable=1, limited_by="key"), "key"),
        (phase(ready=3, startable=1, limit=2, limited_by="rate"), "rate"),
    ],
)
def test_a_phase_says_what_holds_its_backlog_back(work: PhaseSignal, by: str) -> None:
    assert work.held_back_by == by


def test_leases_claimed_ahead_and_tasks_of_one_batch_need_no_slot_of_their_own() -> None:
    def need(**values: Any) -> int:
        signal = Signal(at=NOW, phases=(phase(**values),), workers=workers(1, slots=16))
        return decide(signal, ScaleSettings(slots=16, maximum=100, target_wait=5.0), ScaleState()).workers

    assert need(running=176) == 11
    assert need(running=176, ahead=160) == 1
    assert need(running=176, ahead=160, ready=1600, run_for=0.01) == 1  # the slots in use start them in time
    assert need(running=176, ahead=160, ready=8000, run_for=0.02) == 2
    assert need(running=800, per_slot=50) == 1
    assert need(running=801, per_slot=50) == 2
    assert need(ready=801, per_slot=50) == 2
    assert need(ready=8000, per_slot=50, run_for=1.0) == 2
    decided = decide(Signal(at=NOW, phases=(phase(running=176, ahead=160),)), ScaleSettings(slots=16), ScaleState())
    assert "176 leases use 16 slots" in decided.why


def test_a_target_wait_needs_fewer_slots_for_short_tasks() -> None:
    def need(**values: Any) -> int:
        signal = Signal(at=NOW, phases=(phase(**values),))
        return decide(signal, ScaleSettings(slots=1, maximum=1000, target_wait=30.0), ScaleState()).workers

    assert need(ready=100, run_for=3.0) == 10
    assert need(ready=100) == 100  # the duration is not known
    assert need(ready=100, run_for=300.0) == 100  # longer than the wait: each needs its own slot
    assert need(ready=100, run_for=3.0, running=10) == 10  # their slots start the backlog in time
    assert need(ready=100, run_for=3.0, startable=4) == 4
    assert need(ready=5, soon=6, run_for=3.0) == 2
    assert need(ready=11, per_slot=10, run_for=30.0) == 2


def test_at_max_follows_from_a_backlog_alone_counted_up_to_the_bound() -> None:
    settings = ScaleSettings(slots=2, maximum=3)
    full = Signal(at=NOW, current=3, phases=(phase(ready=settings.most_slots),))
    enough = Signal(at=NOW, current=3, phases=(phase(ready=settings.most_slots - 1),))
    assert decide(full, settings, ScaleState()).decision == "at_max"
    assert decide(enough, settings, ScaleState()).decision == "hold"


def test_a_surplus_must_last_and_its_largest_need_is_kept() -> None:
    settings = ScaleSettings(slots=1, scale_in_after=100.0, scale_in_cooldown=0.0)
    state = ScaleState()
    for after, ready, expected in [
        (0, 1, ("hold", 8)),
        (50, 3, ("hold", 8)),
        (99, 1, ("hold", 8)),
        (100, 1, ("scale_in", 3)),
    ]:
        decided = decide(Signal(at=NOW + after, current=8, phases=(phase(ready=ready),)), settings, state)
        assert (decided.decision, decided.workers) == expected
        state = decided.state


def test_cool_downs_delay_changes() -> None:
    settings = ScaleSettings(slots=1, scale_out_cooldown=60.0, scale_in_after=0.0, scale_in_cooldown=90.0)
    out = decide(Signal(at=NOW, current=1, phases=(phase(ready=2),)), settings, ScaleState())
    soon = decide(Signal(at=NOW + 59, current=2, phases=(phase(ready=4),)), settings, out.state)
    later = decide(Signal(at=NOW + 60, current=2, phases=(phase(ready=4),)), settings, soon.state)
    early_in = decide(Signal(at=NOW + 149, current=4), settings, later.state)
    late_in = decide(Signal(at=NOW + 150, current=4), settings, early_in.state)
    assert [(one.decision, one.workers) for one in (out, soon, later, early_in, late_in)] == [
        ("scale_out", 2),
        ("hold", 2),
        ("scale_out", 4),
        ("hold", 4),
        ("scale_in", 0),
    ]


def test_a_surplus_begins_anew_after_the_need_rose_and_after_the_maximum_was_lowered() -> None:
    settings = ScaleSettings(slots=1, scale_in_after=100.0, scale_in_cooldown=0.0)
    state = ScaleState(surplus_since=NOW - 90, surplus_need=6)
    risen = decide(Signal(at=NOW, current=8, phases=(phase(ready=8),)), settings, state)
    lowered = decide(Signal(at=NOW, current=12), settings, state)
    assert (risen.decision, risen.state) == ("hold", ScaleState())
    assert (lowered.decision, lowered.workers) == ("scale_in", 8)
    assert lowered.state == ScaleState(scaled_in_at=NOW, zero_since=NOW)
    for before in (risen, lowered):
        early = decide(Signal(at=NOW + 50, current=8), settings, before.state)
        late = decide(Signal(at=NOW + 150, current=8), settings, early.state)
        assert [(one.decision, one.workers) for one in (early, late)] == [("hold", 8), ("scale_in", 0)]


def test_a_cool_down_does_not_keep_the_minimum_and_the_busy_workers_from_being_counted() -> None:
    cooling = ScaleState(scaled_out_at=NOW - 1)
    settings = ScaleSettings(slots=1, scale_out_cooldown=60.0, minimum=3)
    waits = decide(Signal(at=NOW, current=3, phases=(phase(ready=5),)), settings, cooling)
    assert (waits.decision, waits.workers) == ("hold", 3)
    assert waits.why.endswith("3 now, and the next scale-out is possible in 59 s.")
    least = decide(Signal(at=NOW, current=1, phases=(phase(ready=5),)), settings, cooling)
    busy = decide(Signal(at=NOW, current=3, phases=(phase(running=4),), workers=workers(1, 1, 1, 1)), settings, cooling)
    assert (least.decision, least.workers) == ("scale_out", 3)
    assert (busy.decision, busy.workers) == ("scale_out", 4)
    enough = decide(Signal(at=NOW, current=3, phases=(phase(ready=3),)), settings, cooling)
    assert enough.why.endswith("; 3 now.")


def test_the_cool_down_of_a_scale_in_follows_the_last_change_in_either_direction() -> None:
    settings = ScaleSettings(scale_in_after=0.0, scale_in_cooldown=60.0)
    for state in (
        ScaleState(scaled_out_at=NOW - 900, scaled_in_at=NOW - 10),
        ScaleState(scaled_out_at=NOW - 10, scaled_in_at=NOW - 900),
    ):
        decided = decide(Signal(at=NOW, current=2), settings, state)
        assert (decided.decision, decided.workers) == ("hold", 2)
        assert decided.why.endswith("2 now, scale-in is possible in 50 s.")


def test_a_surplus_is_observed_anew_when_workers_went_by_other_means() -> None:
    settings = ScaleSettings(slots=1, scale_in_after=100.0, scale_in_cooldown=0.0)
    state = ScaleState(surplus_since=NOW - 100, surplus_need=5)
    one = (phase(ready=1),)
    fewer = decide(Signal(at=NOW, current=5, phases=one), settings, state)
    assert (fewer.decision, fewer.workers, fewer.why[-8:]) == ("hold", 5, "; 5 now.")
    assert fewer.state == ScaleState(surplus_since=NOW, surplus_need=1)
    after = decide(Signal(at=NOW + 100, current=5, phases=one), settings, fewer.state)
    assert (after.decision, after.workers) == ("scale_in", 1)
    assert after.why.endswith("5 now, fewer were enough for 100 s.")
    assert after.state == ScaleState(scaled_in_at=NOW + 100)


def test_messages_that_are_no_rows_yet_need_slots() -> None:
    signal = Signal(at=NOW, phases=(phase(running=2, ready=1),), messages_visible=4)
    decided = decide(signal, ScaleSettings(slots=2), ScaleState())
    assert (decided.raw, decided.backlog_add) == (4, 3)
    assert decided.why == "needs 4 workers: max(0 busy, ceil((2 running + 5 to start) / 2 slots) = 4); 0 now."


def test_a_minimum_is_named_where_it_is_more_than_the_need() -> None:
    settings = ScaleSettings(slots=1, minimum=2)
    assert ", at least 2; 2 now." in decide(Signal(at=NOW, current=2), settings, ScaleState()).why
    needed = decide(Signal(at=NOW, current=2, phases=(phase(ready=2),)), settings, ScaleState())
    assert "at least" not in needed.why


def test_one_worker_stays_for_work_that_needs_no_slot() -> None:
    decided = decide(Signal(at=NOW, upkeep=1), ScaleSettings(), ScaleState())
    assert (decided.decision, decided.workers) == ("scale_out", 1)
    assert "schedules" in decided.why
    with_work = decide(Signal(at=NOW, upkeep=1, phases=(phase(ready=1),)), ScaleSettings(), ScaleState())
    assert "schedules" not in with_work.why


def test_busy_workers_above_the_maximum_are_kept() -> None:
    signal = Signal(at=NOW, phases=(phase(running=3),), workers=workers(1, 1, 1, 0))
    decided = decide(signal, ScaleSettings(maximum=2), ScaleState())
    assert (decided.decision, decided.workers) == ("scale_in", 3)


@pytest.mark.parametrize(
    "allowed, outcome, scaled_out_at, scaled_in_at",
    [
        (3, "scale_out", NOW, None),
        (2, "at_max", None, None),  # nothing changes, so no cool-down begins
        (1, "scale_in", None, NOW),
    ],
)
def test_a_decision_keeps_to_what_the_group_of_workers_allows(
    allowed: int, outcome: str, scaled_out_at: float | None, scaled_in_at: float | None
) -> None:
    signal = Signal(at=NOW, phases=(phase(ready=8),), workers=workers(0, 0))
    decided = decide(signal, ScaleSettings(slots=2), ScaleState())
    assert (decided.decision, decided.workers) == ("scale_out", 4)
    assert restricted(decided, 4) is decided
    found = restricted(decided, allowed)
    assert (found.decision, found.workers) == (outcome, allowed)
    assert (found.state.scaled_out_at, found.state.scaled_in_at) == (scaled_out_at, scaled_in_at)
    assert found.why.endswith(f"2 now. The group itself allows {allowed}.")


def test_a_scale_in_below_what_the_group_allows_is_none() -> None:
    state = ScaleState(surplus_since=NOW - 600, surplus_need=0)
    decided = decide(Signal(at=NOW, workers=workers(0, 0)), ScaleSettings(slots=2), state)
    assert (decided.decision, decided.workers, decided.state.scaled_in_at) == ("scale_in", 0, NOW)
    found = restricted(decided, 2)
    assert (found.decision, found.workers, found.state.scaled_in_at) == ("hold", 2, None)


def test_a_draining_worker_is_no_worker() -> None:
    draining = WorkerSignal("old", 2, 1, draining=True)
    decided = decide(
        Signal(at=NOW, phases=(phase(running=1),), workers=(draining,)), ScaleSettings(slots=2), ScaleState()
    )
    assert (decided.signal.count, decided.signal.busy, decided.decision, decided.workers) == (0, 0, "scale_out", 1)


def test_the_reason_names_the_numbers() -> None:
    signal = Signal(at=NOW, phases=(phase(ready=29, soon=2, running=2, limit=8),), workers=workers(1, 1))
    decided = decide(signal, ScaleSettings(slots=2), ScaleState())
    assert decided.why == (
        "needs 4 workers: max(2 busy, ceil((2 running + 6 to start) / 2 slots) = 4); "
        "25 of 31 waiting tasks can't run now (clips.video: concurrency); 2 now."
    )
    one = decide(Signal(at=NOW, phases=(phase(ready=3, limit=2),)), ScaleSettings(), ScaleState())
    assert "; 1 of 3 waiting tasks can't run now (clips.video: concurrency)" in one.why
    assert decided.answer()["phases"] == {
        "clips.video": {"ready": 29, "running": 2, "runnable": 6, "limit": 8, "limited_by": "concurrency"}
    }


@pytest.mark.parametrize(
    "values",
    [
        {"slots": 0},
        {"slots": 10_001},
        {"maximum": 0},
        {"maximum": 10_001},
        {"minimum": -1},
        {"minimum": 9, "maximum": 8},
        {"scale_in_after": -1.0},
        {"target_wait": float("inf")},
    ],
)
def test_impossible_settings_are_rejected(values: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        ScaleSettings(**values)


# ── for every signal ──────────────────────────────────────────────────────────────────────────────────────────────

counts = st.integers(0, 60)
phases = st.builds(
    PhaseSignal,
    pipeline=st.just("clips"),
    phase=st.sampled_from(["script", "video"]),
    ready=counts,
    soon=counts,
    running=counts,
    ahead=counts,
    per_slot=st.integers(1, 9),
    limit=st.none() | st.integers(1, 40),
    startable=st.none() | counts,
    paused=st.booleans(),
    run_for=st.none() | st.floats(0.001, 1000),
)
times = st.none() | st.floats(NOW - 2000, NOW)
states = st.builds(
    ScaleState,
    zero_since=times,
    surplus_since=times,
    surplus_need=st.integers(0, 30),
    scaled_out_at=times,
    scaled_in_at=times,
)
pools = st.lists(st.builds(WorkerSignal, st.just("w"), st.just(4), st.integers(0, 4), st.booleans()), max_size=20).map(
    tuple
)
signals = st.builds(
    Signal,
    at=st.just(NOW),
    phases=st.lists(phases, max_size=3).map(tuple),
    workers=pools,
    current=st.none() | st.integers(0, 30),
    upkeep=st.integers(0, 2),
    messages_visible=counts,
    messages_inflight=counts,
)


@st.composite
def plans(draw: st.DrawFn) -> ScaleSettings:
    minimum = draw(st.integers(0, 10))
    return ScaleSettings(
        slots=draw(st.integers(1, 20)),
        minimum=minimum,
        maximum=max(1, minimum + draw(st.integers(0, 20))),
        warm_pool=draw(st.integers(0, 5)),
        target_wait=draw(st.none() | st.floats(0.1, 600)),
        scale_out_cooldown=draw(st.sampled_from([0.0, 60.0])),
        scale_in_cooldown=draw(st.sampled_from([0.0, 60.0])),
        scale_in_after=draw(st.sampled_from([0.0, 30.0, 600.0])),
        mode=draw(st.sampled_from(["leases", "inflight", "visible"])),
    )


@given(signals, plans(), states)
def test_never_below_the_busy_workers_and_never_above_the_maximum(
    signal: Signal, settings: ScaleSettings, state: ScaleState
) -> None:
    decided = decide(signal, settings, state)
    assert decided.workers >= signal.busy
    assert decided.workers >= settings.minimum
    assert decided.workers <= max(settings.maximum, signal.busy)
    assert (
        decided.decision
        == {
            -1: "scale_in",
            0: decided.decision if decided.decision in ("hold", "at_max") else "wrong",
            1: "scale_out",
        }[(decided.workers > signal.count) - (decided.workers < signal.count)]
    )
    assert (signal.inflight == 0 and signal.upkeep == 0) or decided.workers > 0


@given(signals, plans(), states, st.integers(1, 100), st.data())
def test_more_ready_tasks_never_mean_fewer_workers(
    signal: Signal, settings: ScaleSettings, state: ScaleState, more: int, data: st.DataObject
) -> None:
    if not signal.phases:
        return
    place = data.draw(st.integers(0, len(signal.phases) - 1))
    grown = list(signal.phases)
    grown[place] = msgspec.structs.replace(grown[place], ready=grown[place].ready + more)
    fewer = decide(signal, settings, state)
    assert decide(msgspec.structs.replace(signal, phases=tuple(grown)), settings, state).workers >= fewer.workers


@given(signals, plans(), states, st.sampled_from([1.0, 7.0, 60.0, 601.0]))
def test_a_constant_signal_never_makes_the_number_of_workers_go_up_and_down(
    signal: Signal, settings: ScaleSettings, state: ScaleState, step: float
) -> None:
    seen: list[Decision] = []
    current = signal.count
    for index in range(40):
        decided = decide(msgspec.structs.replace(signal, at=NOW + index * step, current=current), settings, state)
        seen.append(decided)
        current, state = decided.workers, decided.state
    assert not {"scale_out", "scale_in"} <= {decided.decision for decided in seen}


moments = st.tuples(st.sampled_from([0.5, 20.0, 45.0, 700.0]), st.integers(0, 12), st.integers(0, 6), st.integers(0, 2))


@given(plans(), st.lists(moments, max_size=30), st.integers(0, 12))
def test_changes_keep_their_cool_downs_and_a_scale_in_goes_to_the_largest_need_of_its_surplus(
    settings: ScaleSettings, sequence: list[tuple[float, int, int, int]], current: int
) -> None:
    settings = msgspec.structs.replace(settings, mode="leases")
    state, at = ScaleState(), NOW
    needs: list[tuple[float, int, int]] = []  # when, the need, and how many workers there were
    scaled_out = changed = float("-inf")
    for after, ready, busy, upkeep in sequence:
        at += after
        pool = workers(*[1] * busy)
        signal = Signal(at=at, current=current, phases=(phase(ready=ready, running=busy),), workers=pool, upkeep=upkeep)
        decided = decide(signal, settings, state)
        kept = max(settings.minimum, busy, 1 if busy or upkeep else 0)
        need = max(min(decided.raw, settings.maximum), kept)
        needs.append((at, need, current))
        if decided.decision == "scale_out":
            assert decided.workers == need or decided.workers == kept
            assert at - scaled_out >= settings.scale_out_cooldown or decided.workers == kept
            scaled_out = changed = at
        elif decided.decision == "scale_in" and current <= max(settings.maximum, busy):
            assert at - changed >= settings.scale_in_cooldown
            lasted = [
                (then, most, had) for then, most, had in needs if then > at - settings.scale_in_after or then == at
            ]
            assert all(most < had for _, most, had in lasted)
            assert decided.workers >= max(most for _, most, _ in lasted)
            changed = at
        elif decided.decision == "scale_in":
            assert decided.workers == max(settings.maximum, busy)
            changed = at
        else:
            assert decided.workers == current
        current, state = decided.workers, decided.state


@given(signals, plans(), states)
def test_a_decision_survives_as_json(signal: Signal, settings: ScaleSettings, state: ScaleState) -> None:
    decided = decide(signal, settings, state)
    assert msgspec.json.decode(msgspec.json.encode(decided.state), type=ScaleState) == decided.state
    assert msgspec.json.decode(msgspec.json.encode(decided), type=Decision) == decided
    assert msgspec.json.decode(msgspec.json.encode(decided.answer()))["desired_workers"] == decided.workers
