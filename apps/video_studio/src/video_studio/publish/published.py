"""What publishing gives."""

from typing import Literal

import msgspec


class Published(msgspec.Struct, frozen=True):
    """Where a film can be seen."""

    target: Literal["folder", "youtube"]
    id: str
    where: str  # a path, or an address
