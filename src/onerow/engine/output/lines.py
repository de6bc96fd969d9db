"""Assembles pieces of output, cut anywhere, into complete lines with secrets masked."""

from onerow.engine.output.masking import Masker

LONGEST_LINE = 16_000
"""In characters; a longer line is split."""
_WINDOW = 64_000


class Lines:
    """One stream of text. A line is held until it is complete, so that a secret cut into two pieces is still masked."""

    def __init__(self, masker: Masker, longest: int = LONGEST_LINE, window: int = _WINDOW) -> None:
        self._masker = masker
        self._longest = longest
        self._window = max(window, 2 * masker.longest)
        self._rest: list[str] = []
        self._held = 0

    @property
    def unfinished(self) -> str:
        """The end of the incomplete line, not masked: the current text of a progress bar."""
        return self._rest[-1] if self._rest else ""

    def feed(self, text: str) -> list[str]:
        """Add a piece of text; return the lines that it completes."""
        end = text.rfind("\n")
        if end < 0:
            return self._hold(text)
        block = "".join((*self._rest, text[:end]))
        self._rest, self._held = [], 0
        lines = self._split(self._masker.text(storable(block)))
        if end + 1 < len(text):
            lines += self._hold(text[end + 1 :])
        return lines

    def end(self) -> list[str]:
        """Return the remaining lines at the end of the stream."""
        if not self._rest:
            return []
        block = "".join(self._rest)
        self._rest, self._held = [], 0
        return self._split(self._masker.text(storable(block)))

    def _hold(self, text: str) -> list[str]:
        if "\r" in text or (self._rest and self._rest[-1].endswith("\r")):
            # Text before a carriage return is overwritten in a terminal, so it is dropped.
            whole = "".join((*self._rest, text))
            text = whole[whole.rfind("\r", 0, len(whole) - 1) + 1 :]
            self._rest, self._held = [], 0
        if text:
            self._rest.append(text)
            self._held += len(text)
        return self._release_start() if self._held > self._window else []

    def _release_start(self) -> list[str]:
        """Return the start of an overlong line, cut where no secret crosses the cut."""
        block = storable("".join(self._rest))
        masked = self._masker.text(block)
        cut = last = len(block) - self._masker.longest
        head = block[:cut]
        for _ in range(64 if masked != block else 0):
            head = self._masker.text(block[:cut])
            if head + self._masker.text(block[cut:]) == masked:
                break
            cut = max(1, cut - 1 - (last - cut))  # further back each time
        self._rest, self._held = [block[cut:]], len(block) - cut
        return self._split(head)

    def _split(self, block: str) -> list[str]:
        lines = block.split("\n")
        if "\r" in block:
            lines = [line.rstrip("\r").rpartition("\r")[2] for line in lines]
        if len(block) > self._longest and max(map(len, lines)) > self._longest:
            lines = [line[at : at + self._longest] for line in lines for at in range(0, len(line) or 1, self._longest)]
        return lines


def storable(text: str) -> str:
    """Replace NUL and lone surrogates, which some stores cannot store."""
    if "\x00" in text:
        text = text.replace("\x00", "�")
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()
    return text
