"""Optional protocols of stores in an SQL database, for the commands that change it: row-level security, attached tables."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec

from onerow.ports import Finding


class PolicySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Who may read and write the tables of a store."""

    services: Sequence[str]  # roles that read and write all rows; the owner of the tables is always one of them
    tenants: Sequence[str]  # roles that read the rows for which `using` is true
    using: str = ""  # boolean SQL over a row of task_queue
    setting: str = ""  # instead of `using`: the session setting that holds the user_id


class RowSecured(Protocol):
    """A store whose server has row-level security."""

    def policies_sql(self, settings: PolicySettings) -> str:
        """Return the statements of `apply_policies`, to be run by hand; raise BadInput if they could not be run."""

    def apply_policies(self, settings: PolicySettings) -> None:
        """Enable row-level security on every table, in one transaction; replaces what was applied before."""

    def check_policies(self) -> list[Finding]:
        """Report what is open: tables without row-level security, and ways around it."""

    def sees_all(self) -> bool:
        """Whether policies hide nothing from this connection's role, as they do from a tenant's."""


class Attachment(msgspec.Struct, frozen=True, kw_only=True):
    """A table whose rows have tasks: the value of `key` is that of `match` in the tasks of the pipeline."""

    table: str
    key: str = ""  # '': the primary key
    pipeline: str
    match: str  # task_id, unique_key, user_id or payload.FIELD


class Attachable(Protocol):
    """A store in the database of the user's tables."""

    def attach(self, attachment: Attachment) -> Attachment:
        """Have deleted rows take their tasks along; return the attachment as stored."""

    def detach(self, table: str, pipeline: str, match: str | None = None) -> list[Attachment]:
        """Undo `attach`; return what was detached. Raise UnknownName if the table is not attached."""

    def attachments(self) -> list[Attachment]:
        """Return all attachments."""


@runtime_checkable
class PostgresDatabase(RowSecured, Attachable, Protocol):
    """All that `onerow pg` needs of a store."""
