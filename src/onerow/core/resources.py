"""Memory and CPU cores that one attempt of a phase needs."""

import msgspec

from onerow.core.plan import PhasePlan


class Resources(msgspec.Struct, frozen=True):
    """Bytes of memory and CPU cores."""

    memory: int = 0
    cpus: float = 0.0

    @classmethod
    def of(cls, phase: PhasePlan) -> "Resources":
        return cls(phase.memory or 0, phase.cpus or 0.0)

    def times(self, count: int) -> "Resources":
        return Resources(self.memory * count, self.cpus * count)

    def plus(self, other: "Resources") -> "Resources":
        return Resources(self.memory + other.memory, self.cpus + other.cpus)

    def minus(self, other: "Resources") -> "Resources":
        return Resources(max(0, self.memory - other.memory), max(0.0, self.cpus - other.cpus))

    def fits(self, left: "Resources") -> int:
        """Return how many times these resources fit into the remaining ones; 10,000 if they are zero."""
        counts = [left.memory // self.memory] if self.memory else []
        # The tolerance corrects floating-point sums: ten times 0.1 core must fit into one core.
        counts += [int(left.cpus / self.cpus + 1e-6)] if self.cpus else []
        return max(0, min(counts, default=10_000))
