"""The bound of a task's stored output: the oldest lines are dropped first."""

from collections.abc import Iterable

import msgspec


class OutputBound(msgspec.Struct, frozen=True):
    """How much of one task's output is kept."""

    lines: int = 10_000
    size: int = 1_000_000  # bytes of UTF-8

    def exceeded(self, lines: int, size: int) -> bool:
        return lines > self.lines or size > self.size

    def drop(self, lines: int, size: int, sizes: Iterable[int]) -> tuple[int, int]:
        """Return how many of the oldest lines to drop, and how many bytes they have.

        `lines` and `size` are the stored output; `sizes` yields the bytes of each line, the oldest first.
        """
        count = freed = 0
        for each in sizes:
            if not self.exceeded(lines - count, size - freed):
                break
            count += 1
            freed += each
        return count, freed


def byte_size(text: str) -> int:
    """Return the bytes of a line, without its end."""
    return len(text) if text.isascii() else len(text.encode())
