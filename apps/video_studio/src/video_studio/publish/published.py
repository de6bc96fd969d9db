"""The result of publishing."""

from typing import Literal

import msgspec


class Published(msgspec.Struct, frozen=True):
    """Where a film was published."""

    target: Literal["folder", "youtube"]
    id: str
    where: str  # a path or a URL
