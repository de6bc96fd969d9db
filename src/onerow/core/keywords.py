"""Keyword arguments that several functions share: declared once as a TypedDict, checked at run time."""

import difflib
from collections.abc import Mapping
from typing import Any


def check_keywords(function: str, given: Mapping[str, Any], declared: Any) -> None:
    """Raise TypeError, as Python does for a declared parameter, if a keyword is not a key of the TypedDict."""
    known = declared.__required_keys__ | declared.__optional_keys__
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(known))}"
            raise TypeError(f"{function}() has no keyword {name!r}; {hint}")
