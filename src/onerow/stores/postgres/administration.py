"""What commands change in the database beside the tables: row-level security, attached tables."""

from onerow.ports import Finding
from onerow.sql_ports import Attachment, PolicySettings
from onerow.stores.postgres import attach, policies, policy_check
from onerow.stores.postgres.connections import Connections
from onerow.stores.postgres.statements import statement


class Administration:
    """The part of PostgresStore with the protocols of sql_ports."""

    _connections: Connections
    _schema: str

    def policies_sql(self, settings: PolicySettings) -> str:
        return policies.sql(self._connections, self._schema, settings)

    def apply_policies(self, settings: PolicySettings) -> None:
        policies.apply(self._connections, self._schema, settings)

    def check_policies(self) -> list[Finding]:
        return policy_check.check(self._connections, self._schema)

    def sees_all(self) -> bool:
        sql = statement("policies_sees_all", self._schema)
        found = self._connections.read(lambda connection: connection.execute(sql, {"schema": self._schema}).fetchone())
        return found is None or bool(found[0])

    def attach(self, attachment: Attachment) -> Attachment:
        return attach.attach(self._connections, self._schema, attachment)

    def detach(self, table: str, pipeline: str, match: str | None = None) -> list[Attachment]:
        return attach.detach(self._connections, self._schema, table, pipeline, match)

    def attachments(self) -> list[Attachment]:
        return self._connections.read(lambda connection: attach.attachments(connection, self._schema))
