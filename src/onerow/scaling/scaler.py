"""One round of scaling: read the signal, decide, apply, and keep the state for the next round in the store."""

from collections.abc import Callable, Collection
from typing import NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from onerow.core.scaling import Decision, ScaleSettings, ScaleState, decide, restricted
from onerow.engine.control import notes
from onerow.engine.queue.queue import Queue
from onerow.engine.views import Views
from onerow.ports import Note

SCALE = "scale"
"""Kind of the notes that hold the states."""


class Bounds(NamedTuple):
    """What a target has now: its wanted number of workers, and its own minimum and maximum if it has them."""

    current: int | None
    minimum: int | None = None
    maximum: int | None = None

    def within(self, workers: int) -> int:
        """Return the nearest number of workers that the target allows."""
        most = workers if self.maximum is None else min(workers, self.maximum)
        return max(most, self.minimum or 0)


class Target(Protocol):
    """A group of workers whose size can be set."""

    @property
    def name(self) -> str:
        """What people call it; the state is stored under it."""

    def bounds(self) -> Bounds:
        """Return what it has now; raise ScalingUnavailable if it can't be asked."""

    def apply(self, workers: int) -> None:
        """Set the wanted number of workers; raise ScalingUnavailable if that fails."""


class Scaler:
    """Decides about the workers of some phases, and applies the decision to a target.

    messages: returns the approximate numbers of visible and in-flight messages of a message queue. live_slots: take the
    slots of the live workers, not `settings.slots`. Without a target the live workers in the store are the current ones.
    """

    def __init__(
        self,
        queue: Queue,
        settings: ScaleSettings,
        *,
        scope: Collection[str] = (),
        target: Target | None = None,
        messages: Callable[[], tuple[int, int]] | None = None,
        live_slots: bool = False,
    ) -> None:
        self._queue = queue
        self._views = Views(queue)
        self.settings = settings
        self._scope = tuple(scope)
        self._target = target
        self._messages = messages
        self._live_slots = live_slots
        self._name = target.name if target is not None else "/".join(sorted(self._scope)) or "*"

    def decide(self, state: ScaleState | None = None) -> Decision:
        """Return the decision of this moment; nothing is applied or stored. state: else the stored one."""
        settings, bounds = self.settings, Bounds(None)
        if self._target is not None:
            bounds = self._target.bounds()
            most = max(1, bounds.within(settings.maximum))
            settings = replace(settings, minimum=min(bounds.within(settings.minimum), most), maximum=most)
        if self._live_slots:
            settings = replace(settings, slots=self._views.usual_slots())
        signal = self._views.scale_signal(settings, self._scope)
        visible, inflight = self._messages() if self._messages is not None else (0, 0)
        signal = replace(signal, current=bounds.current, messages_visible=visible, messages_inflight=inflight)
        decision = decide(signal, settings, self._stored() if state is None else state)
        return restricted(decision, bounds.within(decision.workers))

    def apply(self, decision: Decision) -> bool:
        """Set the target to the decision and store its state; return whether the target changed."""
        changed = decision.workers != decision.signal.count
        if changed and self._target is not None:
            self._target.apply(decision.workers)
        if decision.state != decision.before:
            notes.put(self._queue.store, Note(SCALE, self._name, msgspec.to_builtins(decision.state)))
        return changed

    def _stored(self) -> ScaleState:
        note = notes.find(self._queue.store, SCALE, self._name)
        try:
            return ScaleState() if note is None else msgspec.convert(note.body, ScaleState)
        except msgspec.ValidationError:
            return ScaleState()  # written by another version: begin anew, which only delays a scale-in
