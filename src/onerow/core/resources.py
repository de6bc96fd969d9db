"""Memory and CPU cores that a heavy phase needs: a value that can be multiplied, added and compared."""

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
        """How often this can be taken from what is left; very often, if it is nothing."""
        counts = [left.memory // self.memory] if self.memory else []
        # Tenths of a core add up to whole ones, whatever floating point says.
        counts += [int(left.cpus / self.cpus + 1e-6)] if self.cpus else []
        return max(0, min(counts, default=10_000))
