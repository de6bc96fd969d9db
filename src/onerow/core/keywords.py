"""Keyword arguments that several functions share: declared once as a TypedDict, checked at run time."""

from collections.abc import Mapping
from typing import Any

from onerow.core.suggest import did_you_mean


def check_keywords(function: str, given: Mapping[str, Any], declared: Any, otherwise: str = "") -> None:
    """Raise TypeError, as Python does for a declared parameter, if a keyword is not a key of the TypedDict.

    otherwise: what to do if no key is near; by default, the keys are listed.
    """
    known = declared.__required_keys__ | declared.__optional_keys__
    for name in given:
        if name not in known:
            raise TypeError(f"{function}() has no keyword {name!r}; {did_you_mean(name, known, otherwise)}")
