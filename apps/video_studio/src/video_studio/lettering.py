"""Text on pictures: line breaking, and a font that has each letter."""

import re
from itertools import groupby

from PIL import Image, ImageDraw

from video_studio.fonts import Fonts

White = (255, 255, 255, 255)
_ELLIPSIS = "…"


class Lettering:
    """Draws text in the fonts of this machine, and records missing letters."""

    def __init__(self, fonts: Fonts) -> None:
        self._fonts = fonts
        self.missing = ""

    def prepare(self, text: str) -> str:
        """Return the text with missing letters substituted."""
        shown, missing = self._fonts.shown(text)
        self.missing += "".join(letter for letter in missing if letter not in self.missing)
        return shown

    def lines(self, text: str, size: int, width: float, most: int) -> list[str]:
        """Break a text into a maximum number of lines of a width; the rest becomes an ellipsis."""
        lines = [""]
        for piece in _pieces(text):
            if self.width((lines[-1] + piece).strip(), size) <= width or not lines[-1]:
                lines[-1] += piece
            else:
                lines.append(piece.lstrip())
        lines = [line.strip() for line in lines]
        if len(lines) > most:
            lines = lines[:most]
            while lines[-1] and self.width(lines[-1] + _ELLIPSIS, size) > width:
                shorter, blank, _ = lines[-1].rpartition(" ")
                lines[-1] = shorter if blank else lines[-1][:-1]
            lines[-1] += _ELLIPSIS
        return [self._cut(line, size, width) for line in lines]

    def _cut(self, line: str, size: int, width: float) -> str:
        """Cut a word that is longer than a line."""
        if self.width(line, size) <= width:
            return line
        while line and self.width(line + _ELLIPSIS, size) > width:
            line = line[:-1]
        return line + _ELLIPSIS

    def fit(self, text: str, width: float, most: int, largest: int, smallest: int) -> tuple[int, list[str]]:
        """Return the largest font size in which the text needs no ellipsis, and its lines."""
        for size in range(largest, smallest, -2):
            lines = self.lines(text, size, width, most)
            if not any(line.endswith(_ELLIPSIS) for line in lines) or text.endswith(_ELLIPSIS):
                return size, lines
        return smallest, self.lines(text, smallest, width, most)

    def width(self, text: str, size: int) -> float:
        return sum(float(self._fonts.font(index, size).getlength(run)) for index, run in self._runs(text))

    def write(
        self,
        picture: Image.Image,
        at: tuple[float, float],
        text: str,
        size: int,
        colour: tuple[int, int, int, int] = White,
    ) -> None:
        """Draw one line; the position is the left end of its baseline."""
        pen, (x, y) = ImageDraw.Draw(picture), at
        for index, run in self._runs(text):
            font = self._fonts.font(index, size)
            pen.text((x, y), run, font=font, fill=colour, anchor="ls")
            x += float(font.getlength(run))

    def _runs(self, text: str) -> list[tuple[int, str]]:
        """Split a text into runs of one font; a space belongs to the run before it."""
        indexed: list[tuple[int, str]] = []
        for letter in text:
            found = indexed[-1][0] if letter == " " and indexed else self._fonts.index_for(letter)
            indexed.append((found or 0, letter))
        return [(index, "".join(letter for _, letter in run)) for index, run in groupby(indexed, lambda pair: pair[0])]


def _pieces(text: str) -> list[str]:
    """Split a text where a line may break: before a word, and between signs of scripts without spaces."""
    return re.findall(r"\s*(?:[\u2e80-\u9fff]|[^\s\u2e80-\u9fff]+)", text)
