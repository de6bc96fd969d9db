"""The W3C trace context of a task's adder, kept in its metadata."""

import re

CARRIED = ("traceparent", "tracestate")
"""Keys of the metadata; `annotate` keeps them."""

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


def is_traceparent(text: str) -> bool:
    return _TRACEPARENT.fullmatch(text) is not None
