"""Case-insensitive substring search, as a regular expression.

PostgreSQL folds case by the database's collation, which may support ASCII only. So the pattern contains each letter of
the searched text in all its case variants.
"""

import sys
from functools import cache, lru_cache


@lru_cache(maxsize=256)
def containing(needle: str) -> str:
    """Return a pattern that matches every text whose case-folded form contains the folded needle."""
    folded = needle.casefold()
    pattern = []
    index = 0
    while index < len(folded):
        # A letter like 'ß' folds to several letters, so groups of letters are tried first.
        for size in (3, 2):
            together = folded[index : index + size]
            if len(together) == size and together in _forms():
                single = "".join(_any_of(letter) for letter in together)
                pattern.append(f"(?:{single}|{_any_of(together)})")
                index += size
                break
        else:
            pattern.append(_any_of(folded[index]))
            index += 1
    return "***:" + "".join(pattern)


def _any_of(folded: str) -> str:
    letters = _forms().get(folded, "") + (folded if len(folded) == 1 else "")
    return "[" + "".join(f"\\U{ord(letter):08x}" for letter in sorted(set(letters))) + "]"


@cache
def _forms() -> dict[str, str]:
    """Return a mapping from folded text to the letters that fold to it."""
    forms: dict[str, str] = {}
    for code in range(sys.maxunicode + 1 if sys.maxunicode < 0x20000 else 0x20000):
        if not 0xD800 <= code < 0xE000 and (folded := chr(code).casefold()) != chr(code):
            forms[folded] = forms.get(folded, "") + chr(code)
    return forms
