"""Texts of the pages in the languages that have a catalogue: locales/LANGUAGE.json maps each English text to its translation."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

import msgspec

LANGUAGES = {"en": "English", "ko": "한국어", "zh-Hant": "繁體中文"}
COOKIE = "onerow_lang"
_ALIASES = {"zh": "zh-Hant", "zh-tw": "zh-Hant", "zh-hk": "zh-Hant", "zh-mo": "zh-Hant", "zh-hant": "zh-Hant"}


class Language:
    """Translates English texts; a text without a translation stays English."""

    def __init__(self, code: str, texts: Mapping[str, str]) -> None:
        self.code = code
        self._texts = texts

    def __call__(self, text: str, /, **values: object) -> str:
        """Return the text in this language with its {placeholders} replaced."""
        found = self._texts.get(text, text)
        return found.format(**values) if values else found

    def plural(self, one: str, many: str, n: int) -> str:
        """Return `one` if n is 1, else `many`, with {n} replaced; languages without a plural translate both alike."""
        return self(one if n == 1 else many, n=f"{n:,}")


@cache
def language(code: str) -> Language:
    """Return a language by its code."""
    if code == "en":
        return Language(code, {})
    raw = (files("onerow.web") / "locales" / f"{code}.json").read_bytes()
    return Language(code, msgspec.json.decode(raw, type=dict[str, str]))


def choose(asked: str | None, remembered: str | None, accepted: str) -> str:
    """Return the code of the language: as asked for in the address, as remembered, or the browser's first known one."""
    for code in (asked, remembered, *_accepted(accepted)):
        found = _known(code or "")
        if found:
            return found
    return "en"


def _known(code: str) -> str:
    lowered = code.lower()
    if lowered in _ALIASES:
        return _ALIASES[lowered]
    return lowered if lowered in LANGUAGES else lowered.partition("-")[0] * (lowered.partition("-")[0] in ("en", "ko"))


def _accepted(header: str) -> list[str]:
    """Return the codes of an Accept-Language header, the most wanted first."""
    weighted = []
    for place, part in enumerate(header[:500].split(",")):
        code, _, weight = part.strip().partition(";q=")
        try:
            weighted.append((-float(weight or 1), place, code.strip()))
        except ValueError:
            continue
    return [code for _, _, code in sorted(weighted)]
