"""Widths of the columns of a list: natural widths, cut or left out where the terminal is narrow."""

from collections.abc import Sequence
from typing import NamedTuple

GAP = 2
_STEP = 8


class Column(NamedTuple):
    """One column.

    grow: it takes the rest of the line, at least `least` cells. drop: in a narrow terminal, columns with higher numbers
    are left out first; 0: never.
    """

    title: str
    most: int = 40
    right: bool = False
    grow: bool = False
    drop: int = 0
    least: int = 8


def widths_of(columns: Sequence[Column], natural: Sequence[int], width: int) -> list[int]:
    """Return the width of each column (0: left out); the sum with gaps is at most `width`, if one column fits at all."""
    wanted = [min(max(each, len(column.title)), column.most) for column, each in zip(columns, natural, strict=True)]
    # A column whose cells are all empty and that can be left out is left out.
    found = [
        0 if not each and column.drop else want for column, each, want in zip(columns, natural, wanted, strict=True)
    ]
    growing = [index for index, column in enumerate(columns) if column.grow]

    def needed() -> int:
        each = [min(w, columns[n].least) if n in growing else w for n, w in enumerate(found) if w]
        return sum(each) + GAP * max(0, len(each) - 1)

    for index in sorted(range(len(columns)), key=lambda n: -columns[n].drop):
        if needed() <= width or not columns[index].drop:
            break
        found[index] = 0
    shown = [index for index in range(len(columns)) if found[index]]
    rest = width - GAP * max(0, len(shown) - 1) - sum(found[n] for n in shown if n not in growing)
    wide = [n for n in shown if n in growing]
    # One that needs less than its part leaves the rest to the others. In steps, so that columns do not move each second.
    need = {n: -(-found[n] // _STEP) * _STEP for n in wide}
    for left, index in zip(range(len(wide), 0, -1), sorted(wide, key=lambda n: need[n]), strict=True):
        found[index] = max(0, min(need[index], rest // left))
        rest -= found[index]
    if wide:
        found[wide[-1]] += max(0, rest)
    over = sum(found) + GAP * max(0, len(shown) - 1) - width
    for index in reversed(shown):
        if over <= 0:
            break
        cut = min(over, found[index])
        found[index] -= cut
        over -= cut
    return found
