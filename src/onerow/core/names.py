"""Validate the names of pipelines, phases and signals."""

import re

from onerow.core.errors import PipelineError

_NAME = re.compile(r"[\w][\w.\-]*", re.UNICODE)
_LONGEST = 100


def check_name(name: object, what: str) -> str:
    """Return a name of letters (of any script), digits, '_', '-' and '.'; raise PipelineError for any other."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > _LONGEST:
        raise PipelineError(
            f"{name!r} can't name a {what}",
            fix=f"use letters (한글 too), digits, '_', '-' and '.', at most {_LONGEST}",
            field=what,
        )
    return name
