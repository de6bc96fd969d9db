"""The schema of a store and the code that may use it.

A store records `schema` (the version that it was migrated to) and `min_code` (the oldest schema version that code must
know). Code refuses a store only if it knows less than min_code.
"""

from onerow.core.errors import CodeTooOld, SchemaMissing


def check_code(known: int, stored: int, min_code: int) -> None:
    """Raise CodeTooOld if the store needs code that knows a newer schema."""
    if min_code > known:
        raise CodeTooOld(
            f"the store has schema {stored} and needs code that knows schema {min_code}; this onerow knows {known}"
        )


def check_version(store: str, known: int, stored: int, min_code: int) -> None:
    """Raise CodeTooOld if the store needs newer code, SchemaMissing if it is not migrated."""
    check_code(known, stored, min_code)
    if stored == 0:
        raise SchemaMissing(f"{store} has no onerow tables")
    if stored < known:
        raise SchemaMissing(f"{store} has schema {stored}, this code needs {known}")
