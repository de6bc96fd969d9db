"""The fix for a name that nothing has: the nearest known name."""

import difflib
from collections.abc import Iterable


def did_you_mean(name: object, known: Iterable[str], otherwise: str = "") -> str:
    """Return "did you mean 'x'?" if a known name is near, else `otherwise`, else the list of known names."""
    text = str(name)  # an unknown name may be anything
    names = sorted({str(each) for each in known})
    near = difflib.get_close_matches(text, names, 1) or [each for each in names if each.lower() == text.lower()]
    if near:
        return f"did you mean {near[0]!r}?"
    return otherwise or (f"choose one of {', '.join(names)}" if names else "")
