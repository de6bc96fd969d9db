"""Roles, and the identity of a caller."""

import enum

import msgspec

from onerow.core.errors import BadInput
from onerow.core.suggest import did_you_mean


class Role(enum.IntEnum):
    """What a caller may do; each role includes the ones before it."""

    PUBLIC = 0  # no credential: log-in page, static files, /healthz
    VIEWER = 1  # read
    OPERATOR = 2  # add and change tasks, pull, pause phases, set limits
    ADMIN = 3  # delete tasks, change schedules of all users

    @property
    def label(self) -> str:
        return self.name.lower()


ROLE_NAMES = tuple(role.label for role in Role if role is not Role.PUBLIC)


def parse_role(name: object) -> Role:
    """Return the role with a name; raise BadInput if there is none."""
    if isinstance(name, str) and name in ROLE_NAMES:
        return Role[name.upper()]
    raise BadInput(f"no role {name!r}", fix=did_you_mean(name, ROLE_NAMES), field="role")


class Identity(msgspec.Struct, frozen=True):
    """Who calls. name: written to the history of the tasks that it changes. user_id: it sees only this user's tasks."""

    name: str
    role: Role
    user_id: str | None = None
    # What CSRF tokens are bound to; "" if the credential is a header that browsers never add by themselves.
    session: str = ""


ANONYMOUS = Identity("", Role.PUBLIC)
