"""The Django connection that a caller passes as `tx`: the connection itself, or its alias."""

from typing import Any

from onerow.core.errors import BadInput


def comes_from(tx: Any, module: str) -> bool:
    """Whether the type of `tx`, or one of its base types, is defined in a package."""
    return any(f"{kind.__module__}.".startswith(f"{module}.") for kind in type(tx).__mro__)


def django_connection(tx: Any, vendor: str) -> Any | None:
    """Return the Django connection, None if `tx` is something else; raise BadInput unless a transaction is open on it."""
    if isinstance(tx, str):
        try:
            from django.db import connections

            tx = connections[tx]
        except Exception as error:  # no Django, no settings, or no such alias
            raise BadInput(f"tx: {tx!r} is not an alias of a Django connection: {error}", field="tx") from error
    elif not comes_from(tx, "django"):
        return None
    if getattr(tx, "vendor", "") != vendor:
        raise BadInput(
            f"tx: the Django connection {getattr(tx, 'alias', tx)!r} is to {getattr(tx, 'vendor', 'something else')}, "
            f"and the queue is in {vendor}",
            fix="use a connection to the queue's own database",
            field="tx",
        )
    if tx.get_autocommit() and not tx.in_atomic_block:
        raise BadInput("tx: no transaction is open", fix="use it inside transaction.atomic()", field="tx")
    return tx
