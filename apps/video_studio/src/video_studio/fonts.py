"""Finds installed fonts that contain a letter, and substitutes letters that none contains."""

import os
import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from PIL import ImageFont

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

_FOLDERS = (
    "~/.local/share/fonts",
    "~/.fonts",
    "/usr/local/share/fonts",
    "/usr/share/fonts",
    "~/Library/Fonts",
    "/Library/Fonts",
    "/System/Library/Fonts",
)
# Well-known fonts with many letters first, plain before decorative ones.
_LIKED = ("notosanscjk", "notosans-", "applesdgothicneo", "hiragino", "dejavusans", "notoemoji")
_MOST_FONTS = 400
_NOWHERE = "\U0010fffd"  # a private-use letter that no font has: its glyph is the glyph for missing letters
_SPOKEN = re.compile(r"(?:HANGUL SYLLABLE|(?:HIRAGANA|KATAKANA) LETTER(?: SMALL)?) ([A-Z]+)")


class Fonts:
    """The fonts of this machine, the configured one first; each letter uses the first font that has it."""

    def __init__(self, given: Path | None = None, *, bold: bool = False) -> None:
        self._paths = [*([given] if given else []), *sorted(_installed(), key=lambda path: _liking(path, bold))]

    def font(self, index: int, size: int) -> Font:
        """Return a font in a size; an index past the last gives Pillow's default."""
        return _load(str(self._paths[index]), size) if index < len(self._paths) else _fallback(size)

    def index_for(self, letter: str) -> int | None:
        """Return the index of the first font that has a letter; None if none has."""
        for index in range(len(self._paths) + 1):
            path = str(self._paths[index]) if index < len(self._paths) else ""
            if _has(path, letter):
                return index
        return None

    def shown(self, text: str) -> tuple[str, str]:
        """Return the text with substitutions, and the letters that no font has.

        Hangul and Kana syllables are spelt in Latin letters, emoji are left out, other letters become a box.
        """
        kept, missing = [], ""
        for letter in unicodedata.normalize("NFC", text):
            if letter.isspace():
                kept.append(" ")
            elif unicodedata.category(letter) in ("Cf", "Mn") and self.index_for(letter) is None:
                continue  # joiner or variation selector of an emoji
            elif self.index_for(letter) is not None:
                kept.append(letter)
            else:
                missing += letter if letter not in missing else ""
                kept.append(_instead(letter))
        return re.sub(r" {2,}", " ", "".join(kept)).strip(), missing


def _instead(letter: str) -> str:
    spoken = _SPOKEN.match(unicodedata.name(letter, ""))
    if spoken is not None:
        return spoken[1].lower()
    return "" if unicodedata.category(letter) == "So" else "□"


@lru_cache(maxsize=1)
def _installed() -> tuple[Path, ...]:
    found: dict[Path, None] = {}
    for path in _walk():
        if re.search(r"mono|serif|italic|oblique|condensed|math|symbol", path.name, re.IGNORECASE):
            continue
        found[path] = None
        if len(found) >= _MOST_FONTS:
            break
    return tuple(found)


def _walk() -> Iterator[Path]:
    for folder in _FOLDERS:
        for place, folders, files in os.walk(Path(folder).expanduser()):
            folders.sort()
            for name in sorted(files):
                if name.lower().endswith((".ttf", ".otf", ".ttc")):
                    yield Path(place) / name


def _liking(path: Path, bold: bool) -> tuple[int, bool, str]:
    name = path.name.lower()
    place = next((place for place, liked in enumerate(_LIKED) if liked in name), len(_LIKED))
    plain = re.search(r"bold|black|light|thin|medium", name) is None
    return place, plain if bold else not plain, name


@lru_cache(maxsize=256)
def _load(path: str, size: int) -> Font:
    try:
        return ImageFont.truetype(path, size)
    except OSError:
        return _fallback(size)


@lru_cache(maxsize=64)
def _fallback(size: int) -> Font:
    return ImageFont.load_default(size)


@lru_cache(maxsize=65536)
def _has(path: str, letter: str) -> bool:
    """Whether a font has a glyph for a letter; '' is Pillow's default font."""
    try:
        font = _load(path, 24) if path else _fallback(24)
        return bytes(font.getmask(letter)) != _nothing(path)
    except (OSError, UnicodeError, ValueError):
        return False


@lru_cache(maxsize=512)
def _nothing(path: str) -> bytes:
    font = _load(path, 24) if path else _fallback(24)
    return bytes(font.getmask(_NOWHERE))
